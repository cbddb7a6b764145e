"""Ctrl-C: the first one asks the job to stop, the second one insists."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """While the body runs, Ctrl-C and ``kill`` set the event that is handed out."""
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # Not print(): the signal may have come in the middle of one.
        os.write(2, b"\nstopping; once more to stop at once\n")

    before = {number: signal.signal(number, ask_to_stop) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
