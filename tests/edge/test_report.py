import json
import os
import threading
from pathlib import Path

import pytest

from edge.report import InputReport, JobReport, ReportBuilder, cpu_seconds, peak_rss_bytes, write_report
from shared.counters import CacheCounters
from shared.errors import (
    FaceFusionError,
    InterruptedJobError,
    OutputError,
    PolicyError,
    SomeInputsFailedError,
)
from shared.timing import StageClock

# What benchmarks and operators read, in the documented order.
KEYS = [
    "version",
    "command",
    "inputs",
    "wall_s",
    "fps",
    "cpu_s",
    "peak_rss_bytes",
    "stages",
    "cache",
    "rungs",
    "offload",
    "dropped",
    "identities",
    "providers",
    "effective_config",
]


def ok(name: str, frames: int = 1) -> InputReport:
    return InputReport(Path(name), Path(f"out/{name}"), "ok", None, frames, frames, frames, frames / 25)


def failed(name: str) -> InputReport:
    return InputReport(Path(name), None, "failed", f"{name}: is empty")


def report_of(*inputs: InputReport, interrupted: bool = False) -> JobReport:
    builder = ReportBuilder()
    for item in inputs:
        builder.add_input(item)
    return builder.build(stages={}, cache={}, providers={}, interrupted=interrupted)


def test_a_report_has_exactly_the_documented_keys() -> None:
    assert list(report_of(ok("a.jpg")).to_json()) == KEYS


def test_an_input_has_exactly_the_documented_keys() -> None:
    (item,) = report_of(ok("a.mp4", frames=50)).to_json()["inputs"]
    assert item == {
        "path": "a.mp4",
        "output": "out/a.mp4",
        "status": "ok",
        "error": None,
        "frames_in": 50,
        "frames_out": 50,
        "frames_fused": 50,
        "duration_s": 2.0,
    }


def test_speed_is_frames_written_over_wall_time() -> None:
    now_s = iter([10.0, 14.0])
    cpu_s = iter([1.0, 7.5])
    builder = ReportBuilder(now_s=lambda: next(now_s), cpu_s=lambda: next(cpu_s))
    builder.add_input(ok("a.mp4", frames=60))
    builder.add_input(ok("b.mp4", frames=40))
    plain = builder.build(stages={}, cache={}, providers={}).to_json()
    assert (plain["wall_s"], plain["fps"], plain["cpu_s"]) == (4.0, 25.0, 6.5)


def test_stages_caches_and_providers_are_taken_over_from_the_counters() -> None:
    clock, counters = StageClock(), CacheCounters()
    with clock.stage("detect"):
        pass
    counters.hit("track")
    plain = (
        ReportBuilder()
        .build(stages=clock.summary(), cache=counters.summary(), providers={"yunet": "CPUExecutionProvider"})
        .to_json()
    )
    assert plain["stages"]["detect"]["count"] == 1
    assert plain["cache"]["track"] == {"hits": 1, "misses": 0, "rate": 1.0}
    assert plain["providers"] == {"yunet": "CPUExecutionProvider"}


def test_frames_are_counted_from_many_threads() -> None:
    builder = ReportBuilder()

    def count() -> None:
        for _ in range(500):
            builder.count_frame("local")
            builder.count_dropped("late", 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain = builder.build(stages={}, cache={}, providers={}).to_json()
    assert plain["rungs"] == {"local": 2000, "pass": 0}
    assert plain["dropped"] == {"late": 4000}


def test_processor_time_and_memory_are_plausible() -> None:
    before = cpu_seconds()
    sum(range(2_000_000))
    assert before < cpu_seconds() < before + 10
    assert 10e6 < peak_rss_bytes() < 64e9


def test_a_written_report_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report = report_of(ok("Ünï côdé 面.jpg"))
    write_report(path, report)
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(report.to_json()))
    assert "面" in path.read_text(encoding="utf-8")
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_path_that_is_not_unicode_still_gives_valid_json(tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", report_of(ok(os.fsdecode(b"\xff.jpg"))))
    plain = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert os.fsencode(plain["inputs"][0]["path"]) == b"\xff.jpg"


def test_missing_folders_of_a_report_are_made(tmp_path: Path) -> None:
    write_report(tmp_path / "new" / "report.json", report_of())
    assert (tmp_path / "new" / "report.json").is_file()


def test_a_report_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file/report\.json: a part of its path is a file"):
        write_report(tmp_path / "file" / "report.json", report_of())


def test_a_folder_in_the_place_of_the_report_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        write_report(tmp_path, report_of())
    assert not list(tmp_path.parent.glob(".lethe-*"))


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    write_report(pipe, report_of())
    reader.join(5)
    assert pipe.is_fifo()
    assert list(json.loads(texts[0])) == KEYS


def test_a_job_that_is_done_raises_nothing() -> None:
    report_of(ok("a"), ok("b")).raise_for_status()
    report_of().raise_for_status()


@pytest.mark.parametrize(
    ("report", "error", "exit_code", "message"),
    [
        (report_of(failed("a")), FaceFusionError, 1, "a: is empty"),
        (report_of(failed("a"), failed("b")), FaceFusionError, 1, "all 2 inputs failed"),
        (report_of(InputReport(Path("a"), None, "refused", "no")), PolicyError, 3, "no"),
        (report_of(ok("a"), interrupted=True), InterruptedJobError, 4, "stopped: 1 input is done"),
        (report_of(ok("a"), failed("b")), SomeInputsFailedError, 5, "1 of 2 inputs failed"),
    ],
)
def test_a_job_that_is_not_done_raises_the_error_with_its_exit_code(
    report: JobReport, error: type[FaceFusionError], exit_code: int, message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        report.raise_for_status()
    assert caught.value.exit_code == exit_code
