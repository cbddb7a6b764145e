"""Opens the vault of the memory: where it lies, with which key, not before there is something to write."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from edge.memory.settings import PASSPHRASE_VARIABLE, KeyPlace, MemorySettings
from edge.vault import KeyFile, KeyringKey, KeySource, Passphrase, Vault
from edge.vault.roots import root_folder
from shared.errors import VaultError, VaultKeyError, VaultLockedError, VaultMissingError

Notify: TypeAlias = Callable[[str], None]
AskPassphrase: TypeAlias = Callable[[], str]


_TRY_AGAIN_S = 0.05


def passphrase_of_environment() -> str:
    """The passphrase of the memory where nobody can be asked.

    Raises:
        VaultKeyError: If its variable is not set.
    """
    text = os.environ.get(PASSPHRASE_VARIABLE)
    if not text:
        raise VaultKeyError(f"the face memory has a passphrase: set {PASSPHRASE_VARIABLE}")
    return text


def key_source(place: KeyPlace, folder: Path, passphrase: AskPassphrase) -> KeySource:
    """What opens the vault of a folder.

    Args:
        place: Where its key is.
        folder: The vault's.
        passphrase: Asked where it is in somebody's head.
    """
    match place:
        case "file":
            # With the root, which no copy of the vault's folder takes along.
            return KeyFile(root_folder(folder) / "key")
        case "keyring":
            return KeyringKey(str(folder))
        case "passphrase":
            return Passphrase(passphrase())


class VaultAccess:
    """The vault of the memory, which is made when first something is to be written.

    Args:
        settings: Where it lies and what opens it.
        notify: Told when it is made.
        passphrase: Asked where the key is a passphrase.
        writer: To write; one process at a time can.
        patience_s: How long to wait for another one to be done, seconds.
        now_s: Wall clock, seconds since 1970.

    Raises:
        VaultLockedError: If another process writes to it.
        VaultKeyError: If the key does not open it.
        VaultError: If it cannot be read.
    """

    def __init__(
        self,
        settings: MemorySettings,
        *,
        notify: Notify,
        passphrase: AskPassphrase = passphrase_of_environment,
        writer: bool = True,
        patience_s: float = 0.0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.folder = settings.folder.expanduser().absolute()
        self.is_writer = writer
        self._settings = settings
        self._notify = notify
        self._passphrase = passphrase
        self._now_s = now_s
        self._patience_s = patience_s
        # Nobody is asked for the passphrase of a memory that does not exist.
        self._closed = False
        self._level: str | None = None
        self._vault = self._open(create=False) if self.folder.exists() else None

    @property
    def vault(self) -> Vault | None:
        """The vault; None while there is none.

        Raises:
            VaultError: If it was closed: nothing may seem forgotten because nobody looked.
        """
        self.check_open()
        return self._vault

    def check_open(self) -> None:
        """Raise VaultError where the vault was closed."""
        if self._closed:
            raise VaultError(f"{self.folder}: the face memory is closed")

    @property
    def level(self) -> str:
        """How far a forget reaches here; ``-`` while there is no vault."""
        if self._level is None and self.vault is not None:
            self._level = self.vault.status().level
        return self._level or "-"

    def to_write(self) -> Vault:
        """The vault; it is made if there is none.

        Raises:
            VaultLockedError: If this process may only read.
        """
        if not self.is_writer:
            raise VaultLockedError(
                f"{self.folder}: another process writes to this face memory; wait until it is done"
            )
        vault = self.vault
        if vault is None:
            vault = self._vault = self._open(create=True)
            assert vault is not None
            status = vault.status()
            self._notify(
                f"the face memory is made in {self.folder} "
                f"({status.key_source}; forgetting at level {status.level}: {status.level_reason})"
            )
        return vault

    def close(self) -> None:
        """Let go of the vault; closing twice is closing once."""
        if self._vault is not None:
            self._vault.close()
        self._closed = True

    def new_key(self, place: KeyPlace, passphrase: AskPassphrase) -> KeySource:
        """Another key for this vault."""
        return key_source(place, self.folder, passphrase)

    def _open(self, *, create: bool) -> Vault | None:
        key = key_source(self._settings.key, self.folder, self._passphrase)
        ends_s = time.monotonic() + self._patience_s
        while True:
            try:
                return Vault.open(self.folder, key, writer=self.is_writer, create=create, now_s=self._now_s)
            except VaultMissingError:
                return None
            except VaultLockedError:
                if time.monotonic() >= ends_s:
                    raise
                time.sleep(_TRY_AGAIN_S)
