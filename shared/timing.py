"""Time: how long each stage took, and spans for the trace."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work on one thread.

    Attributes:
        stage: Name of the stage.
        thread: Name of the thread.
        start_ns: Monotonic clock.
        duration_ns: Length.
        frame: Index of the frame, or -1.
    """

    stage: str
    thread: str
    start_ns: int
    duration_ns: int
    frame: int


class StageClock:
    """Collects the duration of each stage, from any thread.

    Args:
        keep_spans: Also keep every span for ``--trace`` (memory grows with the length of the job).
        now_ns: Monotonic clock in nanoseconds; tests inject one.
    """

    # Percentiles come from at most this many samples a stage (a reservoir), so memory is flat with length.
    _RESERVOIR = 4096

    def __init__(self, *, keep_spans: bool = False, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._keep_spans = keep_spans
        self._now_ns = now_ns
        self._lock = threading.Lock()  # protects everything below
        self._samples: dict[str, list[int]] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._spans: list[Span] = []
        self._rng = np.random.default_rng(0)

    @contextmanager
    def stage(self, name: str, frame: int = -1) -> Iterator[None]:
        """Time the body as one run of stage ``name``."""
        start = self._now_ns()
        try:
            yield
        finally:
            self._add(name, frame, start, self._now_ns() - start)

    def _add(self, name: str, frame: int, start: int, duration: int) -> None:
        with self._lock:
            count, total = self._totals.get(name, (0, 0))
            self._totals[name] = (count + 1, total + duration)
            samples = self._samples.setdefault(name, [])
            if len(samples) < self._RESERVOIR:
                samples.append(duration)
            else:
                slot = int(self._rng.integers(count + 1))
                if slot < self._RESERVOIR:
                    samples[slot] = duration
            if self._keep_spans:
                thread = threading.current_thread().name
                self._spans.append(Span(name, thread, start, duration, frame))

    def summary(self) -> dict[str, dict[str, float]]:
        """Per stage ``count, p50_ms, p95_ms, p99_ms, total_ms``."""
        with self._lock:
            out = {}
            for name, samples in self._samples.items():
                p50, p95, p99 = np.percentile(np.asarray(samples, np.float64), [50, 95, 99]) / 1e6
                count, total = self._totals[name]
                out[name] = {
                    "count": count,
                    "p50_ms": round(float(p50), 3),
                    "p95_ms": round(float(p95), 3),
                    "p99_ms": round(float(p99), 3),
                    "total_ms": round(total / 1e6, 3),
                }
            return out

    def spans(self) -> tuple[Span, ...]:
        """Every span so far; empty unless ``keep_spans``."""
        with self._lock:
            return tuple(self._spans)
