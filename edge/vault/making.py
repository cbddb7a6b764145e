"""How a vault comes into being, and the header by which it is known to exist."""

import struct
from pathlib import Path

from edge.vault import crypto
from edge.vault.database import Database
from edge.vault.disk import Disk
from edge.vault.kek import KeySource
from edge.vault.keytable import KeyTable
from edge.vault.roots import (
    STORE_ID_BYTES,
    FileRootStore,
    KeyringRootStore,
    RootKind,
    RootStore,
    Wrapping,
)
from shared.errors import VaultIntegrityError

_HEADER = struct.Struct(f">8sBB{STORE_ID_BYTES}s")
_MAGIC = b"LETHEVLT"
_FORMAT = 1


def make_vault(folder: Path, key: KeySource, kind: RootKind, disk: Disk) -> None:
    """Make an empty vault; it exists when its header does."""
    for name in ("data.mdb", "lock.mdb", "tombstones"):
        disk.remove(folder / name)
    store_id = crypto.random_bytes(STORE_ID_BYTES)
    roots = root_store(kind, folder, store_id, disk)
    roots.prepare()
    kdf, kek = key.fresh(reuse=True)
    KeyTable.create(folder, disk, roots, store_id, Wrapping(kdf, kek)).forget_all_keys()
    Database(folder, writer=True, store_id=store_id, create=True).close()
    disk.replace(folder / "vault", _HEADER.pack(_MAGIC, _FORMAT, kind, store_id))
    key.confirm(kek)


def read_header(folder: Path, disk: Disk) -> tuple[RootKind, bytes]:
    """Where a vault keeps its root, and its id; VaultIntegrityError where the header is none of ours."""
    data = disk.read(folder / "vault")
    try:
        magic, version, kind, store_id = _HEADER.unpack(data)
        if magic == _MAGIC and version == _FORMAT:
            return RootKind(kind), store_id
    except (struct.error, ValueError):
        pass
    raise VaultIntegrityError(f"{folder / 'vault'}: damaged, or written by a newer Lethe")


def root_store(kind: RootKind, folder: Path, store_id: bytes, disk: Disk) -> RootStore:
    """The place of a root."""
    if kind is RootKind.KEYRING:
        return KeyringRootStore(store_id.hex())
    return FileRootStore(folder, disk)
