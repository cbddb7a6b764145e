"""Where the key above all others comes from: a passphrase, a key file or the keyring of the desktop.

The parameters of the derivation lie in clear beside the sealed root, so they are bounded when read: a
prepared file must not make us ask for 64 GiB. A key that is about to replace another one is kept under a
second name until the vault says that it is in use; a crash in between leaves both, and the old or the new one
opens.
"""

import contextlib
import importlib
import os
import stat
import struct
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edge.vault import crypto
from edge.vault.disk import Disk, RealDisk
from shared.errors import VaultIntegrityError, VaultKeyError

SALT_BYTES = 16
STORED = 0
ARGON2ID = 1

# 64 MiB, 3 passes, 2 lanes: 0.2 s on a laptop, below a second on a small board.
MEMORY_KIB = 64 * 1024
PASSES = 3
LANES = 2
MEMORY_KIB_RANGE = (8 * 1024, 1024 * 1024)
PASSES_RANGE = (1, 16)
LANES_RANGE = (1, 16)

_PACKED = struct.Struct(f">BIII{SALT_BYTES}s")


@dataclass(frozen=True, slots=True)
class KdfParameters:
    """How the key is derived.

    Attributes:
        algorithm: `STORED`, a random key as it is, or `ARGON2ID`.
        salt: Makes two vaults of one passphrase different.
        memory_kib: Memory that a guess costs, KiB.
        passes: Passes over that memory.
        lanes: Lanes that can run side by side.
    """

    algorithm: int
    salt: bytes
    memory_kib: int = 0
    passes: int = 0
    lanes: int = 0

    def __post_init__(self) -> None:
        limits = (
            (self.memory_kib, MEMORY_KIB_RANGE),
            (self.passes, PASSES_RANGE),
            (self.lanes, LANES_RANGE),
        )
        stretched = all(low <= value <= high for value, (low, high) in limits)
        stored = (self.memory_kib, self.passes, self.lanes) == (0, 0, 0)
        if not {STORED: stored, ARGON2ID: stretched}.get(self.algorithm, False):
            raise VaultIntegrityError("the root of the face memory asks for a key derivation out of bounds")

    def packed(self) -> bytes:
        """Fixed-size bytes for the root slot."""
        return _PACKED.pack(self.algorithm, self.memory_kib, self.passes, self.lanes, self.salt)

    @classmethod
    def unpacked(cls, data: bytes) -> "KdfParameters":
        """The reverse of `packed`; VaultIntegrityError where something is out of bounds."""
        algorithm, memory_kib, passes, lanes, salt = _PACKED.unpack(data)
        return cls(algorithm, salt, memory_kib, passes, lanes)


PACKED_BYTES = _PACKED.size


class KeySource(Protocol):
    """Gives the key encryption key (KEK), 32 bytes."""

    @property
    def name(self) -> str:
        """What the user is told, for example ``passphrase``."""

    def fresh(self, *, reuse: bool) -> tuple[KdfParameters, bytearray]:
        """A key for a vault being made or re-keyed; it can be had again through `keys`.

        Args:
            reuse: One that is kept already will do: for a vault being made.
        """

    def keys(self, kdf: KdfParameters) -> Iterator[bytearray]:
        """Keys that may open a root with these parameters, likeliest first.

        Raises:
            VaultKeyError: There is no key at all, or nobody may use it.
        """

    def confirm(self, key: bytearray) -> None:
        """This key is in use now: what `fresh` kept beside it may go."""


class Passphrase:
    """A key derived from a passphrase; nothing is stored."""

    name = "passphrase"

    def __init__(
        self, text: str, *, memory_kib: int = MEMORY_KIB, passes: int = PASSES, lanes: int = LANES
    ) -> None:
        if not text:
            raise VaultKeyError("the passphrase is empty: give one")
        self._secret = bytearray(unicodedata.normalize("NFC", text).encode("utf-8"))
        self._costs = (memory_kib, passes, lanes)

    def fresh(self, *, reuse: bool) -> tuple[KdfParameters, bytearray]:
        """See `KeySource.fresh`."""
        kdf = KdfParameters(ARGON2ID, crypto.random_bytes(SALT_BYTES), *self._costs)
        return kdf, self._stretch(kdf)

    def keys(self, kdf: KdfParameters) -> Iterator[bytearray]:
        """See `KeySource.keys`."""
        if kdf.algorithm == ARGON2ID:
            yield self._stretch(kdf)

    def confirm(self, key: bytearray) -> None:
        """Nothing is stored."""

    def _stretch(self, kdf: KdfParameters) -> bytearray:
        costs = {"memory_kib": kdf.memory_kib, "passes": kdf.passes, "lanes": kdf.lanes}
        return crypto.stretch(bytes(self._secret), salt=kdf.salt, **costs)


class KeyFile:
    """A random key in a file that only its owner may read.

    Beside the data it protects a stolen backup and against other users, not against whoever has the disk.
    """

    name = "key file"

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path = path
        self._next = path.with_name(f"{path.name}.next")
        self._disk = disk or RealDisk()

    def fresh(self, *, reuse: bool) -> tuple[KdfParameters, bytearray]:
        """See `KeySource.fresh`."""
        if reuse and self.path.exists():
            return _stored(), self._read(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = crypto.new_key()
        self._disk.replace(self._next, bytes(key))
        return _stored(), key

    def keys(self, kdf: KdfParameters) -> Iterator[bytearray]:
        """See `KeySource.keys`."""
        if kdf.algorithm != STORED:
            return
        found = [path for path in (self.path, self._next) if path.exists()]
        if not found:
            raise VaultKeyError(f"{self.path}: the key file is missing; without it the memory stays closed")
        yield from map(self._read, found)

    def confirm(self, key: bytearray) -> None:
        """See `KeySource.confirm`."""
        if not self._next.exists():
            return
        if self._disk.read(self._next) == key:
            self._next.replace(self.path)
        else:
            self._disk.remove(self._next)

    def _read(self, path: Path) -> bytearray:
        try:
            if hasattr(os, "getuid") and stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise VaultKeyError(f"{path}: others may read this key file; run chmod 600 on it")
            key = bytearray(self._disk.read(path))
        except OSError as err:
            raise VaultKeyError(f"{path}: the key file cannot be read ({err.strerror})") from err
        if len(key) != crypto.KEY_BYTES:
            raise VaultKeyError(f"{path}: this is no key file of Lethe (not {crypto.KEY_BYTES} bytes)")
        return key


class KeyringKey:
    """A random key in the keyring of the desktop (extra ``keyring``)."""

    name = "keyring"

    def __init__(self, account: str, *, ring: "Keyring | None" = None) -> None:
        self._ring = os_keyring() if ring is None else ring
        self._account, self._next = f"{account}/key", f"{account}/key-next"

    def fresh(self, *, reuse: bool) -> tuple[KdfParameters, bytearray]:
        """See `KeySource.fresh`."""
        kept = self._ring.get_password(KEYRING_SERVICE, self._account) if reuse else None
        if kept:
            return _stored(), bytearray.fromhex(kept)
        key = crypto.new_key()
        self._ring.set_password(KEYRING_SERVICE, self._next, key.hex())
        return _stored(), key

    def keys(self, kdf: KdfParameters) -> Iterator[bytearray]:
        """See `KeySource.keys`."""
        if kdf.algorithm != STORED:
            return
        entries = [self._ring.get_password(KEYRING_SERVICE, name) for name in (self._account, self._next)]
        found = [entry for entry in entries if entry]
        if not found:
            raise VaultKeyError("the keyring holds no key of this memory; without it the memory stays closed")
        for entry in found:
            with contextlib.suppress(ValueError):
                yield bytearray.fromhex(entry)

    def confirm(self, key: bytearray) -> None:
        """See `KeySource.confirm`."""
        staged = self._ring.get_password(KEYRING_SERVICE, self._next)
        if staged is None:
            return
        if staged == key.hex():
            self._ring.set_password(KEYRING_SERVICE, self._account, staged)
        self._ring.delete_password(KEYRING_SERVICE, self._next)


KEYRING_SERVICE = "lethe"


class Keyring(Protocol):
    """What we ask of the ``keyring`` package."""

    def get_password(self, service: str, username: str) -> str | None:
        """The secret, or None."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep a secret."""

    def delete_password(self, service: str, username: str) -> None:
        """Remove a secret."""


def os_keyring() -> Keyring:
    """The keyring of this desktop session.

    Raises:
        VaultKeyError: The extra is not installed, or there is no keyring here.
    """
    try:
        module: Any = importlib.import_module("keyring")
    except ImportError as err:
        raise VaultKeyError('the keyring needs the extra: pip install "lethe[keyring]"') from err
    if float(getattr(module.get_keyring(), "priority", 0)) < 1:
        raise VaultKeyError("this session has no keyring: use a passphrase or a key file")
    return _OsKeyring(module)


class _OsKeyring:
    """The ``keyring`` package with errors of ours: a locked or dismissed keyring is no crash."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def get_password(self, service: str, username: str) -> str | None:
        secret: str | None = self._call(self._module.get_password, service, username)
        return secret

    def set_password(self, service: str, username: str, password: str) -> None:
        self._call(self._module.set_password, service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        self._call(self._module.delete_password, service, username)

    def _call(self, function: Callable[..., Any], *arguments: str) -> Any:
        try:
            return function(*arguments)
        except self._module.errors.KeyringError as err:
            raise VaultKeyError(
                f"the keyring refuses: {type(err).__name__}; unlock it and try again"
            ) from err


def keyring_works() -> bool:
    """Whether a key can be kept in the keyring here."""
    try:
        os_keyring()
    except VaultKeyError:
        return False
    return True


def _stored() -> KdfParameters:
    return KdfParameters(STORED, crypto.random_bytes(SALT_BYTES))
