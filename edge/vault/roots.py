"""The root: the 32 bytes whose destruction makes a forget final, and the places that can hold them.

There are two slots. A slot holds the generation, how the key above it is derived, commitments to both keys,
and, sealed under that key (KEK), the epoch root and the store secret. A new root goes to the idle slot; then
the old slot is overwritten. A store of roots is anything with two slots that can be overwritten for good, and
it says how far that promise reaches (its level):

====  ==================================================================================================
L0    a file that is overwritten in place: gone from the file system
L0-   the same on a file system that may keep old blocks
L1    the keyring of the desktop: outside of our files and of their backups
====  ==================================================================================================
"""

import base64
import contextlib
import enum
import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edge.vault import crypto, filesystem
from edge.vault.disk import Disk
from edge.vault.kek import KEYRING_SERVICE, PACKED_BYTES, KdfParameters, Keyring, os_keyring
from shared.errors import VaultIntegrityError

STORE_ID_BYTES = 16
SLOTS = (0, 1)

# One page each, so that no write to one slot can tear the other.
_SLOT_STRIDE = 4096
SLOT_MAGIC = b"LRT1"
_HEAD = struct.Struct(f">4sQ{PACKED_BYTES}s{STORE_ID_BYTES}s32s32s")
_PAYLOAD = struct.Struct(">32s32sIHI")
_SEALED_BYTES = _PAYLOAD.size + crypto.OVERHEAD_BYTES
_CHECKSUM_BYTES = 32
SLOT_BYTES = _HEAD.size + _SEALED_BYTES + _CHECKSUM_BYTES


class RootKind(enum.IntEnum):
    """Places a root may be kept, as the vault's header notes them."""

    FILE = 1
    KEYRING = 2


@dataclass(frozen=True, slots=True)
class Protection:
    """How far the promise of forgetting reaches here.

    Attributes:
        level: ``L0``, ``L0-`` or ``L1``.
        reason: Why, as one clause.
    """

    level: str
    reason: str


class RootStore(Protocol):
    """Two slots that can be overwritten for good."""

    @property
    def kind(self) -> RootKind:
        """What the header of a vault says to find it again."""

    def prepare(self) -> None:
        """Make the place, for a vault being made."""

    def read(self) -> tuple[bytes, bytes]:
        """What the slots hold; empty where they hold nothing."""

    def write(self, slot: int, blob: bytes) -> None:
        """Fill a slot, durably."""

    def destroy(self, slot: int) -> None:
        """Overwrite a slot with random bytes, durably."""

    def protection(self) -> Protection:
        """How far the promise reaches."""


def root_folder(folder: Path) -> Path:
    """Where the root of a vault lies: beside its folder, so that a copy of the folder holds no root."""
    return folder.with_name(f"{folder.name}.root")


class FileRootStore:
    """Slots in a file beside the vault's folder, in a folder that backups leave out."""

    kind = RootKind.FILE

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = root_folder(folder)
        self.path = self._folder / "slots"
        self._disk = disk

    def prepare(self) -> None:
        """See `RootStore.prepare`."""
        filesystem.prepare_folder(self._folder)
        filesystem.mark_as_cache(self._folder)
        self._disk.allocate(self.path, len(SLOTS) * _SLOT_STRIDE)

    def read(self) -> tuple[bytes, bytes]:
        """See `RootStore.read`."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return b"", b""
        first, second = (data[slot * _SLOT_STRIDE :][:SLOT_BYTES] for slot in SLOTS)
        return first, second

    def write(self, slot: int, blob: bytes) -> None:
        """See `RootStore.write`."""
        self._disk.write(self.path, slot * _SLOT_STRIDE, blob)
        self._disk.sync(self.path)

    def destroy(self, slot: int) -> None:
        """See `RootStore.destroy`."""
        self.write(slot, destroyed_slot())

    def protection(self) -> Protection:
        """See `RootStore.protection`."""
        in_place, reason = filesystem.mount_of(self._folder).overwrites()
        return Protection("L0" if in_place else "L0-", reason)


class KeyringRootStore:
    """Slots in the keyring of the desktop (extra ``keyring``)."""

    kind = RootKind.KEYRING

    def __init__(self, account: str, *, ring: Keyring | None = None) -> None:
        self._ring = os_keyring() if ring is None else ring
        self._names = tuple(f"{account}/root-{slot}" for slot in SLOTS)

    def prepare(self) -> None:
        """Nothing to make."""

    def read(self) -> tuple[bytes, bytes]:
        """See `RootStore.read`."""
        first, second = (self._entry(name) for name in self._names)
        return first, second

    def write(self, slot: int, blob: bytes) -> None:
        """See `RootStore.write`."""
        self._ring.set_password(KEYRING_SERVICE, self._names[slot], base64.b64encode(blob).decode("ascii"))

    def destroy(self, slot: int) -> None:
        """See `RootStore.destroy`."""
        self.write(slot, destroyed_slot())

    def protection(self) -> Protection:
        """See `RootStore.protection`."""
        return Protection("L1", "the root is an entry of the keyring, outside of the memory's files")

    def _entry(self, name: str) -> bytes:
        text = self._ring.get_password(KEYRING_SERVICE, name) or ""
        with contextlib.suppress(ValueError):
            return base64.b64decode(text, validate=True)
        return b""


@dataclass(frozen=True, slots=True)
class Root:
    """What a slot holds, opened.

    Attributes:
        generation: Counts epochs; the higher one is the newer one.
        store_id: The vault it belongs to.
        secret: The epoch root, which opens the key table of this generation and nothing else.
        store_secret: What the labels' keys are derived from; it outlives every epoch.
        table_id: Number of the key table's file.
        segments: Segments of that table.
        capacity: Keys for which a segment has room.
    """

    generation: int
    store_id: bytes
    secret: bytearray = field(repr=False)
    store_secret: bytearray = field(repr=False)
    table_id: int
    segments: int
    capacity: int

    @property
    def slot(self) -> int:
        """The slot, and the area of the key table, of this generation."""
        return self.generation % len(SLOTS)


@dataclass(frozen=True, slots=True)
class Wrapping:
    """The key above the root, and how it is derived."""

    kdf: KdfParameters
    kek: bytearray = field(repr=False)


def pack_root(root: Root, wrapping: Wrapping) -> bytes:
    """The bytes of a slot."""
    kek = wrapping.kek
    secrets = bytes(root.secret), bytes(root.store_secret)
    payload = bytearray(_PAYLOAD.pack(*secrets, root.table_id, root.segments, root.capacity))
    commitments = crypto.commitment(kek, "kek"), crypto.commitment(root.secret, "root")
    head = _HEAD.pack(SLOT_MAGIC, root.generation, wrapping.kdf.packed(), root.store_id, *commitments)
    body = head + crypto.seal(kek, payload, head)
    crypto.wipe(payload)
    return body + hashlib.sha256(body).digest()


@dataclass(frozen=True, slots=True)
class SealedRoot:
    """A slot that is whole, not yet opened."""

    generation: int
    kdf: KdfParameters
    store_id: bytes
    _commitments: tuple[bytes, bytes]
    _head: bytes
    _sealed: bytes

    def fits(self, kek: bytearray) -> bool:
        """Whether it was sealed under this key."""
        return crypto.same(self._commitments[0], crypto.commitment(kek, "kek"))

    def opened(self, kek: bytearray) -> Root:
        """The root; VaultIntegrityError where something in the slot was altered."""
        payload = crypto.unseal(kek, self._sealed, self._head, "the root of the face memory")
        secret, store_secret, table_id, segments, capacity = _PAYLOAD.unpack(payload)
        crypto.wipe(payload)
        if not crypto.same(self._commitments[1], crypto.commitment(secret, "root")):
            raise VaultIntegrityError("the root of the face memory is not the one that was committed to")
        secrets = bytearray(secret), bytearray(store_secret)
        return Root(self.generation, self.store_id, *secrets, table_id, segments, capacity)


def destroyed_slot() -> bytes:
    """Random bytes that can be told from a slot of which a crash left a part."""
    noise = crypto.random_bytes(SLOT_BYTES - _CHECKSUM_BYTES)
    return noise + _destroyed_mark(noise)


def is_destroyed(blob: bytes) -> bool:
    """Whether nothing of a root can be left in a slot."""
    body, mark = blob[: SLOT_BYTES - _CHECKSUM_BYTES], blob[SLOT_BYTES - _CHECKSUM_BYTES :]
    return not any(blob) or mark == _destroyed_mark(body)


def _destroyed_mark(noise: bytes) -> bytes:
    return hashlib.sha256(b"destroyed" + noise).digest()


def parse_slot(blob: bytes) -> SealedRoot | None:
    """A slot's bytes; None where it holds no whole root: overwritten, never written, or torn.

    Raises:
        VaultIntegrityError: It asks for a key derivation out of bounds.
    """
    body, checksum = blob[: SLOT_BYTES - _CHECKSUM_BYTES], blob[SLOT_BYTES - _CHECKSUM_BYTES :]
    if (
        len(blob) != SLOT_BYTES
        or not blob.startswith(SLOT_MAGIC)
        or hashlib.sha256(body).digest() != checksum
    ):
        return None
    _, generation, kdf, store_id, *commitments = _HEAD.unpack_from(body)
    head, sealed = body[: _HEAD.size], body[_HEAD.size :]
    parameters = KdfParameters.unpacked(kdf)
    return SealedRoot(generation, parameters, store_id, (commitments[0], commitments[1]), head, sealed)
