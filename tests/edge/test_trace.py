import json
from pathlib import Path

import pytest

from edge.trace import trace_events, write_trace
from shared.errors import OutputError
from shared.timing import Span, StageClock

SPANS = (
    Span("decode", "reader", 1_000_000, 2_000, 0),
    Span("fuse", "worker", 1_003_500, 9_000, 0),
    Span("load", "reader", 1_020_000, 1_000, -1),
)


def test_an_empty_trace_is_still_a_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", ())
    plain = json.loads((tmp_path / "t.json").read_text())
    assert [event["name"] for event in plain["traceEvents"]] == ["process_name"]


def test_spans_become_complete_events_in_microseconds_from_the_first() -> None:
    events = [event for event in trace_events(SPANS) if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("decode", 0.0, 2.0),
        ("fuse", 3.5, 9.0),
        ("load", 20.0, 1.0),
    ]
    assert events[0]["args"] == {"frame": 0}
    assert "args" not in events[2]


def test_each_thread_has_one_row_with_its_name() -> None:
    events = list(trace_events(SPANS))
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {1: "reader", 2: "worker"}
    assert [e["tid"] for e in events if e["ph"] == "X"] == [1, 2, 1]


def test_the_spans_of_a_clock_can_be_written_and_read_back(tmp_path: Path) -> None:
    clock = StageClock(keep_spans=True)
    for frame in range(3):
        with clock.stage("detect", frame):
            pass
    write_trace(tmp_path / "t.json", clock.spans())
    plain = json.loads((tmp_path / "t.json").read_text())
    assert plain["displayTimeUnit"] == "ms"
    assert [e["args"]["frame"] for e in plain["traceEvents"] if e["ph"] == "X"] == [0, 1, 2]


def test_a_trace_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file/t\.json"):
        write_trace(tmp_path / "file" / "t.json", SPANS)
