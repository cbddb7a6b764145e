"""The key table: one random data key (DEK) per person, outside of LMDB, sealed under the epoch root.

Nothing ever leaves this table for a place that keeps old pages. The file is allocated once for its capacity,
so that a forget needs no free space, and everything in it exists twice::

    index 0 | index 1 | journal 0 | journal 1 | segment 0 half 0 | segment 0 half 1 | segment 1 half 0 | …

The index of a generation lies in area ``generation % 2`` and is sealed under a key of that generation's root.
It says, for each segment, which half is valid and the key of that half; a segment is sealed under a fresh key
each time it is written. Up to 20 000 people there is one segment, above that 256, so that a forget rewrites a
hundredth of the table or two. New keys are appended to the journal, one small durable write, and move into
their segments when the epoch changes.

An epoch changes in this order, and counts as changed, whatever happens later, when the old slot is destroyed:

1. the segments that change go to their idle halves, the new index to the idle area; sync;
2. the new root goes to the idle slot; sync;
3. the old slot is overwritten; sync;
4. the old index, journal and halves are overwritten (hygiene: nothing opens them any more).
"""

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from edge.vault import crypto
from edge.vault.disk import Disk
from edge.vault.roots import SLOTS, Root, RootStore, SealedRoot, Wrapping, pack_root
from shared.errors import VaultError, VaultIntegrityError

PersonId: TypeAlias = bytes
"""A random 128-bit name, 16 bytes."""

ID_BYTES = 16
STORE_OWNER: PersonId = bytes(ID_BYTES)
"""Owns the records that belong to nobody: rules, audit, settings of the vault."""

JOURNAL_ENTRIES = 256
ONE_LEVEL_LIMIT = 20_000
SEGMENTS_ABOVE = 256
_FIRST_CAPACITY = 1024

_PAGE = 4096
_ENTRY_BYTES = ID_BYTES + crypto.KEY_BYTES
_JOURNAL_STRIDE = 80
_JOURNAL_SEALED = _ENTRY_BYTES + crypto.OVERHEAD_BYTES
_JOURNAL_BYTES = JOURNAL_ENTRIES * _JOURNAL_STRIDE
_DESCRIPTOR = struct.Struct(">32sBI")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things lie in a table's file.

    Attributes:
        segments: How many parts the table has.
        capacity: Keys for which each part has room.
    """

    segments: int
    capacity: int

    def __post_init__(self) -> None:
        if self.segments not in (1, SEGMENTS_ABOVE) or not 0 < self.capacity <= 1 << 24:
            raise VaultIntegrityError("the root of the face memory describes no key table of ours")

    @classmethod
    def for_keys(cls, count: int) -> "Layout":
        """Room for that many keys and some more."""
        if count <= ONE_LEVEL_LIMIT:
            return cls(1, max(_FIRST_CAPACITY, 1 << (count - 1).bit_length()))
        mean = count / SEGMENTS_ABOVE
        # Ids are random, so the fullest of 256 segments stays within six standard deviations.
        return cls(SEGMENTS_ABOVE, 1 << int(mean + 6 * mean**0.5).bit_length())

    @property
    def index_bytes(self) -> int:
        """Size of the sealed index."""
        return crypto.OVERHEAD_BYTES + self.segments * _DESCRIPTOR.size

    @property
    def file_bytes(self) -> int:
        """Size of the whole file."""
        return self.segment_offset(self.segments, 0)

    def index_offset(self, area: int) -> int:
        """Place of an index."""
        return area * _round_up(self.index_bytes)

    def journal_offset(self, area: int, entry: int = 0) -> int:
        """Place of a journal, or of one of its entries."""
        start = 2 * _round_up(self.index_bytes)
        return start + area * _JOURNAL_BYTES + entry * _JOURNAL_STRIDE

    def segment_offset(self, segment: int, half: int) -> int:
        """Place of one of the two halves of a segment."""
        size = _round_up(segment_bytes(self.capacity))
        return self.journal_offset(2) + (2 * segment + half) * size

    def segment_of(self, person: PersonId) -> int:
        """The segment that holds a person's key."""
        return person[0] % self.segments


def segment_bytes(count: int) -> int:
    """Size of a sealed segment of that many keys."""
    return count * _ENTRY_BYTES + crypto.OVERHEAD_BYTES


@dataclass(slots=True)
class _Segment:
    """One part of the table, opened."""

    half: int
    key: bytearray
    deks: dict[PersonId, bytearray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Region:
    """Bytes of the file that a change left behind."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Change:
    """An epoch to come: what it holds, and which segments are to be written for it."""

    root: Root
    segments: list[_Segment]
    written: list[int]

    @property
    def layout(self) -> Layout:
        """Where its parts lie."""
        return Layout(self.root.segments, self.root.capacity)


class KeyTable:
    """The keys of everybody, and the only code that changes an epoch.

    One thread at a time may change it; the vault sees to that.
    """

    def __init__(self, folder: Path, disk: Disk, roots: RootStore, root: Root, wrapping: Wrapping) -> None:
        self._folder, self._disk, self._roots = folder, disk, roots
        self._root, self._wrapping = root, wrapping
        self._layout = Layout(root.segments, root.capacity)
        self._segments = [_Segment(0, bytearray()) for _ in range(root.segments)]
        self._journal: dict[PersonId, bytearray] = {}
        self._stale: list[_Region] = []
        self._broken = False

    @classmethod
    def create(
        cls, folder: Path, disk: Disk, roots: RootStore, store_id: bytes, wrapping: Wrapping
    ) -> "KeyTable":
        """A table that knows the vault's own key only, under a first root."""
        layout = Layout.for_keys(1)
        secrets = crypto.new_key(), crypto.new_key()
        root = Root(1, store_id, *secrets, 1, layout.segments, layout.capacity)
        table = cls(folder, disk, roots, root, wrapping)
        table._segments[0].deks[STORE_OWNER] = crypto.new_key()
        for path in table_files(folder):
            disk.remove(path)
        disk.allocate(table.path, layout.file_bytes)
        table._write(_Change(root, table._segments, [0]))
        for slot in SLOTS:
            roots.destroy(slot)
        roots.write(root.slot, pack_root(root, wrapping))
        return table

    @classmethod
    def load(
        cls, folder: Path, disk: Disk, roots: RootStore, sealed: SealedRoot, kek: bytearray
    ) -> "KeyTable":
        """The table of a root.

        Raises:
            VaultIntegrityError: Root and table do not belong together, or one of them was altered.
        """
        table = cls(folder, disk, roots, sealed.opened(kek), Wrapping(sealed.kdf, kek))
        try:
            table._read_segments()
            table._read_journal()
        except FileNotFoundError as err:
            raise VaultIntegrityError(f"{table.path}: the key table of the face memory is missing") from err
        except VaultIntegrityError as err:
            raise VaultIntegrityError(
                f"{table.path}: this key table does not belong to the root: it was altered, or an old copy "
                "was put back; put the right one back, or remove the folder to start anew"
            ) from err
        if STORE_OWNER not in table:
            raise VaultIntegrityError(f"{table.path}: the key table lacks the vault's own key")
        return table

    @property
    def generation(self) -> int:
        """Counts epochs."""
        return self._root.generation

    @property
    def store_id(self) -> bytes:
        """Random name of the vault."""
        return self._root.store_id

    @property
    def slot(self) -> int:
        """The slot of its root."""
        return self._root.slot

    @property
    def wrapping(self) -> Wrapping:
        """The key above the root."""
        return self._wrapping

    @property
    def path(self) -> Path:
        """The file."""
        return _table_path(self._folder, self._root.table_id)

    def __len__(self) -> int:
        return sum(len(segment.deks) for segment in self._segments) + len(self._journal)

    def __contains__(self, person: object) -> bool:
        return isinstance(person, bytes) and self.find(person) is not None

    def __iter__(self) -> Iterator[PersonId]:
        for segment in self._segments:
            yield from segment.deks
        yield from self._journal

    def find(self, person: PersonId) -> bytearray | None:
        """The key of a person; None for a stranger or someone forgotten."""
        found = self._segments[self._layout.segment_of(person)].deks.get(person)
        return found if found is not None else self._journal.get(person)

    def derive(self, label: str) -> bytearray:
        """A key for one purpose of the whole vault."""
        return crypto.derive(self._root.store_secret, label)

    def own_secrets(self) -> tuple[bytearray, bytearray]:
        """The epoch root and the store secret, for the search of `edge.vault.verify`."""
        return self._root.secret, self._root.store_secret

    def add(self, people: Iterable[PersonId]) -> None:
        """Give new people a key each; durable when it returns."""
        self._require_whole()
        fresh = {person: crypto.new_key() for person in people if person not in self}
        if self._journal_has_room(fresh):
            self._append(fresh)
        else:
            self.change_epoch(add=fresh)
            self.scrub()

    def change_epoch(
        self,
        *,
        remove: Collection[PersonId] = (),
        add: Mapping[PersonId, bytearray] | None = None,
        wrapping: Wrapping | None = None,
    ) -> None:
        """Move to a new root, and return when the old one is destroyed.

        Args:
            remove: Whose keys the new table does not hold.
            add: Keys it holds in addition.
            wrapping: The key above the new root; None keeps the present one.
        """
        self._require_whole()
        wrapping = wrapping or self._wrapping
        change = self._prepared(frozenset(remove), add or {})
        self._write(change)
        blob = pack_root(change.root, wrapping)
        # From here to the last line only opening again can tell what the disk holds, should something fail.
        self._broken = True
        self._roots.write(change.root.slot, blob)
        self._roots.destroy(self._root.slot)
        self._adopt(change, frozenset(remove), wrapping)
        self._broken = False

    def scrub(self) -> None:
        """Overwrite what the last change left behind."""
        for path in table_files(self._folder):
            if path != self.path:
                self._disk.remove(path)
        for region in self._stale:
            self._disk.write(self.path, region.offset, crypto.random_bytes(region.size))
        if self._stale:
            self._disk.sync(self.path)
        self._stale = []

    def mark_all_idle(self) -> None:
        """Let the next `scrub` overwrite all that the present root does not use."""
        area = 1 - self._root.slot
        halves = [
            _Region(
                self._layout.segment_offset(number, 1 - segment.half), segment_bytes(self._layout.capacity)
            )
            for number, segment in enumerate(self._segments)
        ]
        self._stale = [*self._area_regions(area, JOURNAL_ENTRIES), *halves]

    def forget_all_keys(self) -> None:
        """Wipe every key from memory, when the vault closes."""
        for segment in self._segments:
            crypto.wipe(segment.key)
            for dek in segment.deks.values():
                crypto.wipe(dek)
            segment.deks.clear()
        for dek in self._journal.values():
            crypto.wipe(dek)
        self._journal.clear()
        crypto.wipe(self._root.secret)
        crypto.wipe(self._root.store_secret)

    def _require_whole(self) -> None:
        if self._broken:
            raise VaultError(f"{self._folder}: a write of the root failed; open the face memory again")

    def _journal_has_room(self, fresh: Collection[PersonId]) -> bool:
        if len(self._journal) + len(fresh) > JOURNAL_ENTRIES:
            return False
        return self._fits((*self._journal, *fresh))

    def _fits(self, more: Collection[PersonId]) -> bool:
        """Whether the present file has room for more keys than the segments hold now."""
        if self._layout.segments == 1:
            count = len(self._segments[0].deks) + len(more)
            return count <= min(self._layout.capacity, ONE_LEVEL_LIMIT)
        arriving = Counter(map(self._layout.segment_of, more))
        return all(len(self._segments[s].deks) + n <= self._layout.capacity for s, n in arriving.items())

    def _append(self, fresh: Mapping[PersonId, bytearray]) -> None:
        """Put keys into the journal with one write and one sync."""
        key, start = crypto.derive(self._root.secret, "journal"), len(self._journal)
        data = bytearray()
        for entry, (person, dek) in enumerate(fresh.items(), start):
            plain = bytearray(person + dek)
            data += crypto.seal(key, plain, self._journal_aad(entry)).ljust(_JOURNAL_STRIDE, b"\0")
            crypto.wipe(plain)
        if data:
            self._disk.write(self.path, self._layout.journal_offset(self._root.slot, start), bytes(data))
            self._disk.sync(self.path)
        self._journal.update(fresh)

    def _prepared(self, remove: frozenset[PersonId], add: Mapping[PersonId, bytearray]) -> _Change:
        """The segments of the epoch to come; those of the present one stay as they are."""
        arriving = {p: dek for p, dek in (*self._journal.items(), *add.items()) if p not in remove}
        layout, table_id = self._layout, self._root.table_id
        if self._fits(arriving):
            touched = {layout.segment_of(person) for person in (*arriving, *(remove & set(self)))}
            segments = list(self._segments)
            for number in touched:
                old = segments[number]
                kept = {p: dek for p, dek in old.deks.items() if p not in remove}
                segments[number] = _Segment(1 - old.half, bytearray(), kept)
        else:
            kept = {
                p: dek for segment in self._segments for p, dek in segment.deks.items() if p not in remove
            }
            arriving = kept | arriving
            layout, table_id = Layout.for_keys(len(arriving)), table_id + 1
            segments = [_Segment(0, bytearray()) for _ in range(layout.segments)]
            touched = set(range(layout.segments))
            self._disk.allocate(_table_path(self._folder, table_id), layout.file_bytes)
        for person, dek in arriving.items():
            segments[layout.segment_of(person)].deks[person] = dek
        secrets = crypto.new_key(), self._root.store_secret
        ids = self.generation + 1, self.store_id
        root = Root(*ids, *secrets, table_id, layout.segments, layout.capacity)
        return _Change(root, segments, sorted(touched))

    def _write(self, change: _Change) -> None:
        """Write segments and index of a change to their places, which nothing valid refers to."""
        path, layout = _table_path(self._folder, change.root.table_id), change.layout
        for number in change.written:
            segment = change.segments[number]
            segment.key = crypto.new_key()
            plain = bytearray().join(part for pair in segment.deks.items() for part in pair)
            blob = crypto.seal(segment.key, plain, _aad(change.root, "segment", number))
            crypto.wipe(plain)
            self._disk.write(path, layout.segment_offset(number, segment.half), blob)
        index = bytearray().join(_DESCRIPTOR.pack(bytes(s.key), s.half, len(s.deks)) for s in change.segments)
        key = crypto.derive(change.root.secret, "index")
        blob = crypto.seal(key, index, _aad(change.root, "index", change.root.generation))
        crypto.wipe(index)
        self._disk.write(path, layout.index_offset(change.root.slot), blob)
        self._disk.sync(path)

    def _adopt(self, change: _Change, remove: frozenset[PersonId], wrapping: Wrapping) -> None:
        """Make a change the present state, and note what it left behind."""
        gone = [dek for person in remove if (dek := self.find(person)) is not None]
        if change.root.table_id == self._root.table_id:
            used = len(self._journal)
            halves = [
                _Region(self._layout.segment_offset(n, old.half), segment_bytes(len(old.deks)))
                for n, old in ((n, self._segments[n]) for n in change.written)
            ]
            self._stale += [*self._area_regions(self._root.slot, used), *halves]
        else:
            self._stale = []
        for number in change.written:
            if number < len(self._segments):
                crypto.wipe(self._segments[number].key)
        for dek in gone:
            crypto.wipe(dek)
        crypto.wipe(self._root.secret)
        self._root, self._wrapping, self._layout = change.root, wrapping, change.layout
        self._segments, self._journal = change.segments, {}

    def _area_regions(self, area: int, entries: int) -> list[_Region]:
        index = _Region(self._layout.index_offset(area), self._layout.index_bytes)
        return [index, _Region(self._layout.journal_offset(area), entries * _JOURNAL_STRIDE)]

    def _read_segments(self) -> None:
        data, layout = self._disk.read(self.path), self._layout
        start = layout.index_offset(self._root.slot)
        key = crypto.derive(self._root.secret, "index")
        what = f"{self.path}: the key table"
        aad = _aad(self._root, "index", self.generation)
        index = crypto.unseal(key, data[start : start + layout.index_bytes], aad, what)
        for number, (secret, half, count) in enumerate(_DESCRIPTOR.iter_unpack(index)):
            start = layout.segment_offset(number, half)
            blob = data[start : start + segment_bytes(count)]
            plain = crypto.unseal(secret, blob, _aad(self._root, "segment", number), what)
            deks = {
                bytes(plain[at : at + ID_BYTES]): plain[at + ID_BYTES : at + _ENTRY_BYTES]
                for at in range(0, len(plain), _ENTRY_BYTES)
            }
            crypto.wipe(plain)
            self._segments[number] = _Segment(half, bytearray(secret), deks)
        crypto.wipe(index)

    def _read_journal(self) -> None:
        """Entries up to the first that was never written, or was being written when the power went."""
        data = self._disk.read(self.path, self._layout.journal_offset(self._root.slot), _JOURNAL_BYTES)
        key = crypto.derive(self._root.secret, "journal")
        for entry in range(JOURNAL_ENTRIES):
            blob = data[entry * _JOURNAL_STRIDE :][:_JOURNAL_SEALED]
            try:
                plain = crypto.unseal(key, blob, self._journal_aad(entry), "a new key")
            except VaultIntegrityError:
                return
            self._journal[bytes(plain[:ID_BYTES])] = plain[ID_BYTES:]

    def _journal_aad(self, entry: int) -> bytes:
        return _aad(self._root, "journal", self.generation, entry)


def table_files(folder: Path) -> list[Path]:
    """Key tables in a folder: the present one, and what a crash left of others."""
    return sorted(folder.glob("keys-*.tab"))


def _table_path(folder: Path, table_id: int) -> Path:
    return folder / f"keys-{table_id}.tab"


def _aad(root: Root, part: str, *numbers: int) -> bytes:
    """What binds a part of the table to its vault, file and place."""
    place = (root.table_id, root.segments, root.capacity, *numbers)
    return root.store_id + part.encode("ascii") + struct.pack(f">{len(place)}Q", *place)


def _round_up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
