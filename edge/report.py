"""The report of a job: what was done to each input, how fast, and what it cost.

Its keys are an interface: benchmarks and operators read them. A job counts into a ``ReportBuilder`` from any
thread and gets a ``JobReport`` from it at the end.
"""

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge.outputs import atomic_output, output_reason
from edge.progress import InputStatus
from shared import __version__
from shared.errors import (
    FaceFusionError,
    InterruptedJobError,
    OutputError,
    PolicyError,
    SomeInputsFailedError,
)
from shared.timing import Span

_OFFLOAD_KEYS = ("sent", "on_time", "late", "refused", "bytes_up", "bytes_down")


@dataclass(frozen=True, slots=True)
class InputReport:
    """What became of one input.

    Attributes:
        path: The input.
        output: The file written; None unless the status is ``ok``.
        status: ``ok``, ``failed``, ``refused`` by a rule, or ``skipped``.
        error: Why it is not ``ok``, in one line.
        frames_in: Frames decoded.
        frames_out: Frames written.
        frames_fused: Frames in which at least one face was fused.
        duration_s: Length of the input in seconds; 0 for a still.
    """

    path: Path
    output: Path | None
    status: InputStatus
    error: str | None = None
    frames_in: int = 0
    frames_out: int = 0
    frames_fused: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobReport:
    """One whole job.

    Attributes:
        inputs: In the order they were given.
        wall_s: From start to end, in seconds.
        fps: Frames written a second, over the whole job.
        cpu_s: Processor time of this process and its children, in seconds.
        peak_rss_bytes: Largest resident memory of the process so far, in bytes.
        stages: By stage ``count, p50_ms, p95_ms, p99_ms, total_ms``.
        cache: By level ``hits, misses, rate``.
        rungs: Frames by who made them: ``local`` by this machine, ``pass`` without a face fused.
        offload: Traffic with a cloud node.
        dropped: Frames left out, by reason.
        identities: ``seen`` and ``remembered`` people.
        providers: Execution provider by model.
        command: The command line; empty from the Python API.
        effective_config: By setting ``value`` and ``origin``.
        version: Of Lethe.
        interrupted: Whether the user stopped it; not in the file, the inputs' status says it.
        spans: For the trace; not in the file.
    """

    inputs: tuple[InputReport, ...]
    wall_s: float
    fps: float
    cpu_s: float
    peak_rss_bytes: int
    stages: Mapping[str, Mapping[str, float]]
    cache: Mapping[str, Mapping[str, float]]
    rungs: Mapping[str, int]
    offload: Mapping[str, int]
    dropped: Mapping[str, int]
    identities: Mapping[str, int]
    providers: Mapping[str, str]
    command: tuple[str, ...] = ()
    effective_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    version: str = __version__
    interrupted: bool = False
    spans: tuple[Span, ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with exactly the documented keys in the documented order."""
        return {
            "version": self.version,
            "command": list(self.command),
            "inputs": [_input_to_json(item) for item in self.inputs],
            "wall_s": round(self.wall_s, 3),
            "fps": round(self.fps, 2),
            "cpu_s": round(self.cpu_s, 3),
            "peak_rss_bytes": self.peak_rss_bytes,
            "stages": dict(self.stages),
            "cache": dict(self.cache),
            "rungs": dict(self.rungs),
            "offload": dict(self.offload),
            "dropped": dict(self.dropped),
            "identities": dict(self.identities),
            "providers": dict(self.providers),
            "effective_config": dict(self.effective_config),
        }

    def raise_for_status(self) -> None:
        """Do nothing if every input is done.

        Raises:
            InterruptedJobError: If the user stopped the job.
            SomeInputsFailedError: If some inputs are done and others are not.
            PolicyError: If none is done and a rule refused them all.
            FaceFusionError: If none is done.
        """
        not_done = [item for item in self.inputs if item.status in ("failed", "refused")]
        if self.interrupted:
            done = sum(item.status == "ok" for item in self.inputs)
            inputs = "1 input is" if done == 1 else f"{done} inputs are"
            raise InterruptedJobError(f"stopped: {inputs} done, nothing half-written is left")
        if not not_done:
            return
        if len(not_done) < len(self.inputs):
            raise SomeInputsFailedError(failed=len(not_done), total=len(self.inputs))
        error = PolicyError if all(item.status == "refused" for item in not_done) else FaceFusionError
        if len(not_done) == 1:
            raise error(not_done[0].error or f"{not_done[0].path}: {not_done[0].status}")
        raise error(f"all {len(not_done)} inputs failed")


def _input_to_json(item: InputReport) -> dict[str, Any]:
    plain = dataclasses.asdict(item)
    plain |= {
        "path": str(item.path),
        "output": str(item.output) if item.output else None,
        "duration_s": round(item.duration_s, 3),
    }
    return plain


class ReportBuilder:
    """Counts what a job does, from any thread.

    Args:
        now_s: Monotonic clock in seconds; tests inject one.
        cpu_s: Processor time used so far; tests inject one.
    """

    def __init__(
        self, *, now_s: Callable[[], float] = time.monotonic, cpu_s: Callable[[], float] | None = None
    ) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s or cpu_seconds
        self._started_s = now_s()
        self._cpu_started_s = self._cpu_s()
        self._lock = threading.Lock()  # protects everything below
        self._inputs: list[InputReport] = []
        self._rungs = {"local": 0, "pass": 0}
        self._dropped: dict[str, int] = {}

    def count_frame(self, rung: str) -> None:
        """Count a frame that was made by ``rung``: ``local``, or ``pass`` where no face was fused."""
        with self._lock:
            self._rungs[rung] = self._rungs.get(rung, 0) + 1

    def count_dropped(self, reason: str, frames: int = 1) -> None:
        """Count frames that were left out."""
        with self._lock:
            self._dropped[reason] = self._dropped.get(reason, 0) + frames

    def add_input(self, item: InputReport) -> None:
        """Note what became of an input."""
        with self._lock:
            self._inputs.append(item)

    def build(
        self,
        *,
        stages: Mapping[str, Mapping[str, float]],
        cache: Mapping[str, Mapping[str, float]],
        providers: Mapping[str, str],
        identities_seen: int = 0,
        identities_remembered: int = 0,
        interrupted: bool = False,
        spans: Sequence[Span] = (),
    ) -> JobReport:
        """The report of everything counted until now.

        Args:
            stages: ``StageClock.summary()``.
            cache: ``CacheCounters.summary()``.
            providers: ``SessionPool.loaded()``.
            identities_seen: How many different people were seen.
            identities_remembered: How many of them the face memory knew.
            interrupted: Whether the user stopped the job.
            spans: ``StageClock.spans()``, for the trace.
        """
        wall_s = self._now_s() - self._started_s
        with self._lock:
            frames = sum(item.frames_out for item in self._inputs)
            return JobReport(
                inputs=tuple(self._inputs),
                wall_s=wall_s,
                fps=frames / wall_s if wall_s > 0 else 0.0,
                cpu_s=self._cpu_s() - self._cpu_started_s,
                peak_rss_bytes=peak_rss_bytes(),
                stages=stages,
                cache=cache,
                rungs=dict(self._rungs),
                offload=dict.fromkeys(_OFFLOAD_KEYS, 0),
                dropped=dict(self._dropped),
                identities={"seen": identities_seen, "remembered": identities_remembered},
                providers=providers,
                interrupted=interrupted,
                spans=tuple(spans),
            )


def cpu_seconds() -> float:
    """Processor time of this process and its ended children until now, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kibibytes, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def write_report(path: Path, report: JobReport) -> None:
    """Write the report as one JSON object; the file appears whole or not at all.

    Raises:
        OutputError: If it cannot be written.
    """
    write_text(path, json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a small text file, whole or not at all; missing folders are made.

    Devices and pipes, such as ``/dev/stdout``, are written to as they are.

    Raises:
        OutputError: If it cannot be written; what was there before is untouched.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        try:
            _write(path, text)
        except OSError as err:
            raise OutputError(path, output_reason(err)) from err
    else:
        with atomic_output(path) as part:
            _write(part, text)


def _write(path: Path, text: str) -> None:
    # A path that is not UTF-8 reaches us with lone surrogates, and the escape for one is valid JSON.
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
