import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from edge.pipeline import run_stream
from shared.errors import InputError, InterruptedJobError, OutputError
from shared.faces import TrackedFace
from shared.frames import Frame, FusedFrame
from shared.timing import StageClock

IN_FLIGHT = 10
"""Frames that may be between reader and writer, the ones in their hands included."""


def frames(count: int, log: list[int] | None = None) -> Iterator[Frame]:
    for index in range(count):
        if log is not None:
            log.append(index)
        yield Frame(index, np.zeros((2, 2, 3), np.uint8), index)


def no_faces(_frame: Frame) -> tuple[TrackedFace, ...]:
    return ()


def untouched(frame: Frame, _faces: tuple[TrackedFace, ...]) -> FusedFrame:
    return FusedFrame(frame)


def ignore(_fused: FusedFrame) -> None:
    """Write nothing."""


def run(
    source: Any = None,
    *,
    analyse: Callable[[Frame], tuple[TrackedFace, ...]] = no_faces,
    fuse: Callable[[Frame, tuple[TrackedFace, ...]], FusedFrame] = untouched,
    write: Callable[[FusedFrame], None] = ignore,
    clock: StageClock | None = None,
    stop: threading.Event | None = None,
) -> None:
    run_stream(
        frames(20) if source is None else source,
        analyse,
        fuse,
        write,
        clock=clock or StageClock(),
        stop=stop or threading.Event(),
    )


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_every_frame_arrives_once_and_in_order() -> None:
    written: list[int] = []
    analysed: list[int] = []

    def analyse(frame: Frame) -> tuple[TrackedFace, ...]:
        analysed.append(frame.index)
        time.sleep(0.002 if frame.index % 3 else 0)
        return ()

    def fuse(frame: Frame, _faces: tuple[TrackedFace, ...]) -> FusedFrame:
        time.sleep(0.002 if frame.index % 2 else 0)
        return FusedFrame(frame)

    run(frames(60), analyse=analyse, fuse=fuse, write=lambda fused: written.append(fused.frame.index))
    assert written == analysed == list(range(60))


def test_faces_reach_the_fuser_with_their_own_frame() -> None:
    pairs: list[tuple[int, int]] = []

    def analyse(frame: Frame) -> tuple[TrackedFace, ...]:
        box, points = np.zeros(4, np.float32), np.zeros((478, 3), np.float32)
        return (TrackedFace(frame.index * 10, points, 9.0, box, 0.9, False),)

    def fuse(frame: Frame, faces: tuple[TrackedFace, ...]) -> FusedFrame:
        pairs.append((frame.index, faces[0].track_id))
        return FusedFrame(frame)

    run(analyse=analyse, fuse=fuse)
    assert pairs == [(i, i * 10) for i in range(20)]


def test_nothing_in_gives_nothing_out() -> None:
    written: list[FusedFrame] = []
    run(frames(0), write=written.append)
    assert written == []


def test_the_writer_is_on_the_callers_thread_and_each_stage_on_its_own() -> None:
    threads: dict[str, set[str]] = {}

    def note(stage: str) -> None:
        threads.setdefault(stage, set()).add(threading.current_thread().name)

    def source() -> Iterator[Frame]:
        for frame in frames(5):
            note("decode")
            yield frame

    run(
        source(),
        analyse=lambda frame: (note("analyse"), ())[1],  # type: ignore[func-returns-value]
        fuse=lambda frame, faces: (note("fuse"), FusedFrame(frame))[1],  # type: ignore[func-returns-value]
        write=lambda fused: note("encode"),
    )
    here = threading.current_thread().name
    assert threads == {"decode": {"decode"}, "analyse": {"analyse"}, "fuse": {"fuse"}, "encode": {here}}


def test_a_slow_writer_holds_the_reader_back() -> None:
    read: list[int] = []
    ahead: list[int] = []

    def write(fused: FusedFrame) -> None:
        if fused.frame.index in (0, 10):
            time.sleep(0.2)  # long enough for all the others to run as far ahead as they may
        ahead.append(len(read) - fused.frame.index)

    run(frames(60, read), write=write)
    assert len(read) == 60
    assert max(ahead) <= IN_FLIGHT
    assert max(ahead) >= 5  # the stages do work side by side


def failing(at: int, error: Exception) -> Callable[..., Any]:
    """A stage that fails at one frame."""

    def work(item: Any, *more: Any) -> Any:
        index = item.frame.index if isinstance(item, FusedFrame) else item.index
        if index == at:
            raise error
        return FusedFrame(item) if more else ()

    return work


@pytest.mark.parametrize("stage", ["analyse", "fuse", "write"])
@pytest.mark.parametrize("at", [0, 7, 19])
def test_an_error_of_a_stage_ends_the_job_and_is_raised(stage: str, at: int) -> None:
    error = OutputError("out.mp4", "the disk is full")
    written: list[int] = []
    stages: dict[str, Any] = {"write": lambda fused: written.append(fused.frame.index)}
    stages[stage] = failing(at, error)
    with pytest.raises(OutputError) as caught:
        run(**stages)
    assert caught.value is error
    assert written == list(range(len(written)))
    assert len(written) <= at


@pytest.mark.parametrize("at", [0, 7])
def test_an_error_of_the_reader_is_raised(at: int) -> None:
    def source() -> Iterator[Frame]:
        yield from frames(at)
        raise InputError("clip.mp4", "is cut short")

    with pytest.raises(InputError, match="is cut short"):
        run(source())


def test_of_several_errors_the_first_is_raised() -> None:
    fused = threading.Event()

    def source() -> Iterator[Frame]:
        yield from frames(1)
        fused.wait(5)
        time.sleep(0.05)
        raise InputError("clip.mp4", "fails later")

    def fuse(_frame: Frame, _faces: tuple[TrackedFace, ...]) -> FusedFrame:
        fused.set()
        raise ValueError("fails first")

    with pytest.raises(ValueError, match="fails first"):
        run(source(), fuse=fuse)


def test_an_error_while_the_writer_is_slow_is_not_lost() -> None:
    def write(_fused: FusedFrame) -> None:
        time.sleep(0.05)

    with pytest.raises(ZeroDivisionError):
        run(frames(200), analyse=failing(4, ZeroDivisionError()), write=write)


def test_a_stop_ends_the_job_soon() -> None:
    stop = threading.Event()
    written: list[int] = []
    read: list[int] = []

    def write(fused: FusedFrame) -> None:
        written.append(fused.frame.index)
        if fused.frame.index == 5:
            stop.set()

    with pytest.raises(InterruptedJobError, match="stopped by the user"):
        run(frames(1000, read), write=write, stop=stop)
    assert written == list(range(6))
    assert len(read) < 6 + 2 * IN_FLIGHT


def test_a_stop_before_the_start_writes_nothing() -> None:
    stop = threading.Event()
    stop.set()
    written: list[FusedFrame] = []
    with pytest.raises(InterruptedJobError):
        run(write=written.append, stop=stop)
    assert written == []


def test_a_stop_while_the_reader_fails_tells_of_the_failure() -> None:
    stop = threading.Event()

    def source() -> Iterator[Frame]:
        yield from frames(2)
        stop.set()
        raise InputError("clip.mp4", "is cut short")

    with pytest.raises((InputError, InterruptedJobError)):
        run(source(), stop=stop)


def test_reading_and_writing_are_timed() -> None:
    clock = StageClock(keep_spans=True)
    run(frames(12), clock=clock, write=lambda _fused: time.sleep(0.001))
    summary = clock.summary()
    assert summary["encode"]["count"] == 12
    assert summary["encode"]["total_ms"] >= 12
    # One more look finds the end of the file.
    assert summary["decode"]["count"] == 13
    assert [span.frame for span in clock.spans() if span.stage == "encode"] == list(range(12))


def test_streams_can_run_one_after_the_other_and_side_by_side() -> None:
    results: dict[int, list[int]] = {0: [], 1: []}

    def job(number: int) -> None:
        run(frames(30), write=lambda fused: results[number].append(fused.frame.index))

    threads = [threading.Thread(target=job, args=(n,)) for n in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {0: list(range(30)), 1: list(range(30))}
