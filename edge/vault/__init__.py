"""The encrypted store of the face memory; see `edge.vault.store` for what it promises and how.

Only this package imports lmdb and cryptography.
"""

from edge.vault.decisions import WriteDecision
from edge.vault.envelope import Kind
from edge.vault.kek import KeyFile, KeyringKey, KeySource, Passphrase, keyring_works
from edge.vault.keytable import PersonId
from edge.vault.roots import RootKind
from edge.vault.store import ForgetReceipt, Item, Vault, VaultStatus
from edge.vault.verify import VerifyReport

__all__ = [
    "ForgetReceipt",
    "Item",
    "KeyFile",
    "KeySource",
    "KeyringKey",
    "Kind",
    "Passphrase",
    "PersonId",
    "RootKind",
    "Vault",
    "VaultStatus",
    "VerifyReport",
    "WriteDecision",
    "keyring_works",
]
