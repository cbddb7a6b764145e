"""A memory in a temporary folder, a clock that obeys, and faces of people who do not exist."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.memory import FaceMemory, MemorySettings
from shared.arrays import Embedding

DAY_S = 86400.0


def face(person: int, look: int = 0, *, spread: float = 0.5) -> Embedding:
    """Embedding of a made-up person; looks of one have a cosine of about 0.8, those of two of about 0."""
    centre = np.random.default_rng(1000 + person).normal(size=192)
    noise = np.random.default_rng((person, look)).normal(size=192)
    both = centre / np.linalg.norm(centre) + (spread * noise / np.linalg.norm(noise) if look else 0)
    return np.asarray(both / np.linalg.norm(both), np.float32)


class FakeClock:
    """Wall clock and monotonic clock of one machine."""

    def __init__(self) -> None:
        self.wall_s = 1_800_000_000.0
        self.monotonic_s = 50.0

    def pass_s(self, span_s: float) -> None:
        """Let time pass, in steps that the guard of the clock believes."""
        self.wall_s += span_s
        self.monotonic_s += span_s


class Home:
    """Opens the memory of one folder again and again."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.clock = FakeClock()
        self.notes: list[str] = []
        self.folder = folder / "memory"
        self._stack = stack
        self._memory: FaceMemory | None = None

    def settings(self, **changes: Any) -> MemorySettings:
        """Settings of this home, changed."""
        return replace(MemorySettings(folder=self.folder), **changes)

    def open(self, **changes: Any) -> FaceMemory:
        """The memory as a job opens it; one that is open is closed before."""
        self.close()
        self._memory = FaceMemory.open(
            self.settings(**changes),
            notify=self.notes.append,
            now_s=lambda: self.clock.wall_s,
            monotonic_s=lambda: self.clock.monotonic_s,
        )
        self._stack.callback(self._memory.close)
        return self._memory

    def close(self) -> None:
        """Close the memory."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def bytes_on_disk(self) -> bytes:
        """Every byte of every file."""
        files = sorted(path for path in self.folder.parent.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture
def make_home(tmp_path: Path) -> "Callable[[str], Home]":
    """Makes homes of several machines."""
    with ExitStack() as stack:
        yield lambda name: Home(tmp_path / name, stack)


@pytest.fixture
def home(make_home: "Callable[[str], Home]") -> Home:
    """One machine's home."""
    return make_home("home")
