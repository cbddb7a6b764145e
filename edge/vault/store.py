"""The vault: sealed records of people, and the promise that a forgotten one cannot be read again by anybody.

A folder holds::

    vault          format, id, and where the root lies
    keys-N.tab     the key table, see `edge.vault.keytable`
    data.mdb       sealed records, tombstones, unfinished forgets (LMDB)
    tombstones     the tombstones again, only ever appended to
    lock           held by the one process that may write
    ballast        space kept for the day when the disk is full

and beside it ``NAME.root/`` holds the root, so that a copy of the folder alone opens nothing.

To forget: note tombstones and intent; change the epoch to a table without the keys of those people; when the
old root is destroyed the forget is final and may be acknowledged; then remove what nobody can read any more.
Opening completes a forget that was interrupted.
"""

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from edge.vault import crypto, envelope, filesystem, verify
from edge.vault.database import Database, DiskFullError, Writing
from edge.vault.decisions import WriteDecision
from edge.vault.disk import Disk, RealDisk
from edge.vault.envelope import Kind
from edge.vault.filesystem import Ballast, Lock
from edge.vault.kek import KeyringKey, KeySource
from edge.vault.keytable import ID_BYTES, STORE_OWNER, KeyTable, PersonId
from edge.vault.making import make_vault, read_header, root_store
from edge.vault.roots import (
    RootKind,
    SealedRoot,
    Wrapping,
    is_destroyed,
    parse_slot,
    root_folder,
)
from edge.vault.tombstones import Tombstone, TombstoneLog
from edge.vault.values import ForgetReceipt, Item, VaultStatus
from edge.vault.verify import Reach, VerifyReport
from shared.errors import (
    PolicyError,
    VaultError,
    VaultIntegrityError,
    VaultKeyError,
    VaultMissingError,
)

__all__ = [
    "ForgetReceipt",
    "Item",
    "Kind",
    "PersonId",
    "Vault",
    "VaultStatus",
    "VerifyReport",
    "WriteDecision",
]

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Records read in one transaction; records removed in one transaction; touches kept before they are written.
_READ_CHUNK = 512
_DELETE_CHUNK = 256
_PENDING_LIMIT = 512
# A reader that meets a table in the middle of a change looks again.
_RELOAD_TRIES = 6


class Vault:
    """An open vault. All methods may be called from any thread; one process at a time may write."""

    @classmethod
    def open(
        cls,
        folder: Path,
        key: KeySource,
        *,
        writer: bool = True,
        create: bool = True,
        now_s: Callable[[], float] = time.time,
        disk: Disk | None = None,
        root_kind: RootKind | None = None,
    ) -> "Vault":
        """Open the vault of a folder.

        Args:
            folder: Where it lies.
            key: Gives the key above all others.
            writer: May write; only one process at a time. Others read what is committed.
            create: Make a vault where there is none.
            now_s: Wall clock, seconds.
            disk: File operations; the machine's by default.
            root_kind: Where a new vault keeps its root; by default where its key comes from, else in a file.

        Raises:
            VaultMissingError: There is none.
            VaultLockedError: Another process writes to it.
            VaultKeyError: The key does not open it.
            VaultIntegrityError: Something in it was altered, cut or put back from a copy.
            VaultError: The place cannot hold it.
        """
        disk = disk or RealDisk()
        filesystem.forbid_core_dumps()
        exists = (folder / "vault").is_file()
        if not exists and not (writer and create):
            raise VaultMissingError(f"{folder}: there is no face memory here yet")
        with _files(folder), contextlib.ExitStack() as undo:
            filesystem.require_local(folder)
            lock = None
            if writer:
                filesystem.prepare_folder(folder)
                lock = Lock(folder / "lock", folder)
                undo.callback(lock.release)
            if not (folder / "vault").is_file():
                kind = root_kind or (RootKind.KEYRING if isinstance(key, KeyringKey) else RootKind.FILE)
                make_vault(folder, key, kind, disk)
            vault = cls(folder, key, disk=disk, lock=lock, now_s=now_s)
            undo.callback(vault._release)
            vault._start()
            undo.pop_all()
        return vault

    def __init__(
        self, folder: Path, key: KeySource, *, disk: Disk, lock: Lock | None, now_s: Callable[[], float]
    ) -> None:
        self._folder, self._key, self._disk, self._lock, self._now_s = folder, key, disk, lock, now_s
        kind, self._store_id = read_header(folder, disk)
        self._roots = root_store(kind, folder, self._store_id, disk)
        # Guards the table, what is pending, and the order of writes.
        self._guard = threading.RLock()
        self._closed = False
        self._pending: dict[bytes, Item] = {}
        self._owed: dict[bytes, Tombstone] = {}
        self._issued: set[PersonId] = set()
        self._tidied = False
        self._ballast = Ballast(folder / "ballast")
        self._table: KeyTable | None = None
        self._database: Database | None = None

    def __enter__(self) -> "Vault":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._folder

    def status(self) -> VaultStatus:
        """Figures for people and for monitors."""
        with self._reading():
            records = {kind.name.lower(): self._db.count(kind) for kind in Kind}
            protection = self._roots.protection()
            return VaultStatus(
                folder=self._folder,
                people=records["person"],
                records=records,
                keys=len(self._keys) - 1,
                bytes_on_disk=sum(
                    filesystem.folder_bytes(folder) for folder in (self._folder, root_folder(self._folder))
                ),
                level=protection.level,
                level_reason=protection.reason,
                generation=self._keys.generation,
                key_source=self._key.name,
                cipher=crypto.preferred_algorithm().name,
                readers=self._db.readers(),
                tombstones=len(self._db.tombstones().keys() | self._owed.keys()),
                pending=len(self._pending),
                writer=self._lock is not None,
            )

    def new_owner(self, person: PersonId | None = None) -> PersonId:
        """A person that records can belong to, known to the key table when this returns.

        Args:
            person: An id from elsewhere, for an import; random by default.

        Raises:
            PolicyError: That person was forgotten here.
        """
        return self.new_owners(1, [person] if person is not None else None)[0]

    def new_owners(self, count: int, people: Sequence[PersonId] | None = None) -> list[PersonId]:
        """Several people at once, with one durable write; see `new_owner`."""
        with self._writing():
            if people is None:
                ids = [crypto.random_bytes(ID_BYTES) for _ in range(count)]
            else:
                ids = [_checked_id(person) for person in people]
                forgotten = self.tombstones()
                if any(self.tombstone_of(person) in forgotten for person in ids):
                    raise PolicyError("this person was forgotten here and does not come back with an import")
            self._keys.add(ids)
            self._issued |= set(ids)
            self._learn_owners(ids)
            return ids

    def owners(self) -> list[PersonId]:
        """All people that have a key."""
        with self._reading():
            return [person for person in self._keys if person != STORE_OWNER]

    def put(
        self,
        decision: WriteDecision,
        kind: Kind,
        record_id: bytes,
        owners: Sequence[PersonId],
        payload: bytes,
        *,
        durable: bool = True,
    ) -> None:
        """Write or replace a record.

        Args:
            decision: The policy's permission.
            kind: What the record is about.
            record_id: What the caller calls it, up to 1024 bytes.
            owners: Whose it is, none for records of the vault itself.
            payload: What it holds.
            durable: On the disk when this returns; else with the next durable write, tend or close.

        Raises:
            PolicyError: The decision does not allow it, or not any more.
            VaultMissingError: An owner is unknown or forgotten.
            VaultError: The disk is full.
        """
        self.put_many(decision, [Item(kind, record_id, owners, payload)], durable=durable)

    def put_many(
        self,
        decision: WriteDecision | Sequence[WriteDecision],
        items: Sequence[Item],
        *,
        durable: bool = True,
    ) -> None:
        """Write records in one transaction: all or none. See `put`.

        Args:
            decision: One for all, or one for each.
            items: The records.
            durable: As for `put`.
        """
        decisions = [decision] if isinstance(decision, WriteDecision) else list(decision)
        if not isinstance(decision, WriteDecision) and len(decisions) != len(items):
            raise PolicyError("not remembered: each record needs a decision")
        now_s = self._now_s()
        for each in decisions:
            each.require(now_s)
        with self._writing():
            for item in items:
                self._deks_of(item.owners)
            fresh = {self._key_of(item.kind, item.record_id): item for item in items}
            if durable:
                self._commit(self._pending | fresh)
                self._pending = {}
            else:
                self._pending |= fresh
                if len(self._pending) > _PENDING_LIMIT:
                    self.flush()

    def flush(self) -> None:
        """Write what was put without ``durable``."""
        with self._writing():
            if self._pending:
                self._commit(self._pending)
                self._pending = {}

    def get(self, kind: Kind, record_id: bytes) -> bytes:
        """The payload of a record.

        Raises:
            VaultMissingError: There is none, or its owner was forgotten.
            VaultIntegrityError: It was altered.
        """
        with self._reading():
            key = self._key_of(kind, record_id)
            if key in self._pending:
                return self._pending[key].payload
            blob = self._db.get(key)
            opened = None if blob is None else self._unsealed(key, blob)
            if opened is None and blob is not None and self._refresh(force=True):
                opened = self._unsealed(key, blob)
            if opened is None:
                raise VaultMissingError("there is no such record in the face memory")
            return opened[2]

    def iterate(
        self, kind: Kind, *, on_damage: Callable[[VaultIntegrityError], None] | None = None
    ) -> Iterator[tuple[bytes, list[PersonId], bytes]]:
        """All records of a kind: record id, owners, payload.

        Args:
            kind: Which ones.
            on_damage: Called for a record that was altered, which is then left out; by default it is raised.
        """
        if self._lock is not None and self._pending:
            self.flush()
        after: bytes | None = b""
        while after is not None:
            with self._reading():
                chunk, after = self._read_chunk(kind, after, on_damage)
            yield from chunk

    def delete(self, kind: Kind, record_id: bytes) -> bool:
        """Remove a record; whether there was one.

        Its owner's key lives on, so this is housekeeping and no forget.
        """
        with self._writing():
            key = self._key_of(kind, record_id)
            waiting = self._pending.pop(key, None) is not None
            with self._db.writing() as writing:
                return writing.delete(key) or waiting

    def forget(self, owners: Collection[PersonId]) -> ForgetReceipt:
        """Destroy the keys of people; final, for every copy of the folder, when this returns.

        Records of several owners die with any of them. Whoever holds the plaintext in memory, an index or a
        cache, drops it before calling this.

        Raises:
            VaultError: The root could not be replaced. Nothing is acknowledged; open the vault again.
        """
        with self._writing():
            return self._forget(list(dict.fromkeys(map(_checked_id, owners))))

    def forget_all(self, *, keep: Collection[PersonId] = ()) -> ForgetReceipt:
        """Forget everybody, but for ``keep`` (people known by a rule that they asked for themselves)."""
        with self._writing():
            return self._forget([person for person in self.owners() if person not in set(keep)])

    def rekey(self, new_key: KeySource) -> None:
        """Put another key above the root, under a new root; the old key opens nothing after this."""
        with self._writing():
            kdf, kek = new_key.fresh(reuse=False)
            self._keys.change_epoch(wrapping=Wrapping(kdf, kek))
            new_key.confirm(kek)
            self._key = new_key
            self._keys.scrub()
            logger.info("face memory rekeyed generation=%d key=%s", self._keys.generation, new_key.name)

    def tombstones(self) -> set[bytes]:
        """Keyed hashes of everybody forgotten, see `tombstone_of`."""
        with self._reading():
            return set(self._db.tombstones()) | set(self._owed)

    def tombstone_of(self, person: PersonId) -> bytes:
        """The keyed hash that stands for a person: HMAC under ``secret("sync")``."""
        with self._reading():
            return crypto.keyed_hash(self._sync_key, person)

    def is_forgotten(self, person: PersonId) -> bool:
        """Whether a person was forgotten here."""
        return self.tombstone_of(person) in self.tombstones()

    def secret(self, label: str) -> bytes:
        """A key of 32 bytes for one purpose; the same for the whole life of the vault."""
        with self._reading():
            return bytes(self._keys.derive(label))

    def verify_forget(self, *, also: Sequence[Path] = ()) -> VerifyReport:
        """Search every byte of the folder, and of copies of it, for what a key within reach could open.

        Args:
            also: Folders with copies, for example backups.
        """
        with self._reading():
            return verify.search(self._reach(), [self._folder, root_folder(self._folder), *also])

    def maintenance(self) -> None:
        """What is due now and then: pending records, dead readers, ballast; the first time also leftovers."""
        with self._writing():
            self.flush()
            self._db.tend()
            if self._owed:
                self._note(self._owed)
                self._owed = {}
            if not self._tidied:
                self._remove_orphans()
                self._drop_unused_keys()
                self._tidied = True
            self._ballast.load()

    def close(self) -> None:
        """Write what is pending, wipe the keys, let the next process write. Closing twice is closing once."""
        with self._guard:
            if self._closed:
                return
            try:
                if self._lock is not None and self._pending:
                    self.flush()
            finally:
                self._release()

    @property
    def _keys(self) -> KeyTable:
        self._require_open()
        assert self._table is not None
        return self._table

    @property
    def _db(self) -> Database:
        self._require_open()
        assert self._database is not None
        return self._database

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._guard, _files(self._folder):
            self._require_open()
            self._refresh()
            yield

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        if self._lock is None:
            raise VaultError(f"{self._folder}: the face memory was opened for reading only")
        with self._guard, _files(self._folder):
            self._require_open()
            yield

    def _require_open(self) -> None:
        if self._closed:
            raise VaultError(f"{self._folder}: the face memory is closed")

    def _start(self) -> None:
        """Unlock; a writer also completes whatever was interrupted."""
        self._adopt_table(self._unlocked(self._roots.read()))
        if self._lock is not None:
            self._destroy_other_root()
            self._key.confirm(self._keys.wrapping.kek)
        self._database = Database(self._folder, writer=self._lock is not None, store_id=self._store_id)
        if self._lock is not None:
            self._log = TombstoneLog(self._folder / "tombstones", self._disk, self._sync_key)
            self._merge_tombstones()
            self._redo()
            self._ballast.load()
        logger.info(
            "face memory open people=%d generation=%d writer=%s",
            len(self._keys) - 1,
            self._keys.generation,
            self._lock is not None,
        )

    def _release(self) -> None:
        if self._table is not None:
            self._table.forget_all_keys()
            for key in (self._name_key, self._sync_key, self._owner_key):
                crypto.wipe(key)
        if self._database is not None:
            self._database.close()
        self._pending = {}
        self._closed = True
        if self._lock is not None:
            self._lock.release()

    def _unlocked(self, slots: tuple[bytes, bytes]) -> KeyTable:
        """The table of the newest root that opens."""
        whole = [sealed for sealed in map(parse_slot, slots) if sealed is not None]
        own = [sealed for sealed in whole if sealed.store_id == self._store_id]
        if not own:
            raise VaultIntegrityError(
                f"{self._folder}: the root of this face memory is missing or damaged: nothing can be read "
                "any more; remove the folder to start anew"
            )
        damage: VaultIntegrityError | None = None
        for sealed in sorted(own, key=lambda sealed: sealed.generation, reverse=True):
            kek = self._kek_of(sealed)
            if kek is None:
                continue
            try:
                table = KeyTable.load(self._folder, self._disk, self._roots, sealed, kek)
            except VaultIntegrityError as err:
                damage = damage or err
                continue
            self._slots = slots
            return table
        raise damage or VaultKeyError(f"{self._folder}: the {self._key.name} does not open this face memory")

    def _kek_of(self, sealed: SealedRoot) -> bytearray | None:
        if self._table is not None and sealed.fits(self._table.wrapping.kek):
            return self._table.wrapping.kek
        return next((key for key in self._key.keys(sealed.kdf) if sealed.fits(key)), None)

    def _adopt_table(self, table: KeyTable) -> None:
        self._table = table
        self._name_key, self._sync_key = table.derive("index"), table.derive("sync")
        self._owner_key = table.derive("owner")
        self._owner_by_token: dict[bytes, PersonId] = {}
        self._learn_owners(list(table))

    def _learn_owners(self, people: Collection[PersonId]) -> None:
        self._owner_by_token |= zip(self._tokens(people), people, strict=True)

    def _tokens(self, people: Collection[PersonId]) -> list[bytes]:
        """Blind names of people, in their order."""
        joined = crypto.blind_ids(self._owner_key, b"".join(people))
        return [joined[at : at + ID_BYTES] for at in range(0, len(joined), ID_BYTES)]

    def _refresh(self, *, force: bool = False) -> bool:
        """Let a reader see what the writer did to the keys; whether it looked."""
        if self._lock is not None or self._closed or self._table is None:
            return False
        for attempt in range(_RELOAD_TRIES):
            slots = self._roots.read()
            if slots == self._slots and not force:
                return False
            try:
                table = self._unlocked(slots)
            except VaultIntegrityError:
                if attempt == _RELOAD_TRIES - 1:
                    raise
                time.sleep(0.002 * 2**attempt)
                continue
            old = self._table
            self._adopt_table(table)
            old.forget_all_keys()
            return True
        return False

    def _destroy_other_root(self) -> None:
        """A root that an interrupted change left behind, whole or in parts, and its table."""
        other = 1 - self._keys.slot
        if not is_destroyed(self._slots[other]):
            self._roots.destroy(other)
            self._keys.mark_all_idle()
        self._keys.scrub()

    def _merge_tombstones(self) -> None:
        """Bring both lists of tombstones together; refuse a root that is older than they are."""
        noted = {name: Tombstone.unpacked(value) for name, value in self._db.tombstones().items()}
        logged = self._log.read()
        intents = self._db.intents()
        newest = max((t.generation for t in (*noted.values(), *logged.values())), default=0)
        if newest > self._keys.generation + bool(intents):
            raise VaultIntegrityError(
                f"{self._folder}: its root is older than its list of people forgotten: an old copy was put "
                "back; remove the folder and its root to start anew"
            )
        self._log_tombstones({name: t for name, t in noted.items() if name not in logged})
        unknown = {name: t for name, t in logged.items() if name not in noted}
        if unknown:
            self._with_reserve(lambda: self._note_in_database(unknown))

    def _redo(self) -> None:
        """Complete forgets that were interrupted."""
        intents = self._db.intents()
        if not intents:
            return
        key = self._keys.derive("intent")
        people: list[PersonId] = []
        for name, blob in intents.items():
            joined = bytes(crypto.unseal(key, blob, self._store_id + name, "the note of a forget"))
            people += [joined[at : at + ID_BYTES] for at in range(0, len(joined), ID_BYTES)]
        known = [person for person in people if person in self._keys]
        if known:
            self._keys.change_epoch(remove=known)
        self._keys.mark_all_idle()
        self._with_reserve(lambda: self._complete(people, list(intents)))
        logger.info("interrupted forget completed people=%d", len(people))

    def _forget(self, people: list[PersonId]) -> ForgetReceipt:
        started = time.perf_counter()
        for key in [key for key, item in self._pending.items() if set(item.owners) & set(people)]:
            del self._pending[key]
        known = [person for person in people if person in self._keys]
        intent = self._note_intent(people, Tombstone.made(self._keys.generation + bool(known), self._now_s()))
        if known:
            # Needs space only where the file system copies what is overwritten.
            self._with_reserve(lambda: self._keys.change_epoch(remove=known))
        seconds = time.perf_counter() - started
        # The old root is gone: whatever fails from here on, nobody reads these people again.
        try:
            records = self._with_reserve(lambda: self._complete(people, [intent] if intent else []))
        except VaultError:
            logger.warning("forgotten; removing the sealed remains failed, the next start tries again")
            records, self._tidied = 0, False
        logger.info(
            "forgotten people=%d records=%d generation=%d", len(known), records, self._keys.generation
        )
        return ForgetReceipt(len(known), records, self._keys.generation, seconds, noted=not self._owed)

    def _note_intent(self, people: list[PersonId], tombstone: Tombstone) -> bytes | None:
        """Tombstones and intent, durably; None where even the ballast leaves no room for them."""
        names = [crypto.keyed_hash(self._sync_key, person) for person in people]
        tombstones = dict.fromkeys(names, tombstone)
        key = self._keys.derive("intent")

        def note() -> bytes:
            with self._db.writing() as writing:
                name = writing.next_intent()
                writing.add_intent(name, crypto.seal(key, b"".join(people), self._store_id + name))
                for hashed in names:
                    writing.add_tombstone(hashed, tombstone.packed())
            return name

        try:
            name = self._with_reserve(note)
        except DiskFullError:
            logger.warning("the disk is full: forgetting without a note of it")
            self._owed |= tombstones
            return None
        self._log_tombstones(tombstones)
        return name

    def _log_tombstones(self, tombstones: dict[bytes, Tombstone]) -> None:
        """Into the file; on a full disk later."""
        try:
            self._with_reserve(lambda: self._log.append_all(tombstones))
        except DiskFullError:
            self._owed |= tombstones

    def _with_reserve(self, action: Callable[[], T]) -> T:
        """Do something, if need be in the space that the ballast held."""
        try:
            with _files(self._folder):
                return action()
        except DiskFullError:
            self._ballast.drop()
        with _files(self._folder):
            return action()

    def _complete(self, people: list[PersonId], intents: list[bytes]) -> int:
        """Remove what nobody can read any more, then the note of it; how many records that were."""
        tokens = self._tokens(people)
        for token in tokens:
            self._owner_by_token.pop(token, None)
        self._issued -= set(people)
        self._keys.scrub()
        removed, waiting = 0, list(tokens)
        while True:
            with self._db.writing() as writing:
                removed += _remove_some(writing, waiting)
                if not waiting:
                    for name in intents:
                        writing.drop_intent(name)
                    return removed

    def _reach(self) -> Reach:
        """All keys that can be had now, and what to expect of them."""
        keys = self._keys
        forgotten = self.tombstones()
        labels = ("index", "sync", "owner", "intent")
        kek = bytes(keys.wrapping.kek)
        return Reach(
            store_id=self._store_id,
            generation=keys.generation,
            kek=kek,
            deks={token: dek for token, person in self._owner_by_token.items() if (dek := keys.find(person))},
            store_dek=self._deks_of([])[0],
            others=[*map(keys.derive, labels), *keys.own_secrets()],
            plain={
                "a secret of the root": bytes(keys.own_secrets()[0]),
                "the store secret": bytes(keys.own_secrets()[1]),
            },
            live=self._db.count(),
            returned=sum(self.tombstone_of(person) in forgotten for person in self.owners()),
        )

    def _note(self, tombstones: dict[bytes, Tombstone]) -> None:
        self._note_in_database(tombstones)
        self._log.append_all(tombstones)

    def _note_in_database(self, tombstones: dict[bytes, Tombstone]) -> None:
        with self._db.writing() as writing:
            for name, tombstone in tombstones.items():
                writing.add_tombstone(name, tombstone.packed())

    def _remove_orphans(self) -> None:
        """Records whose owner has no key: remains of a forget, or of an old copy put back."""
        orphans: list[bytes] = []

        def use(key: bytes, value: memoryview) -> None:
            with contextlib.suppress(VaultIntegrityError):
                if any(owner not in self._owner_by_token for owner in envelope.parse_head(value).owners):
                    orphans.append(key)

        after: bytes | None = b""
        while after is not None:
            after = self._db.visit(None, after, _READ_CHUNK, use)
        for start in range(0, len(orphans), _DELETE_CHUNK):
            with self._db.writing() as writing:
                for key in orphans[start : start + _DELETE_CHUNK]:
                    writing.delete(key)

    def _drop_unused_keys(self) -> None:
        """Keys of people who have no record: a crash came between the two."""
        with self._db.writing() as writing:
            unused = [
                person
                for token, person in self._owner_by_token.items()
                if person != STORE_OWNER and person not in self._issued and not writing.keys_of(token, 1)
            ]
        if unused:
            self._keys.change_epoch(remove=unused)
            self._complete(unused, [])

    def _commit(self, items: dict[bytes, Item]) -> None:
        with self._db.writing() as writing:
            for key, item in items.items():
                deks = self._deks_of(item.owners)
                name = key[1:]
                writing.put(
                    key,
                    envelope.seal_record(
                        envelope.record_key(deks, name),
                        self._store_id,
                        item.kind,
                        name,
                        self._tokens(sorted(set(item.owners))),
                        item.record_id,
                        item.payload,
                        writing.next_sequence(),
                    ),
                )

    def _key_of(self, kind: Kind, record_id: bytes) -> bytes:
        name = crypto.blind(self._name_key, bytes([kind]) + record_id)
        return bytes([kind]) + name

    def _deks_of(self, owners: Sequence[PersonId]) -> list[bytearray]:
        deks = []
        for person in sorted(set(owners)) or [STORE_OWNER]:
            dek = self._keys.find(person)
            if dek is None:
                raise VaultMissingError("not remembered: an owner of this record is unknown or was forgotten")
            deks.append(dek)
        return deks

    def _unsealed(self, key: bytes, blob: bytes | memoryview) -> tuple[bytes, list[PersonId], bytes] | None:
        """A record opened; None where an owner has no key."""
        head = envelope.parse_head(blob)
        if head.kind != key[0] or head.name != key[1:]:
            raise VaultIntegrityError("a record of the face memory lies where another one belongs")
        owners = []
        for token in head.owners:
            person = self._owner_by_token.get(token)
            if person is None:
                return None
            owners.append(person)
        record_key = envelope.record_key(self._deks_of(owners), head.name)
        record_id, payload = envelope.unseal_record(record_key, self._store_id, blob, head)
        return record_id, owners, payload

    def _read_chunk(
        self, kind: Kind, after: bytes, on_damage: Callable[[VaultIntegrityError], None] | None
    ) -> tuple[list[tuple[bytes, list[PersonId], bytes]], bytes | None]:
        chunk: list[tuple[bytes, list[PersonId], bytes]] = []
        strangers: list[bytes] = []

        def use(key: bytes, value: bytes | memoryview) -> None:
            try:
                opened = self._unsealed(key, value)
            except VaultIntegrityError as err:
                if on_damage is None:
                    raise
                on_damage(err)
                return
            if opened is None:
                strangers.append(key)
            else:
                chunk.append(opened)

        last = self._db.visit(kind, after, _READ_CHUNK, use)
        if strangers and self._refresh(force=True):
            again, strangers = strangers, []
            for key in again:
                blob = self._db.get(key)
                if blob is not None:
                    use(key, blob)
        return chunk, last


def _remove_some(writing: Writing, tokens: list[bytes]) -> int:
    """Remove records of the owners at the end of ``tokens``, a bounded number; owners done are taken off."""
    removed = 0
    while tokens and removed < _DELETE_CHUNK:
        keys = writing.keys_of(tokens[-1], _DELETE_CHUNK)
        removed += sum(writing.delete(key) for key in keys)
        if len(keys) < _DELETE_CHUNK:
            tokens.pop()
    return removed


def _checked_id(person: PersonId) -> PersonId:
    if len(person) != ID_BYTES or person == STORE_OWNER:
        raise VaultError(f"this is no id of a person: {ID_BYTES} random bytes are")
    return bytes(person)


@contextlib.contextmanager
def _files(folder: Path) -> Iterator[None]:
    """Turn errors of files into ours."""
    try:
        yield
    except OSError as err:
        where = err.filename or folder
        if err.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(f"{where}: the disk is full; free some space and try again") from err
        raise VaultError(f"{where}: the face memory could not be used ({err.strerror or err})") from err
