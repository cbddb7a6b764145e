"""Who was forgotten, as keyed hashes: no name, no face, nothing without the vault's own key.

A tombstone is ``HMAC(K_sync, person id) | generation | day``. It lies in LMDB and in a small file that is
only ever appended to, so that putting back an old copy of the records does not bring anybody back. Each line
of the file carries a short authenticator: a torn or foreign line is no tombstone.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.vault import crypto
from edge.vault.disk import Disk

HASH_BYTES = 32
_VALUE = struct.Struct(">QQ")
_MARK_BYTES = 16
_LINE_BYTES = HASH_BYTES + _VALUE.size + _MARK_BYTES
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Tombstone:
    """When somebody was forgotten.

    Attributes:
        generation: The epoch that came with it.
        day: Days since 1970, coarse on purpose.
    """

    generation: int
    day: int

    @classmethod
    def made(cls, generation: int, now_s: float) -> "Tombstone":
        """For a forget at this moment."""
        return cls(generation, max(int(now_s // _DAY_S), 0))

    def packed(self) -> bytes:
        """Fixed-size bytes."""
        return _VALUE.pack(self.generation, self.day)

    @classmethod
    def unpacked(cls, data: bytes) -> "Tombstone":
        """The reverse of `packed`."""
        return cls(*_VALUE.unpack(data))


class TombstoneLog:
    """The file."""

    def __init__(self, path: Path, disk: Disk, key: crypto.Key) -> None:
        self._path, self._disk, self._key = path, disk, key
        self._size = 0

    def read(self) -> dict[bytes, Tombstone]:
        """All whole lines, by hash."""
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            return {}
        lines = [data[at : at + _LINE_BYTES] for at in range(0, len(data), _LINE_BYTES)]
        whole = [line for line in lines if line[-_MARK_BYTES:] == self._mark(line[:-_MARK_BYTES])]
        # A torn line at the end is written over; a damaged one in the middle stays where it is.
        torn = bool(lines) and (not whole or lines[-1] != whole[-1])
        self._size = (len(lines) - torn) * _LINE_BYTES
        return {line[:HASH_BYTES]: Tombstone.unpacked(line[HASH_BYTES:-_MARK_BYTES]) for line in whole}

    def append(self, hashes: Iterable[bytes], tombstone: Tombstone) -> None:
        """Add people, durably."""
        self.append_all(dict.fromkeys(hashes, tombstone))

    def append_all(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Add tombstones of several moments, durably."""
        bodies = [name + tombstone.packed() for name, tombstone in tombstones.items()]
        if not bodies:
            return
        data = b"".join(body + self._mark(body) for body in bodies)
        self._disk.write(self._path, self._size, data)
        self._disk.sync(self._path)
        self._size += len(data)

    def _mark(self, body: bytes) -> bytes:
        return crypto.keyed_hash(self._key, b"line" + body)[:_MARK_BYTES]
