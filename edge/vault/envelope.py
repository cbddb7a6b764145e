"""The sealed form of one record.

::

    magic (2) | version (1) | algorithm (1) | kind (1) | schema (1) | owners (1) | sequence (8) |
    ciphertext length (4) | name (16) | owner (16) each | nonce (12) | ciphertext | tag (16)

All before the nonce is in clear and, with the id of the vault, authenticated: a record cannot be moved to
another name, person, kind or vault. Name and owners are blind: keyed hashes of what the caller says. The
plaintext holds the record id and the payload, padded to a bucket, so that lengths do not tell names; buckets
also fill LMDB's pages (three records of up to 1320 bytes, two of up to 2000, whole pages above).

One owner: sealed under that person's key. Several: under a key derived from all of theirs, so that it dies
with any of them.
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag

from edge.vault import crypto
from shared.errors import VaultError, VaultIntegrityError

MAGIC = b"\xf5L"
VERSION = 1
SCHEMA = 1
"""Layout of the payloads, see `edge.vault.records`."""

MAX_OWNERS = 32
MAX_RECORD_ID = 1024
MAX_PLAIN_BYTES = 64 << 20

_HEAD = struct.Struct(">2sBBBBBQI16s")
HEAD_BYTES = _HEAD.size
MAX_HEAD_BYTES = HEAD_BYTES + MAX_OWNERS * crypto.BLIND_BYTES
_PLAIN = struct.Struct(">HI")

_SMALL_BUCKETS = (64, 128, 256, 512, 768, 1216, 1896, 3968)
_PAGE = 4096


class Kind(enum.IntEnum):
    """What a record is about."""

    PERSON = 1
    ARTEFACT = 2
    NEVER = 3
    AUDIT = 4
    META = 5


@dataclass(frozen=True, slots=True)
class Head:
    """What a record shows without a key.

    Attributes:
        algorithm: The cipher.
        kind: What the record is about.
        sequence: Counts all writes of the vault.
        name: Blind name of the record.
        owners: Blind names of the people it belongs to.
        size: Bytes of the whole record.
    """

    algorithm: int
    kind: int
    sequence: int
    name: bytes
    owners: tuple[bytes, ...]
    size: int

    @property
    def is_padded(self) -> bool:
        """Whether its size is one that we give to records: chance bytes that look like a head have others."""
        plain_bytes = self.size - self.aad_bytes - crypto.NONCE_BYTES - crypto.TAG_BYTES
        return plain_bytes <= MAX_PLAIN_BYTES and padded_size(plain_bytes) == plain_bytes

    @property
    def aad_bytes(self) -> int:
        """Bytes before the nonce."""
        return HEAD_BYTES + crypto.BLIND_BYTES * len(self.owners)


def parse_head(blob: bytes | memoryview, *, available: int | None = None) -> Head:
    """What a record shows.

    Args:
        blob: The record, or its beginning.
        available: Bytes there are of the record, where ``blob`` is its beginning only.

    Raises:
        VaultIntegrityError: It is no record of this version, or it is cut short.
    """
    if len(blob) < HEAD_BYTES:
        raise VaultIntegrityError("a record of the face memory is cut short")
    magic, version, algorithm, kind, schema, count, sequence, length, name = _HEAD.unpack_from(blob)
    if magic != MAGIC or version != VERSION or schema != SCHEMA or count > MAX_OWNERS:
        raise VaultIntegrityError("a record of the face memory is damaged, or a newer Lethe wrote it")
    start = HEAD_BYTES + crypto.BLIND_BYTES * count
    size = start + crypto.NONCE_BYTES + length + crypto.TAG_BYTES
    if size > (len(blob) if available is None else available):
        raise VaultIntegrityError("a record of the face memory is cut short")
    owners = tuple(
        bytes(blob[at : at + crypto.BLIND_BYTES]) for at in range(HEAD_BYTES, start, crypto.BLIND_BYTES)
    )
    return Head(algorithm, kind, sequence, name, owners, size)


def record_key(deks: Sequence[crypto.Key], name: bytes) -> crypto.Key:
    """The key of a record: its owner's, or one that needs all of its owners'."""
    if len(deks) == 1:
        return deks[0]
    joined = bytearray().join(sorted(bytes(dek) for dek in deks))
    key = crypto.derive(joined, "multi", name)
    crypto.wipe(joined)
    return key


def seal_record(
    key: crypto.Key,
    store_id: bytes,
    kind: Kind,
    name: bytes,
    owners: Sequence[bytes],
    record_id: bytes,
    payload: bytes,
    sequence: int,
) -> bytes:
    """The bytes of a record.

    Args:
        key: As `record_key` gives it.
        store_id: The vault.
        kind: What the record is about.
        name: Its blind name.
        owners: Blind names of its owners.
        record_id: What the caller calls it.
        payload: What it holds.
        sequence: Number of this write.
    """
    if len(record_id) > MAX_RECORD_ID or len(owners) > MAX_OWNERS:
        raise VaultError("a record of the face memory has too long an id or too many owners")
    if len(payload) > MAX_PLAIN_BYTES // 2:
        raise VaultError(f"a record of {len(payload) >> 20} MiB is too large for the face memory")
    plain = _PLAIN.pack(len(record_id), len(payload)) + record_id + payload
    plain = plain.ljust(padded_size(len(plain)), b"\0")
    algorithm = crypto.preferred_algorithm()
    fields = (VERSION, algorithm, kind, SCHEMA, len(owners), sequence, len(plain), name)
    head = _HEAD.pack(MAGIC, *fields) + b"".join(owners)
    nonce = crypto.random_bytes(crypto.NONCE_BYTES)
    return head + nonce + crypto.cipher(algorithm, key).encrypt(nonce, plain, store_id + head)


def unseal_record(
    key: crypto.Key, store_id: bytes, blob: bytes | memoryview, head: Head
) -> tuple[bytes, bytes]:
    """Record id and payload.

    Raises:
        VaultIntegrityError: The record was altered, moved, or sealed under another key.
    """
    start = head.aad_bytes
    body = start + crypto.NONCE_BYTES
    aad = store_id + bytes(blob[:start])
    try:
        plain = crypto.cipher(head.algorithm, key).decrypt(blob[start:body], blob[body : head.size], aad)
    except InvalidTag as err:
        raise VaultIntegrityError(
            "a record of the face memory does not authenticate: it was altered"
        ) from err
    id_bytes, payload_bytes = _PLAIN.unpack_from(plain)
    payload_at = _PLAIN.size + id_bytes
    return plain[_PLAIN.size : payload_at], plain[payload_at : payload_at + payload_bytes]


def padded_size(size: int) -> int:
    """The bucket for a plaintext of that size."""
    for bucket in _SMALL_BUCKETS:
        if size <= bucket:
            return bucket
    # Header, nonce, tag and LMDB's own 16 bytes share the last page with the plaintext.
    margin = _PAGE - _SMALL_BUCKETS[-1]
    return -(-(size + margin) // _PAGE) * _PAGE - margin
