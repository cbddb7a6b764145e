"""Draws the events of a job: a bar on a terminal, short lines elsewhere, JSON for programs.

Results go to stdout; progress, notes and errors to stderr.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar
from rich.text import Text

from edge.progress import (
    Event,
    InputFinished,
    InputStarted,
    JobFinished,
    JobStarted,
    Progress,
    SourcePrepared,
)
from shared.commandline import one_line


class Renderer(AbstractContextManager["Renderer"]):
    """Takes the events of one job; a context manager, so that a bar is cleared at the end."""

    def __call__(self, event: Event) -> None:
        """Show an event."""
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""


def make_renderer(*, as_json: bool, quiet: bool) -> Renderer:
    """The renderer for these flags and this terminal."""
    if as_json:
        return JsonRenderer()
    if quiet:
        return QuietRenderer()
    if sys.stderr.isatty():
        return BarRenderer()
    return LineRenderer()


class JsonRenderer(Renderer):
    """One JSON object a line on stdout, with the event's name under ``event``."""

    def __call__(self, event: Event) -> None:
        """Print the event."""
        print(json.dumps(event_to_json(event)), flush=True)


def event_to_json(event: Event) -> dict[str, Any]:
    """An event as plain data; its name in snake case."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
    return {"event": _snake_case(type(event).__name__), **plain}


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class QuietRenderer(Renderer):
    """Only what went wrong, and what got lost on the way."""

    def __init__(self) -> None:
        self._total = 0

    def __call__(self, event: Event) -> None:
        """Show an event, if it is bad news."""
        match event:
            case JobStarted():
                self._total = event.total_inputs
            case InputFinished():
                for message in event.messages:
                    self._warn(f"note: {event.path}: {message}")
                # With one input its error is the job's error, and the command ends with it.
                if event.error and self._total > 1:
                    self._warn(f"{event.status}: {event.error}")
            case _:
                pass

    def _warn(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)

    def _result(self, line: str) -> None:
        print(one_line(line), flush=True)


class LineRenderer(QuietRenderer):
    """Short lines for a log: one for each result, and now and then how far a video is.

    Args:
        now_s: Monotonic clock in seconds; tests inject one.
    """

    _EVERY_S = 5.0

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._last_s = now_s()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        super().__call__(event)
        match event:
            case SourcePrepared():
                for advice in event.advice:
                    self._warn(f"note: {event.path}: {advice}")
            case InputStarted():
                self._last_s = self._now_s()
            case Progress():
                self._show_progress(event)
            case InputFinished() if event.output:
                self._result(result_line(event))
            case JobFinished() if event.report:
                self._result(f"report: {event.report}")
            case _:
                pass

    def _show_progress(self, event: Progress) -> None:
        if self._now_s() - self._last_s >= self._EVERY_S:
            self._last_s = self._now_s()
            self._warn(progress_line(event))


def result_line(event: InputFinished) -> str:
    """What became of an input that is done."""
    frames = event.frames_fused
    fused = "no face fused" if not frames else "1 frame fused" if frames == 1 else f"{frames} frames fused"
    return f"{event.path} -> {event.output}  ({fused})"


def progress_line(event: Progress) -> str:
    """How far an input is, how fast, and how long it will take."""
    if not event.frames_total:
        return f"{event.path}: {event.frames_done} frames, {event.fps:.1f} fps"
    line = f"{event.path}: {event.frames_done} of {event.frames_total} frames, {event.fps:.1f} fps"
    if event.fps > 0:
        line += f", {_clock(max(event.frames_total - event.frames_done, 0) / event.fps)} left"
    return line


def _clock(duration_s: float) -> str:
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class _FpsColumn(ProgressColumn):
    """Frames a second, where the task has frames."""

    def render(self, task: Task) -> Text:
        fps = task.fields.get("fps")
        return Text(f"{fps:.1f} fps" if fps else "", style="progress.data.speed")


class BarRenderer(LineRenderer):
    """A bar for the frames of the running video, and one for the inputs where there are several."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = ProgressBar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            _FpsColumn(),
            TextColumn("ETA", style="dim"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True, highlight=False),
            transient=True,
            redirect_stdout=False,
        )
        self._inputs: TaskID | None = None
        self._frames: TaskID | None = None

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        super().__call__(event)
        match event:
            case JobStarted() if event.total_inputs > 1:
                self._inputs = self._bar.add_task("inputs", total=event.total_inputs)
            case InputStarted() if event.frames != 1:
                name = _shorten(event.path.name)
                self._frames = self._bar.add_task(name, total=event.frames, fps=None)
            case InputFinished():
                if self._frames is not None:
                    self._bar.remove_task(self._frames)
                    self._frames = None
                if self._inputs is not None:
                    self._bar.advance(self._inputs)
            case _:
                pass

    def _show_progress(self, event: Progress) -> None:
        if self._frames is not None:
            self._bar.update(
                self._frames, completed=event.frames_done, total=event.frames_total, fps=event.fps
            )

    def _warn(self, line: str) -> None:
        self._bar.console.print(one_line(line), markup=False, soft_wrap=True)

    def _result(self, line: str) -> None:
        # On one and the same terminal the line must go above the bar; elsewhere stdout is free.
        if sys.stdout.isatty():
            self._warn(line)
        else:
            super()._result(line)


def _shorten(name: str, limit: int = 28) -> str:
    return name if len(name) <= limit else f"{name[: limit - 9]}…{name[-8:]}"
