"""Somebody who has copies of the files from many moments and every key that exists now.

It knows formats and code, ignores checksums and tags where that helps, and reads at every offset. What it is
given decides what it should find: the tests run it where it must succeed, too.
"""

import contextlib
import struct
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from edge.vault import crypto, envelope, roots
from edge.vault.disk import RealDisk
from edge.vault.kek import STORED, KdfParameters
from edge.vault.keytable import KeyTable, table_files
from edge.vault.roots import FileRootStore, Root, Wrapping
from edge.vault.verify import _records
from shared.errors import VaultIntegrityError

_WRAPPED_BYTES = crypto.KEY_BYTES + crypto.OVERHEAD_BYTES


def files_of(folders: Iterable[Path]) -> list[Path]:
    """All files in some folders."""
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def recovered(folders: list[Path], kek: bytes, store_id: bytes) -> set[bytes]:
    """Every plaintext that can be had from the files of some folders and the key above the root."""
    blobs = {path.read_bytes() for path in files_of(folders)}
    deks = _keys_of_tables(folders, _roots_in(blobs, kek, store_id)) | _wrapped_keys(blobs, kek)
    found = set()
    for data in blobs:
        for start, head in _records(data):
            blob = data[start : start + head.size]
            # Owners are blind: try everybody's key, and every pair of keys for what two people share.
            for key in _candidates(deks, head):
                with contextlib.suppress(VaultIntegrityError):
                    found.add(envelope.unseal_record(key, store_id, blob, head)[1])
    return found


def _candidates(deks: set[bytes], head: envelope.Head) -> Iterable[bytes]:
    if len(head.owners) < 2:
        return deks
    pairs = ((a, b) for a in deks for b in deks if a < b)
    return (bytes(envelope.record_key(pair, head.name)) for pair in pairs)


def _roots_in(blobs: Iterable[bytes], kek: bytes, store_id: bytes) -> list[Root]:
    """Roots that the key opens, in whole slots and in torn ones: tags and checksums are ignored."""
    found = []
    for data in blobs:
        places = {0, 4096}
        at = data.find(roots.SLOT_MAGIC)
        while at >= 0:
            places.add(at)
            at = data.find(roots.SLOT_MAGIC, at + 1)
        for place in places:
            sealed = data[place + roots._HEAD.size :][: roots._SEALED_BYTES]
            if len(sealed) == roots._SEALED_BYTES:
                nonce, body = sealed[1:13], sealed[13:-16]
                # GCM without its tag is counter mode that begins at two.
                stream = Cipher(algorithms.AES(kek), modes.CTR(nonce + b"\0\0\0\2")).decryptor()
                secret, store_secret, table_id, segments, capacity = roots._PAYLOAD.unpack(
                    stream.update(body)
                )
                if segments in (1, 256) and 0 < capacity < 1 << 20 and table_id < 1 << 10:
                    secrets = bytearray(secret), bytearray(store_secret)
                    found.append(Root(0, store_id, *secrets, table_id, segments, capacity))
    return found


def _keys_of_tables(folders: Iterable[Path], found: list[Root]) -> set[bytes]:
    """Data keys from every copy of a table that any root opens, at any generation."""
    deks: set[bytes] = set()
    holders = {path.parent for folder in folders for path in folder.rglob("keys-*.tab")}
    for folder in holders:
        ids = {int(path.stem.split("-")[1]) for path in table_files(folder)}
        for root in found:
            for generation in range(1, 80):
                if root.table_id in ids:
                    deks |= _keys_of_table(folder, root, generation)
    return deks


def _keys_of_table(folder: Path, root: Root, generation: int) -> set[bytes]:
    copy = Root(
        generation,
        root.store_id,
        bytearray(root.secret),
        bytearray(root.store_secret),
        root.table_id,
        root.segments,
        root.capacity,
    )
    wrapping = Wrapping(KdfParameters(STORED, bytes(16)), crypto.new_key())
    table = KeyTable(folder, RealDisk(), FileRootStore(folder, RealDisk()), copy, wrapping)
    for read in (table._read_segments, table._read_journal):
        with contextlib.suppress(VaultIntegrityError, struct.error):
            read()
    return {bytes(dek) for person in table if (dek := table.find(person)) is not None}


def _wrapped_keys(blobs: Iterable[bytes], kek: bytes) -> set[bytes]:
    """Keys that lie anywhere sealed directly under the key above the root."""
    keys = set()
    for data in blobs:
        at = data.find(b"\x01")
        while at >= 0:
            with contextlib.suppress(VaultIntegrityError):
                keys.add(bytes(crypto.unseal(kek, data[at : at + _WRAPPED_BYTES], b"", "a key")))
            at = data.find(b"\x01", at + 1)
    return {key for key in keys if len(key) == crypto.KEY_BYTES}
