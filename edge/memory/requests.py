"""How a command has a running job forget people: one process writes, and others leave it a note.

A note is a small file in the memory's folder, which no other user can look into. It holds random ids, no name
and nothing of a face. The job answers in a file beside it when the forget is final. A note that nobody
answered stays, and whoever opens the memory next to write does what it says.
"""

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from shared.errors import VaultError, VaultLockedError

_logger = logging.getLogger(__name__)

_POLL_S = 0.05
_WATCH_S = 0.5
_PATIENCE_S = 30.0
_NOTE, _ANSWER = ".forget", ".done"

Forget = Callable[[frozenset[bytes]], dict[str, Any]]
"""Forgets people and says what that did, as plain data."""


def requests_folder(folder: Path) -> Path:
    """Where notes lie, below the memory's folder."""
    return folder / "requests"


def ask_to_forget(
    folder: Path, people: Collection[bytes], *, patience_s: float = _PATIENCE_S
) -> dict[str, Any]:
    """Have the process that writes to a memory forget people.

    Args:
        folder: The memory's.
        people: Their ids.
        patience_s: How long to wait for the answer, seconds.

    Returns:
        What the forget did.

    Raises:
        VaultLockedError: If the answer did not come in time; the note stays.
        VaultError: If the note cannot be left.
    """
    note = requests_folder(folder) / f"{secrets.token_hex(8)}{_NOTE}"
    _write(note, sorted(who.hex() for who in people))
    answer = note.with_suffix(_ANSWER)
    ends_s = time.monotonic() + patience_s
    while time.monotonic() < ends_s:
        if answer.exists():
            plain: dict[str, Any] = json.loads(answer.read_bytes())
            answer.unlink(missing_ok=True)
            return plain
        time.sleep(_POLL_S)
    raise VaultLockedError(
        f"{folder}: the process that writes to this face memory has not answered; nobody is forgotten yet. "
        "It is done as soon as that process, or the next one, gets to it: see lethe memory list"
    )


def answer_requests(folder: Path, forget: Forget) -> None:
    """Do what notes ask for.

    Args:
        folder: The memory's.
        forget: Does it.

    Raises:
        VaultError: If a forget failed; its note stays.
    """
    notes = requests_folder(folder)
    if not notes.is_dir():
        return
    for note in sorted(notes.glob(f"*{_NOTE}")):
        people = _read(note)
        if people is not None:
            _write(note.with_suffix(_ANSWER), forget(people))
        note.unlink(missing_ok=True)


class RequestWatch:
    """A thread that looks for notes while a job runs.

    Args:
        folder: The memory's.
        forget: Does what notes ask for.
    """

    def __init__(self, folder: Path, forget: Forget) -> None:
        self._folder = folder
        self._forget = forget
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lethe-memory-requests", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, once a forget that has begun is done."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_WATCH_S):
            try:
                answer_requests(self._folder, self._forget)
            except (VaultError, OSError) as err:
                _logger.warning("a forget that was asked for failed and is tried again error=%s", err)


def _write(path: Path, value: object) -> None:
    """A whole file or none, for the user alone."""
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:  # noqa: PTH123
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as err:
        raise VaultError(f"{path.parent}: a note to the running job cannot be left ({err.strerror})") from err


def _read(note: Path) -> frozenset[bytes] | None:
    """Whom a note is about; None where it is no note."""
    try:
        people = frozenset(bytes.fromhex(text) for text in json.loads(note.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return people if all(len(who) == 16 for who in people) else None
