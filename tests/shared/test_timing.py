import threading
from collections.abc import Iterable

import pytest

from shared.timing import Span, StageClock


def clock_of(durations_ms: Iterable[float], *, keep_spans: bool = False) -> StageClock:
    """A clock on which the n-th stage lasts the n-th duration, with 1 ms between stages."""
    times, now = [], 0
    for duration in durations_ms:
        times += [now, now + round(duration * 1e6)]
        now = times[-1] + 1_000_000
    return StageClock(keep_spans=keep_spans, now_ns=iter(times).__next__)


def test_no_stage_gives_no_summary() -> None:
    assert StageClock().summary() == {}
    assert StageClock().spans() == ()


def test_a_summary_has_exactly_the_percentiles_of_the_durations() -> None:
    clock = clock_of(range(101))
    for _ in range(101):
        with clock.stage("fuse"):
            pass
    assert clock.summary() == {
        "fuse": {"count": 101, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0, "total_ms": 5050.0}
    }


def test_stages_are_kept_apart() -> None:
    clock = clock_of([1, 10, 3])
    for name in ("a", "b", "a"):
        with clock.stage(name):
            pass
    assert {name: (s["count"], s["total_ms"]) for name, s in clock.summary().items()} == {
        "a": (2, 4.0),
        "b": (1, 10.0),
    }


def test_a_stage_that_fails_is_timed_and_its_error_goes_on() -> None:
    clock = clock_of([7])
    with pytest.raises(ZeroDivisionError), clock.stage("fuse"):
        raise ZeroDivisionError
    assert clock.summary()["fuse"]["total_ms"] == 7.0


def test_spans_tell_stage_thread_frame_start_and_length() -> None:
    clock = clock_of([2, 3], keep_spans=True)
    with clock.stage("decode", 4):
        pass
    with clock.stage("prepare"):
        pass
    thread = threading.current_thread().name
    assert clock.spans() == (
        Span("decode", thread, 0, 2_000_000, 4),
        Span("prepare", thread, 3_000_000, 3_000_000, -1),
    )


def test_spans_are_not_kept_unless_asked_for() -> None:
    clock = clock_of([2])
    with clock.stage("decode"):
        pass
    assert clock.spans() == ()


def test_memory_is_bounded_while_count_and_total_stay_exact_and_percentiles_close() -> None:
    count = 3 * StageClock._RESERVOIR
    clock = clock_of(i / 1000 for i in range(count))
    for _ in range(count):
        with clock.stage("fuse"):
            pass
    summary = clock.summary()["fuse"]
    assert len(clock._samples["fuse"]) == StageClock._RESERVOIR
    assert summary["count"] == count
    assert summary["total_ms"] == pytest.approx(sum(range(count)) / 1000)
    # A plain window of the last or first samples would be a third off.
    assert summary["p50_ms"] == pytest.approx(count / 2000, rel=0.05)
    assert summary["p99_ms"] == pytest.approx(count * 0.99 / 1000, rel=0.05)


def test_stages_of_many_threads_are_all_counted_under_their_names() -> None:
    clock = StageClock(keep_spans=True)

    def work() -> None:
        for _ in range(200):
            with clock.stage("work"):
                pass

    threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.summary()["work"]["count"] == 800
    assert {span.thread for span in clock.spans()} == {f"worker {i}" for i in range(4)}
