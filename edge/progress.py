"""What a running job tells whoever watches it.

The pipeline calls one function with these values, from its own thread; a command line draws them, the Python
API hands them through. They hold paths and counts, never a picture.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

InputStatus: TypeAlias = Literal["ok", "failed", "refused", "skipped"]


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The job begins.

    Attributes:
        total_inputs: How many files it will go through.
    """

    total_inputs: int


@dataclass(frozen=True, slots=True)
class SourcePrepared:
    """A source photo is ready to be fused.

    Attributes:
        path: The photo.
        advice: What would make a better photo; empty where it is good.
    """

    path: Path
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InputStarted:
    """One input begins.

    Attributes:
        path: The input.
        index: Its position in the job, from 0.
        total: How many inputs the job has.
        frames: How many frames to expect; None where the file does not say.
        duration_s: Its length in seconds; 0 for a still, None where the file does not say.
    """

    path: Path
    index: int
    total: int
    frames: int | None
    duration_s: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one input is; sent a few times a second.

    Attributes:
        path: The input.
        frames_done: Frames written so far.
        frames_total: Frames to expect; None where the file does not say.
        fps: Frames a second, over the last moments.
    """

    path: Path
    frames_done: int
    frames_total: int | None
    fps: float


@dataclass(frozen=True, slots=True)
class InputFinished:
    """One input is over, well or not.

    Attributes:
        path: The input.
        output: The file written; None unless the status is ``ok``.
        status: ``ok``, ``failed``, ``refused`` by a rule, or ``skipped``.
        frames_fused: Frames in which at least one face was fused.
        error: Why it is not ``ok``, in one line.
        messages: What the user should know, for example a subtitle track that the container cannot take.
    """

    path: Path
    output: Path | None
    status: InputStatus
    frames_fused: int
    error: str | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobFinished:
    """The job is over; the last event.

    Attributes:
        report: Where the report lies, if one was asked for.
    """

    report: Path | None = None


Event: TypeAlias = JobStarted | SourcePrepared | InputStarted | Progress | InputFinished | JobFinished
EventSink: TypeAlias = Callable[[Event], None]


def ignore_events(_event: Event) -> None:
    """The sink for a job nobody watches."""
