"""What goes into the vault and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.vault.envelope import Kind
from edge.vault.keytable import PersonId


@dataclass(frozen=True, slots=True)
class Item:
    """One record to be written.

    Attributes:
        kind: What it is about.
        record_id: What the caller calls it, up to 1024 bytes; the vault shows it to nobody without a key.
        owners: Whose it is; with several it dies with any of them; with none it belongs to the vault itself.
        payload: What it holds.
    """

    kind: Kind
    record_id: bytes
    owners: Sequence[PersonId]
    payload: bytes


@dataclass(frozen=True, slots=True)
class ForgetReceipt:
    """Proof of a forget: it exists only when the old root is destroyed.

    Attributes:
        people: How many had a key, which is gone now.
        records: Sealed records that were removed as well.
        generation: The epoch that began with it.
        seconds: How long it took until the old root was destroyed.
        noted: Whether the tombstones are on the disk; False on a full disk, `Vault.maintenance` tries again.
    """

    people: int
    records: int
    generation: int
    seconds: float
    noted: bool = True


@dataclass(frozen=True, slots=True)
class VaultStatus:
    """Figures of a vault, none of which says who is in it.

    Attributes:
        folder: Where it lies.
        people: Records of kind PERSON.
        records: All records, by name of their kind.
        keys: Keys in the table, the vault's own not counted.
        bytes_on_disk: Of the folder and of the root.
        level: ``L0``, ``L0-`` or ``L1``, see `edge.vault.roots`.
        level_reason: Why, as one clause.
        generation: Counts epochs: one for each forget.
        key_source: ``passphrase``, ``key file`` or ``keyring``.
        cipher: What new records are sealed with.
        readers: Processes that have it open, this one included.
        tombstones: People forgotten so far.
        pending: Records not written to the disk yet.
        writer: Whether this process may write.
    """

    folder: Path
    people: int
    records: dict[str, int]
    keys: int
    bytes_on_disk: int
    level: str
    level_reason: str
    generation: int
    key_source: str
    cipher: str
    readers: int
    tombstones: int
    pending: int
    writer: bool
