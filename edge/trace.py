"""The trace of a job: every piece of work of every thread, for Perfetto and chrome://tracing.

The format is the JSON of the Trace Event Format: one complete event (``ph: X``) for each span, times in
microseconds from the first span, and one metadata event (``ph: M``) that names each thread.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edge.report import write_text
from shared.timing import Span


def write_trace(path: Path, spans: Sequence[Span]) -> None:
    """Write spans as a trace; the file appears whole or not at all.

    Args:
        path: Usually ends in ``.json``.
        spans: From ``StageClock.spans()``.

    Raises:
        OutputError: If it cannot be written.
    """
    # One event a line: a long trace stays readable by line tools.
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace_events(spans))
    write_text(path, f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n')


def trace_events(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """The events of a trace: the process, its threads, then the spans."""
    pid = os.getpid()
    threads = {name: tid for tid, name in enumerate(dict.fromkeys(s.thread for s in spans), start=1)}
    yield _name_event("process_name", pid, 0, "lethe")
    for name, tid in threads.items():
        yield _name_event("thread_name", pid, tid, name)
    start_ns = min((s.start_ns for s in spans), default=0)
    for span in spans:
        event: dict[str, Any] = {
            "name": span.stage,
            "cat": "stage",
            "ph": "X",
            "pid": pid,
            "tid": threads[span.thread],
            "ts": (span.start_ns - start_ns) / 1000,
            "dur": span.duration_ns / 1000,
        }
        if span.frame >= 0:
            event["args"] = {"frame": span.frame}
        yield event


def _name_event(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
