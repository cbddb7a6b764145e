"""One stream through all stages, each on a thread of its own, joined by short queues.

decode -> analyse -> fuse -> encode. A file blocks: nothing is dropped and the order is kept. The first
error of any stage stops all of them and is raised to the caller; no thread outlives the call.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from shared.errors import InterruptedJobError
from shared.faces import TrackedFace
from shared.frames import Frame, FusedFrame
from shared.timing import StageClock

InT = TypeVar("InT")
OutT = TypeVar("OutT")

_QUEUE_FRAMES = 2
"""Enough to keep two cores busy; the ten frames in flight are 120 MB at 1080p."""
_POLL_S = 0.1


class _End:
    """The last thing in a queue."""


_END = _End()


class _Stage(threading.Thread, Generic[InT, OutT]):
    """Takes from one queue, works, puts into the next.

    Args:
        name: Of the thread, as the trace shows it.
        items: What comes in.
        work: What is done to it.
        halt: Set when any stage has failed or the user stops.
        errors: Where a failure is put, behind those that were first.
    """

    def __init__(
        self,
        name: str,
        items: Iterable[InT],
        work: Callable[[InT], OutT],
        halt: threading.Event,
        errors: list[BaseException],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._items = items
        self._work = work
        self._halt = halt
        self._errors = errors
        self._out: queue.Queue[OutT | _End] = queue.Queue(_QUEUE_FRAMES)

    def run(self) -> None:
        """Work until the items end, something fails or all shall halt."""
        try:
            for item in self._items:
                if not self._put(self._work(item)):
                    return
        except BaseException as err:  # handed to the caller's thread, which raises it
            self._errors.append(err)
            self._halt.set()
        finally:
            self._put(_END)

    def _put(self, value: OutT | _End) -> bool:
        while not self._halt.is_set():
            try:
                self._out.put(value, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def results(self) -> Iterator[OutT]:
        """What the stage made, in order; ends early when all halt."""
        while not self._halt.is_set():
            try:
                value = self._out.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if isinstance(value, _End):
                return
            yield value


def run_stream(
    frames: Iterable[Frame],
    analyse: Callable[[Frame], tuple[TrackedFace, ...]],
    fuse: Callable[[Frame, tuple[TrackedFace, ...]], FusedFrame],
    write: Callable[[FusedFrame], None],
    *,
    clock: StageClock,
    stop: threading.Event,
) -> None:
    """Bring every frame from the reader to the writer.

    Args:
        frames: The decoder; iterated on a thread of its own.
        analyse: Finds the faces of a frame; called in order, on one thread.
        fuse: Fuses them; called in order, on one thread.
        write: Encodes; called in order, on the caller's thread.
        clock: Times ``decode`` and ``encode``; the others time themselves.
        stop: Set by the user to end the job.

    Raises:
        InterruptedJobError: If ``stop`` was set.
        Exception: Whatever a stage raised first.
    """
    halt = threading.Event()
    errors: list[BaseException] = []
    decoder = _Stage("decode", _timed(frames, clock), lambda frame: frame, halt, errors)
    analyser = _Stage("analyse", decoder.results(), lambda frame: (frame, analyse(frame)), halt, errors)
    fuser = _Stage("fuse", analyser.results(), lambda both: fuse(*both), halt, errors)
    stages = (decoder, analyser, fuser)
    for stage in stages:
        stage.start()
    try:
        for fused in fuser.results():
            if stop.is_set():
                break
            with clock.stage("encode", fused.frame.index):
                write(fused)
    finally:
        halt.set()
        for stage in stages:
            stage.join()
    if errors:
        raise errors[0]
    if stop.is_set():
        raise InterruptedJobError("stopped by the user; the open output is removed")


def _timed(frames: Iterable[Frame], clock: StageClock) -> Iterator[Frame]:
    iterator = iter(frames)
    index = 0
    while True:
        with clock.stage("decode", index):
            frame = next(iterator, None)
        if frame is None:
            return
        yield frame
        index += 1
