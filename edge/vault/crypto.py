"""Ciphers, key derivation and wiping: all that the vault asks of ``cryptography``, in one place.

A sealed blob is ``algorithm (1) | nonce (12) | ciphertext | tag (16)``. The algorithm byte lets machines
without AES instructions use ChaCha20-Poly1305 and still read what others wrote. Nonces are random: a key
protects one person's records or a single table, far from where 96 random bits could repeat.
"""

import enum
import functools
import hmac
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.errors import VaultIntegrityError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
BLIND_BYTES = 16
OVERHEAD_BYTES = 1 + NONCE_BYTES + TAG_BYTES
"""What sealing adds to a blob."""

Key = bytes | bytearray
AuthenticatedCipher = AESGCM | ChaCha20Poly1305


class Algorithm(enum.IntEnum):
    """The authenticated ciphers a blob may be sealed with."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2


def random_bytes(count: int) -> bytes:
    """Bytes of the operating system's generator."""
    return os.urandom(count)


def new_key() -> bytearray:
    """A random key that can be wiped."""
    return bytearray(os.urandom(KEY_BYTES))


def wipe(secret: bytearray | None) -> None:
    """Overwrite a key in memory; copies that an interpreter or a library made are out of reach."""
    if secret is not None:
        secret[:] = bytes(len(secret))


@functools.cache
def preferred_algorithm() -> Algorithm:
    """AES where the processor has instructions for it, else ChaCha20, which is the faster one then."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return Algorithm.AES_256_GCM
    flags = [line for line in text.splitlines() if line.lower().startswith(("flags", "features"))]
    has_aes = not flags or "aes" in flags[0].split(":", 1)[-1].split()
    return Algorithm.AES_256_GCM if has_aes else Algorithm.CHACHA20_POLY1305


def cipher(algorithm: int, key: Key) -> AuthenticatedCipher:
    """The cipher of an algorithm byte.

    Raises:
        VaultIntegrityError: Nobody knows that byte.
    """
    if algorithm == Algorithm.AES_256_GCM:
        return AESGCM(key)
    if algorithm == Algorithm.CHACHA20_POLY1305:
        return ChaCha20Poly1305(key)
    raise VaultIntegrityError(
        f"algorithm {algorithm} of a sealed blob is not known: a newer Lethe or damage wrote it"
    )


def seal(key: Key, plaintext: bytes | bytearray, aad: bytes) -> bytes:
    """Encrypt and authenticate; ``aad`` is authenticated as well, and not stored."""
    algorithm, nonce = preferred_algorithm(), os.urandom(NONCE_BYTES)
    return bytes([algorithm]) + nonce + cipher(algorithm, key).encrypt(nonce, plaintext, aad)


def unseal(key: Key, blob: bytes, aad: bytes, what: str) -> bytearray:
    """What was sealed.

    Args:
        key: The key it was sealed with.
        blob: As `seal` made it.
        aad: As it was sealed with.
        what: Names the blob in the error.

    Raises:
        VaultIntegrityError: Another key, another ``aad``, or some bit is not as it was written.
    """
    if len(blob) < OVERHEAD_BYTES:
        raise VaultIntegrityError(f"{what} is cut short")
    try:
        nonce = blob[1 : 1 + NONCE_BYTES]
        return bytearray(cipher(blob[0], key).decrypt(nonce, blob[1 + NONCE_BYTES :], aad))
    except (InvalidTag, VaultIntegrityError) as err:
        raise VaultIntegrityError(f"{what} does not authenticate") from err


def derive(key: Key, label: str, context: bytes = b"") -> bytearray:
    """A key for one purpose (HKDF-SHA256)."""
    info = b"lethe/1/" + label.encode("ascii") + b"\0" + context
    return bytearray(HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(bytes(key)))


def commitment(key: Key, label: str) -> bytes:
    """32 bytes that fit this key alone: GCM by itself would let one blob open under two keys."""
    return bytes(derive(key, f"commitment/{label}"))


def same(left: bytes, right: bytes) -> bool:
    """Equality in constant time."""
    return hmac.compare_digest(left, right)


def keyed_hash(key: Key, data: bytes) -> bytes:
    """HMAC-SHA256, 32 bytes."""
    return hmac.digest(bytes(key), data, "sha256")


def blind(key: Key, data: bytes) -> bytes:
    """A 16-byte name for ``data`` that says nothing without the key."""
    return keyed_hash(key, data)[:BLIND_BYTES]


def blind_ids(key: Key, ids: bytes) -> bytes:
    """Blind names of many random 16-byte ids at once, in their order.

    Each id is one block of its own and random already, so the bare block cipher is a keyed permutation of
    ids: nothing repeats that a mode of operation would have to hide.
    """
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(ids) + encryptor.finalize()


def stretch(passphrase: bytes, *, salt: bytes, memory_kib: int, passes: int, lanes: int) -> bytearray:
    """A key from a passphrase (Argon2id)."""
    kdf = Argon2id(salt=salt, length=KEY_BYTES, iterations=passes, lanes=lanes, memory_cost=memory_kib)
    return bytearray(kdf.derive(passphrase))
