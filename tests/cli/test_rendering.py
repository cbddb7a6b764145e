import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edge.cli.rendering import (
    BarRenderer,
    JsonRenderer,
    LineRenderer,
    QuietRenderer,
    Renderer,
    event_to_json,
    make_renderer,
    progress_line,
)
from edge.progress import (
    Event,
    InputFinished,
    InputStarted,
    JobFinished,
    JobStarted,
    Progress,
    SourcePrepared,
)

CLIP, OUT = Path("clip.mp4"), Path("out.mp4")
JOB: list[Event] = [
    JobStarted(2),
    SourcePrepared(Path("me.jpg"), ("a larger photo would be sharper",)),
    InputStarted(CLIP, 0, 2, 72, 3.0),
    Progress(CLIP, 36, 72, 24.0),
    InputFinished(CLIP, OUT, "ok", 70, None, ("the subtitles are dropped",)),
    InputStarted(Path("b.jpg"), 1, 2, 1, 0.0),
    InputFinished(Path("b.jpg"), None, "failed", 0, "b.jpg: is empty"),
    JobFinished(Path("report.json")),
]


def play(renderer: Renderer, events: list[Event]) -> None:
    with renderer:
        for event in events:
            renderer(event)


def test_json_is_one_object_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    play(JsonRenderer(), JOB)
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == [
        "job_started",
        "source_prepared",
        "input_started",
        "progress",
        "input_finished",
        "input_started",
        "input_finished",
        "job_finished",
    ]
    assert err == ""


def test_an_event_keeps_its_fields_in_json() -> None:
    assert event_to_json(JOB[3]) == {
        "event": "progress",
        "path": "clip.mp4",
        "frames_done": 36,
        "frames_total": 72,
        "fps": 24.0,
    }


def test_results_go_to_stdout_and_everything_else_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    play(LineRenderer(), JOB)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["clip.mp4 -> out.mp4  (70 frames fused)", "report: report.json"]
    assert err.splitlines() == [
        "note: me.jpg: a larger photo would be sharper",
        "note: clip.mp4: the subtitles are dropped",
        "failed: b.jpg: is empty",
    ]


def test_quiet_says_only_what_went_wrong_or_got_lost(capsys: pytest.CaptureFixture[str]) -> None:
    play(QuietRenderer(), JOB)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["note: clip.mp4: the subtitles are dropped", "failed: b.jpg: is empty"]


def test_the_error_of_the_only_input_is_left_to_the_end_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    play(LineRenderer(), [JobStarted(1), InputFinished(CLIP, None, "failed", 0, "clip.mp4: is empty")])
    assert capsys.readouterr() == ("", "")


def test_a_log_hears_of_progress_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 10.0, 12.0, 15.5, 15.5, 16.0])
    renderer = LineRenderer(now_s=lambda: next(times))
    play(renderer, [InputStarted(CLIP, 0, 1, 72, 3.0), *(Progress(CLIP, n, 72, 8.0) for n in (16, 40, 48))])
    assert capsys.readouterr().err.splitlines() == ["clip.mp4: 40 of 72 frames, 8.0 fps, 0:04 left"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Progress(CLIP, 5, None, 20.0), "clip.mp4: 5 frames, 20.0 fps"),
        (Progress(CLIP, 0, 100, 0.0), "clip.mp4: 0 of 100 frames, 0.0 fps"),
        (Progress(CLIP, 1000, 100000, 25.0), "clip.mp4: 1000 of 100000 frames, 25.0 fps, 1:06:00 left"),
        (Progress(CLIP, 110, 100, 25.0), "clip.mp4: 110 of 100 frames, 25.0 fps, 0:00 left"),
    ],
)
def test_a_progress_line_says_what_is_known(event: Progress, line: str) -> None:
    assert progress_line(event) == line


def test_a_file_name_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    play(LineRenderer(), [InputFinished(Path("a\x1b[2J\n.jpg"), OUT, "ok", 1)])
    assert capsys.readouterr().out == "a\\x1b[2J\\x0a.jpg -> out.mp4  (1 frame fused)\n"


def test_the_bar_leaves_results_on_stdout_and_no_bar_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    play(BarRenderer(), JOB)
    out, err = capsys.readouterr()
    assert out.splitlines() == ["clip.mp4 -> out.mp4  (70 frames fused)", "report: report.json"]
    assert "failed: b.jpg: is empty" in err
    assert "━" not in err


class _Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.__stderr__, name)


@pytest.mark.parametrize(
    ("as_json", "quiet", "terminal", "kind"),
    [
        (False, False, True, BarRenderer),
        (False, False, False, LineRenderer),
        (False, True, True, QuietRenderer),
        (True, False, True, JsonRenderer),
        (True, True, False, JsonRenderer),
    ],
)
def test_flags_and_terminal_choose_the_renderer(
    monkeypatch: pytest.MonkeyPatch, as_json: bool, quiet: bool, terminal: bool, kind: type[Renderer]
) -> None:
    monkeypatch.setattr(sys, "stderr", _Terminal(terminal))
    assert type(make_renderer(as_json=as_json, quiet=quiet)) is kind
