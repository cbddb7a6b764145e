"""Does a forget hold here? Every byte of the real files is searched, every key within reach is tried.

Sealed records are found at any offset, in pages that are in use, freed or half overwritten, and in copies. A
record whose owners all have keys is expected to open: this is the control that shows the search works. One
with an owner who has no key is what a forget leaves behind, and no key that exists may open it.
"""

import contextlib
import mmap
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag

from edge.vault import crypto, envelope
from edge.vault.envelope import Head, Kind
from edge.vault.roots import SLOT_BYTES, SLOT_MAGIC, parse_slot
from shared.errors import VaultIntegrityError

# LMDB holds a lock on this file that a process loses when it closes it, however it opened it.
_LOCKED_NAME = "lock.mdb"
# Some seconds: beyond that, what remains is tried with all keys in part, and with the vault's own in full.
BUDGET_BYTES = 3_000_000_000
_LEAST_COST_BYTES = 2048
_READER = "import pathlib, sys; sys.stdout.buffer.write(pathlib.Path(sys.argv[1]).read_bytes())"


@dataclass(frozen=True, slots=True)
class Reach:
    """All that can be had from a vault now.

    Attributes:
        store_id: The vault.
        generation: Its epoch.
        kek: The key above the root.
        deks: Keys by blind name of the person.
        store_dek: Key of the records that belong to nobody.
        others: Every other key that can be derived.
        plain: Secrets that must not lie in any file as they are, by what they are.
        live: Records in use.
        returned: People who were forgotten and have a key nevertheless.
    """

    store_id: bytes
    generation: int
    kek: bytes
    deks: Mapping[bytes, crypto.Key]
    store_dek: crypto.Key
    others: Sequence[crypto.Key]
    plain: Mapping[str, bytes]
    live: int
    returned: int


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What the search found; `clean` sums it up.

    Attributes:
        files: Files read.
        bytes_read: Bytes read.
        records: Sealed records found, at any offset.
        opened: Different ones that opened because all of their owners are remembered.
        live: Records in use, all of which must be among the opened.
        remains: Different sealed records of people without a key.
        keys_tried: Keys within reach.
        tried_with_all: Remains tried with all of these keys; the others, with the vault's own.
        problems: What should not be, one clause each.
    """

    files: int
    bytes_read: int
    records: int
    opened: int
    live: int
    remains: int
    keys_tried: int
    tried_with_all: int
    problems: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Nothing of anybody forgotten can be read, and the search is known to work."""
        return not self.problems


def search(reach: Reach, folders: Iterable[Path], *, budget_bytes: int = BUDGET_BYTES) -> VerifyReport:
    """Search all files of some folders.

    Args:
        reach: Keys to try.
        folders: Where to search.
        budget_bytes: How much may be decrypted in vain, all together.
    """
    own = [reach.store_dek, reach.kek, *reach.others]
    everybodys = _Ciphers([*reach.deks.values(), *own])
    files = bytes_read = records = 0
    problems: dict[str, None] = {}
    # Old pages and copies hold a record several times.
    opened: set[tuple[int, bytes]] = set()
    remains: dict[bytes, Head] = {}
    for path in _files(folders):
        with _contents(path) as data:
            files, bytes_read = files + 1, bytes_read + len(data)
            for what in _secrets_in(data, path, reach):
                problems[f"{path.name}: {what}"] = None
            for start, head in _records(data):
                records += 1
                blob = bytes(data[start : start + head.size])
                if any(owner not in reach.deks for owner in head.owners):
                    remains[blob] = head
                elif _opens(_Ciphers([_own_key(reach, head)]), reach.store_id, blob, head):
                    opened.add((head.kind, head.name))
    with_all = 0
    for blob, head in remains.items():
        ciphers = _Ciphers(own)
        cost_bytes = max(len(blob), _LEAST_COST_BYTES) * len(everybodys.keys)
        if cost_bytes <= budget_bytes:
            ciphers, with_all, budget_bytes = everybodys, with_all + 1, budget_bytes - cost_bytes
        if any(
            _opens(each, reach.store_id, blob, head) for each in (_Ciphers(_part_keys(reach, head)), ciphers)
        ):
            problems["a record of somebody forgotten opens"] = None
    if len(opened) < reach.live:
        problems[f"the search found {len(opened)} of {reach.live} records in use: it proves nothing"] = None
    if reach.returned:
        problems[f"{reach.returned} people who were forgotten have a key"] = None
    counts = (
        files,
        bytes_read,
        records,
        len(opened),
        reach.live,
        len(remains),
        len(everybodys.keys),
        with_all,
    )
    return VerifyReport(*counts, tuple(problems))


class _Ciphers:
    """Keys, made ready once for trying them on many records."""

    def __init__(self, keys: Sequence[crypto.Key]) -> None:
        self.keys = keys
        self._made: dict[int, list[crypto.AuthenticatedCipher]] = {}

    def of(self, algorithm: int) -> list[crypto.AuthenticatedCipher]:
        """The ciphers of an algorithm byte."""
        if algorithm not in self._made:
            self._made[algorithm] = [crypto.cipher(algorithm, key) for key in self.keys]
        return self._made[algorithm]


def _opens(ciphers: _Ciphers, store_id: bytes, blob: bytes, head: Head) -> bool:
    start = head.aad_bytes
    nonce, body = blob[start : start + crypto.NONCE_BYTES], blob[start + crypto.NONCE_BYTES :]
    aad = store_id + blob[:start]
    for each in ciphers.of(head.algorithm):
        try:
            each.decrypt(nonce, body, aad)
        except InvalidTag:
            continue
        return True
    return False


def _records(data: bytes | mmap.mmap) -> Iterator[tuple[int, Head]]:
    """Everything that has the form of a sealed record, with its offset."""
    at = data.find(envelope.MAGIC)
    while at >= 0:
        with contextlib.suppress(VaultIntegrityError):
            start = bytes(data[at : at + envelope.MAX_HEAD_BYTES])
            head = envelope.parse_head(start, available=len(data) - at)
            if head.kind in list(Kind) and head.algorithm in list(crypto.Algorithm) and head.is_padded:
                yield at, head
        at = data.find(envelope.MAGIC, at + 1)


def _own_key(reach: Reach, head: Head) -> crypto.Key:
    deks = [reach.deks[owner] for owner in head.owners] or [reach.store_dek]
    return envelope.record_key(deks, head.name)


def _part_keys(reach: Reach, head: Head) -> list[crypto.Key]:
    """What can be made of the keys of those owners who still have one."""
    deks = [reach.deks[owner] for owner in head.owners if owner in reach.deks]
    return [envelope.record_key(deks, head.name)] if deks else []


def _secrets_in(data: bytes | mmap.mmap, path: Path, reach: Reach) -> Iterator[str]:
    """Secrets in clear, and roots that should have been overwritten."""
    for what, secret in reach.plain.items():
        if data.find(secret) >= 0:
            yield f"{what} lies there in clear"
    at = data.find(SLOT_MAGIC)
    while at >= 0:
        with contextlib.suppress(VaultIntegrityError):
            sealed = parse_slot(bytes(data[at : at + SLOT_BYTES]))
            if (
                sealed is not None
                and sealed.generation != reach.generation
                and sealed.fits(bytearray(reach.kek))
            ):
                yield f"the root of epoch {sealed.generation} was not overwritten"
        at = data.find(SLOT_MAGIC, at + 1)


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def _contents(path: Path) -> Iterator[bytes | mmap.mmap]:
    if path.name == _LOCKED_NAME:
        yield subprocess.run(
            [sys.executable, "-c", _READER, str(path)], capture_output=True, check=True
        ).stdout
    elif not path.stat().st_size:
        yield b""
    else:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield view
