"""What the tests of the vault share: a permission, a vault with people in it, a disk that loses power."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edge.vault import KeyFile, KeySource, Kind, Passphrase, PersonId, Vault, WriteDecision
from edge.vault.decisions import POLICY_PROOF
from edge.vault.disk import RealDisk

ALLOWED = WriteDecision(
    allowed=True,
    rule_id="test",
    expires_at_s=math.inf,
    reason="allowed",
    usable_until_s=math.inf,
    proof=POLICY_PROOF,
)
DENIED = WriteDecision(
    allowed=False,
    rule_id="default",
    expires_at_s=-math.inf,
    reason="no consent",
    usable_until_s=-math.inf,
)


def key_of(folder: Path) -> KeyFile:
    """The key file beside a vault."""
    return KeyFile(folder.with_name(f"{folder.name}.key"))


def quick(passphrase: str) -> Passphrase:
    """A passphrase at the lowest cost that is accepted."""
    return Passphrase(passphrase, memory_kib=8192, passes=1, lanes=1)


def open_vault(folder: Path, key: KeySource | None = None, **options: object) -> Vault:
    """A vault with its key beside it."""
    return Vault.open(folder, key or key_of(folder), **options)  # type: ignore[arg-type]


def enrol(vault: Vault, payload: bytes) -> PersonId:
    """Somebody with one record."""
    person = vault.new_owner()
    vault.put(ALLOWED, Kind.PERSON, person, [person], payload)
    return person


def payloads(vault: Vault, kind: Kind = Kind.PERSON) -> set[bytes]:
    """Everything that can be read."""
    return {payload for _, _, payload in vault.iterate(kind)}


def copy_vault(folder: Path, to: Path) -> Path:
    """A whole vault, its root and its key, somewhere else."""
    for path in (folder, folder.with_name(f"{folder.name}.root")):
        shutil.copytree(path, to / path.name)
    for path in folder.parent.glob(f"{folder.name}.key*"):
        shutil.copy2(path, to / path.name)
    return to / folder.name


class PowerCut(BaseException):
    """The machine stops: no clean-up code may run as if it had been an error."""


@dataclass
class CutDisk(RealDisk):
    """A disk of a machine that stops at the n-th change.

    Attributes:
        cut_at: Number of the change during which the power goes; -1: never.
        kept: Share of that write which still reaches the medium.
        loses_cache: Writes since the last sync are lost as well.
        changes: Changes so far.
    """

    cut_at: int = -1
    kept: float = 0.0
    loses_cache: bool = False
    changes: int = 0
    _undo: list[tuple[Path, int, bytes]] = field(default_factory=list)

    def write(self, path: Path, offset: int, data: bytes) -> None:
        old = super().read(path, offset, len(data)) if path.exists() else b""
        if self._is_cut():
            self._lose()
            super().write(path, offset, data[: int(len(data) * self.kept)])
            raise PowerCut
        self._undo.append((path, offset, old))
        super().write(path, offset, data)

    def sync(self, path: Path) -> None:
        self._stop_here()
        super().sync(path)
        self._undo = [undo for undo in self._undo if undo[0] != path]

    def allocate(self, path: Path, size: int) -> None:
        self._stop_here()
        super().allocate(path, size)

    def replace(self, path: Path, data: bytes) -> None:
        self._stop_here()
        RealDisk().replace(path, data)

    def remove(self, path: Path) -> None:
        self._stop_here()
        super().remove(path)

    def _is_cut(self) -> bool:
        self.changes += 1
        return self.changes == self.cut_at

    def _stop_here(self) -> None:
        if self._is_cut():
            self._lose()
            raise PowerCut

    def _lose(self) -> None:
        if self.loses_cache:
            for path, offset, old in reversed(self._undo):
                if path.exists():
                    super().write(path, offset, old)


def cuts(changes: int) -> Iterator[CutDisk]:
    """Power cuts at each of so many changes and after them all; torn writes; a cache that is lost or not."""
    for cut_at in range(1, changes + 2):
        for kept in (0.0, 0.1, 0.5, 0.9, 0.999, 1.0):
            yield CutDisk(cut_at=cut_at, kept=kept)
        for kept in (0.0, 0.5):
            yield CutDisk(cut_at=cut_at, kept=kept, loses_cache=True)
