"""The only code that talks to LMDB: sealed records, whose they are, tombstones and unfinished forgets.

Names of tables are neutral, keys are blind, values sealed. Settings follow from measurements: synchronous
commits; no write map (a full disk kills the process with one); no spare transactions; no read transaction
that outlives a call, because an old reader keeps dead pages from being used again.

==  ============================================  ==================
r   kind (1) + blind name (16)                    sealed record
o   blind owner (16), one entry for each record   kind + blind name
t   keyed hash of a forgotten person (32)         generation, day
x   number of an unfinished forget (8)            sealed list of ids
m   ``v`` the vault's id, ``s`` last sequence     bytes
==  ============================================  ==================
"""

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb

from edge.vault import envelope
from edge.vault.envelope import Kind
from edge.vault.filesystem import PRIVATE_FILE
from shared.errors import VaultError, VaultIntegrityError, VaultLockedError, VaultMissingError

# Address space, not disk: large enough that nobody ever has to resize it with readers around.
MAP_BYTES = 8 << 30 if sys.maxsize > 1 << 32 else 512 << 20
MAX_READERS = 126
_OPEN_TRIES = 5
_TABLES = ("r", "o", "t", "x", "m")
_STORE_ID, _SEQUENCE = b"v", b"s"


class DiskFullError(VaultError):
    """LMDB could not write its pages."""


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn LMDB's errors into ours."""
    try:
        yield
    except lmdb.MapFullError as err:
        raise DiskFullError(f"{folder}: the face memory has no room left: forget somebody") from err
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError) as err:
        raise VaultIntegrityError(f"{folder}: the records of the face memory are damaged") from err
    except lmdb.Error as err:
        text = str(err).splitlines()[0] if str(err) else type(err).__name__
        # A full disk comes as an input/output error from a commit.
        if "No space" in text or "Input/output" in text:
            raise DiskFullError(f"{folder}: the face memory could not be written: is the disk full?") from err
        raise VaultError(f"{folder}: the face memory could not be used: {text}") from err


class Writing:
    """One write transaction: all of it happens, or nothing."""

    def __init__(self, transaction: Any, tables: dict[str, Any]) -> None:
        self._transaction, self._tables = transaction, tables

    def put(self, key: bytes, value: bytes) -> None:
        """Write a record, and note whose it is."""
        old = self._transaction.get(key, db=self._tables["r"])
        owners = envelope.parse_head(value).owners
        self._disown(key, old, kept=owners)
        self._transaction.put(key, value, db=self._tables["r"])
        for owner in owners:
            self._transaction.put(owner, key, db=self._tables["o"], dupdata=False)

    def delete(self, key: bytes) -> bool:
        """Remove a record; whether there was one."""
        old = self._transaction.pop(key, db=self._tables["r"])
        self._disown(key, old)
        return old is not None

    def keys_of(self, owner: bytes, limit: int) -> list[bytes]:
        """Keys of up to ``limit`` records of an owner."""
        keys = []
        with self._transaction.cursor(self._tables["o"]) as cursor:
            if cursor.set_key(owner):
                for value in cursor.iternext_dup():
                    keys.append(bytes(value))
                    if len(keys) == limit:
                        break
        return keys

    def next_sequence(self) -> int:
        """A number that no other write has."""
        last = self._transaction.get(_SEQUENCE, db=self._tables["m"]) or bytes(8)
        number = int.from_bytes(last, "big") + 1
        self._transaction.put(_SEQUENCE, number.to_bytes(8, "big"), db=self._tables["m"])
        return number

    def add_tombstone(self, name: bytes, value: bytes) -> None:
        """Note that somebody was forgotten; an earlier note stays."""
        self._transaction.put(name, value, db=self._tables["t"], overwrite=False)

    def next_intent(self) -> bytes:
        """A name for the note of a forget."""
        with self._transaction.cursor(self._tables["x"]) as cursor:
            last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
        return (last + 1).to_bytes(8, "big")

    def add_intent(self, name: bytes, value: bytes) -> None:
        """Note a forget that is about to happen."""
        self._transaction.put(name, value, db=self._tables["x"])

    def drop_intent(self, name: bytes) -> None:
        """The forget is complete."""
        self._transaction.delete(name, db=self._tables["x"])

    def _disown(self, key: bytes, old: bytes | None, kept: tuple[bytes, ...] = ()) -> None:
        if old is None:
            return
        try:
            owners = envelope.parse_head(old).owners
        except VaultIntegrityError:
            return
        for owner in owners:
            if owner not in kept:
                self._transaction.delete(owner, key, db=self._tables["o"])


class Database:
    """The records of one vault, opened once for each process."""

    def __init__(self, folder: Path, *, writer: bool, store_id: bytes, create: bool = False) -> None:
        self._folder = folder
        self._env = self._opened(writer)
        try:
            with translated(folder):
                self._check_length(writer)
                self._tables = {name: self._table(name, writer) for name in _TABLES}
                if create:
                    with self.writing() as writing:
                        writing._transaction.put(_STORE_ID, store_id, db=self._tables["m"])
                with self._env.begin(db=self._tables["m"]) as transaction:
                    if transaction.get(_STORE_ID) != store_id:
                        raise VaultIntegrityError(
                            f"{folder}: these records are missing or belong to another face memory; "
                            "put the right ones back, or remove the folder to start anew"
                        )
        except BaseException:
            self._env.close()
            raise

    def close(self) -> None:
        """Let go of the files."""
        self._env.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Writing]:
        """A durable transaction, committed at the end of the block and dropped by an error."""
        with translated(self._folder), self._env.begin(write=True) as transaction:
            yield Writing(transaction, self._tables)

    def get(self, key: bytes) -> bytes | None:
        """A record as it is sealed."""
        with translated(self._folder), self._env.begin(db=self._tables["r"]) as transaction:
            found: bytes | None = transaction.get(key)
        return found

    def visit(
        self, kind: Kind | None, after: bytes, limit: int, use: Callable[[bytes, memoryview], None]
    ) -> bytes | None:
        """Show up to ``limit`` records to ``use`` in one short read transaction.

        Args:
            kind: Of this kind only; None for all.
            after: The key after which to begin; empty to begin at the first.
            limit: How many.
            use: Gets key and sealed record; the latter is valid during the call only.

        Returns:
            The key of the last one; None where there are no more.
        """
        prefix = b"" if kind is None else bytes([kind])
        last, left = None, limit
        with (
            translated(self._folder),
            self._env.begin(db=self._tables["r"], buffers=True) as transaction,
            transaction.cursor() as cursor,
        ):
            found = cursor.set_range(after or prefix) if after or prefix else cursor.first()
            if found and after and bytes(cursor.key()) == after:
                found = cursor.next()
            while found and left:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    return None
                use(key, cursor.value())
                last, left = key, left - 1
                found = cursor.next()
        return last if found else None

    def count(self, kind: Kind | None = None) -> int:
        """Records of a kind, or of all."""
        with translated(self._folder), self._env.begin(db=self._tables["r"], buffers=True) as transaction:
            if kind is None:
                return int(transaction.stat(self._tables["r"])["entries"])
            with transaction.cursor() as cursor:
                if not cursor.set_range(bytes([kind])):
                    return 0
                keys = cursor.iternext(keys=True, values=False)
                return sum(1 for _ in _while_of_kind(keys, kind))

    def tombstones(self) -> dict[bytes, bytes]:
        """All notes of people forgotten."""
        return self._all("t")

    def intents(self) -> dict[bytes, bytes]:
        """Forgets that were begun and not completed."""
        return self._all("x")

    def tend(self) -> int:
        """Free the places of readers that died; how many."""
        with translated(self._folder):
            return int(self._env.reader_check())

    def readers(self) -> int:
        """Processes that hold a place as readers."""
        with translated(self._folder):
            lines = self._env.readers().strip().splitlines()
        return len({line.split()[0] for line in lines[1:] if line.strip()})

    def _opened(self, writer: bool) -> Any:
        """Two processes that open at the same moment can get in each other's way: try again."""
        options: dict[str, Any] = {
            "map_size": MAP_BYTES,
            "mode": PRIVATE_FILE,
            "max_dbs": len(_TABLES),
            "max_readers": MAX_READERS,
            "max_spare_txns": 0,
            "readonly": not writer,
            "create": writer,
        }
        if lmdb.__version__ >= "3" and not (self._folder / "data.mdb").exists():
            options["lib_version"] = 0
        for attempt in range(_OPEN_TRIES):
            try:
                return lmdb.open(str(self._folder), **options)
            except lmdb.Error as err:
                if "already open" in str(err):
                    raise VaultLockedError(
                        f"{self._folder}: this process has the face memory open already; close it first"
                    ) from err
                if "Invalid argument" not in str(err) or attempt == _OPEN_TRIES - 1:
                    with translated(self._folder):
                        raise
                time.sleep(0.01 * 2**attempt * (1 + random.random()))
        raise VaultError(f"{self._folder}: the records of the face memory could not be opened")

    def _table(self, name: str, writer: bool) -> Any:
        try:
            return self._env.open_db(name.encode("ascii"), create=writer, dupsort=name == "o")
        except (lmdb.NotFoundError, lmdb.ReadonlyError) as err:
            raise VaultMissingError(f"{self._folder}: the records of the face memory are missing") from err

    def _check_length(self, writer: bool) -> None:
        """Reading a map beyond the end of its file kills a process: make sure that there is no such part."""
        path = self._folder / "data.mdb"
        wanted = (int(self._env.info()["last_pgno"]) + 1) * self._page_bytes()
        if path.stat().st_size >= wanted:
            return
        if not writer:
            raise VaultIntegrityError(f"{path}: shorter than it says; open it for writing once to mend it")
        # Pages of zeros in place of those cut off: reading one is an error, not a crash.
        with path.open("r+b") as file:
            file.truncate(wanted)

    def _page_bytes(self) -> int:
        return int(self._env.stat()["psize"])

    def _all(self, table: str) -> dict[bytes, bytes]:
        with translated(self._folder), self._env.begin(db=self._tables[table]) as transaction:
            return {bytes(key): bytes(value) for key, value in transaction.cursor()}


def _while_of_kind(keys: Any, kind: Kind) -> Iterator[None]:
    for key in keys:
        if key[0] != kind:
            return
        yield None
