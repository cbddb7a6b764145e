"""People in a file that is encrypted with age, to move them to another machine or to keep a copy.

A bundle is one age file; inside is JSON: a version, the people as their records, the tombstones of whoever
was forgotten, and the key to compare them. What a bundle brings never overrides a tombstone, neither its own
nor the receiver's. Prepared pictures, rules, keys and the journal are not in it. The extra ``age`` brings the
package this needs.
"""

import base64
import binascii
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from edge.outputs import atomic_output
from shared.errors import ConfigError, InputError, OutputError, UsageError

_FORMAT = "lethe-memory-bundle"
_VERSION = 1
_LARGEST_BYTES = 1 << 30
_MOST_PEOPLE = 1_000_000
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class BundledPerson:
    """One person as a bundle holds them.

    Attributes:
        person_id: The id they had where the bundle was made; 16 bytes.
        record: Their record, as the store keeps it, in clear.
    """

    person_id: bytes
    record: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is in a bundle.

    Attributes:
        people: Whoever was remembered.
        tombstones: Keyed hashes of the ids of whoever was forgotten.
        sync_key: The key of those hashes.
        made_at_s: When it was made, seconds since 1970.
    """

    people: tuple[BundledPerson, ...]
    tombstones: frozenset[bytes] = field(repr=False)
    sync_key: bytes = field(repr=False)
    made_at_s: float


def write_bundle(
    path: Path, bundle: Bundle, *, recipients: Sequence[str] = (), passphrase: str | None = None
) -> Path | None:
    """Encrypt a bundle into a file.

    Args:
        path: The file; it must not exist yet.
        bundle: What to write.
        recipients: Public keys (``age1…`` or ssh) of who may open it.
        passphrase: Instead of recipients.

    Returns:
        The file with the key that opens it, made beside it where neither was given; else None.

    Raises:
        UsageError: If a recipient is no public key, or the file exists.
        ConfigError: If the extra is not installed.
        OutputError: If it cannot be written.
    """
    age = _age()
    if path.exists():
        raise UsageError(f"{path}: exists already; choose another name")
    plain = json.dumps(_to_json(bundle)).encode()
    if passphrase is not None:
        _write(path, age.passphrase.encrypt(plain, passphrase))
        return None
    if recipients:
        _write(path, age.encrypt(plain, [_recipient(age, text) for text in recipients]))
        return None
    return _write_with_fresh_key(age, path, plain)


def _write_with_fresh_key(age: ModuleType, path: Path, plain: bytes) -> Path:
    key_file = path.with_name(path.name + ".key")
    if key_file.exists():
        raise UsageError(f"{key_file}: exists already; choose another name for the bundle")
    identity = age.x25519.Identity.generate()
    public = identity.to_public()
    # The key first: a bundle that nothing opens would be worthless.
    _write(key_file, f"# public key: {public}\n{identity}\n".encode())
    try:
        _write(path, age.encrypt(plain, [public]))
    except BaseException:
        key_file.unlink(missing_ok=True)
        raise
    return key_file


def _write(path: Path, data: bytes) -> None:
    """Write a file that nobody but the user may read."""
    with atomic_output(path) as part:
        try:
            os.chmod(part, 0o600)  # noqa: PTH101 - beside its write, which is of the same kind
            part.write_bytes(data)
        except OSError as err:
            raise OutputError(path, err.strerror or str(err)) from err


def read_bundle(path: Path, *, identity: Path | None = None, passphrase: str | None = None) -> Bundle:
    """Decrypt a bundle and check its form.

    Args:
        path: The file.
        identity: File with the age or ssh key that opens it.
        passphrase: Instead of an identity.

    Raises:
        InputError: If it cannot be read, does not open, or is no bundle of ours.
        UsageError: If the identity file holds no key.
        ConfigError: If the extra is not installed.
    """
    age = _age()
    sealed = _read(path, _LARGEST_BYTES)
    try:
        if passphrase is not None:
            plain = age.passphrase.decrypt(sealed, passphrase)
        else:
            plain = age.decrypt(sealed, _identities(age, identity))
    except age.DecryptError as err:
        key = "passphrase" if passphrase is not None else "key"
        raise InputError(path, f"does not open: wrong {key}, or no age file ({err})") from err
    return _from_json(path, plain)


def _read(path: Path, largest: int) -> bytes:
    try:
        if path.stat().st_size > largest:
            raise InputError(path, f"is larger than {largest >> 20} MB")
        return path.read_bytes()
    except OSError as err:
        raise InputError(path, err.strerror or "cannot be read") from err


def _age() -> Any:
    try:
        import pyrage
    except ImportError as err:
        raise ConfigError('bundles need the extra "age": pip install "lethe[age]"') from err
    return pyrage


def _recipient(age: ModuleType, text: str) -> object:
    try:
        kind = age.ssh.Recipient if text.startswith("ssh-") else age.x25519.Recipient
        return kind.from_str(text)
    except age.RecipientError as err:
        raise UsageError(f"--recipient {text}: is no public key (age1… or ssh-…)") from err


def _identities(age: ModuleType, path: Path | None) -> list[object]:
    if path is None:
        raise UsageError("a bundle needs a key: give --identity FILE, or a passphrase")
    data = _read(path, 1 << 20)
    try:
        if data.lstrip().startswith(b"-----BEGIN"):
            return [age.ssh.Identity.from_buffer(data)]
        lines = [line.strip() for line in data.decode("utf-8").splitlines()]
        keys = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (age.IdentityError, UnicodeDecodeError) as err:
        raise UsageError(f"--identity {path}: holds no age or ssh key") from err
    if not keys:
        raise UsageError(f"--identity {path}: holds no age or ssh key")
    return keys


def _to_json(bundle: Bundle) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "made_at_s": bundle.made_at_s,
        "sync_key": _text(bundle.sync_key),
        "tombstones": sorted(_text(stone) for stone in bundle.tombstones),
        "people": [{"id": p.person_id.hex(), "record": _text(p.record)} for p in bundle.people],
    }


def _from_json(path: Path, plain: bytes) -> Bundle:
    try:
        tree = json.loads(plain)
        if tree["format"] != _FORMAT:
            raise ValueError("it is something else")
        if tree["version"] != _VERSION:
            raise InputError(path, f"is of version {tree['version']}, which needs a newer Lethe")
        if len(tree["people"]) > _MOST_PEOPLE:
            raise ValueError("too many people")
        return Bundle(
            tuple(_person(entry) for entry in tree["people"]),
            frozenset(_bytes(stone) for stone in tree["tombstones"]),
            _bytes(tree["sync_key"]),
            float(tree["made_at_s"]),
        )
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as err:
        raise InputError(path, "opens, but is no bundle of a face memory") from err


def _person(entry: Mapping[str, str]) -> BundledPerson:
    person_id = bytes.fromhex(entry["id"])
    if len(person_id) != _ID_BYTES:
        raise ValueError("an id has 16 bytes")
    return BundledPerson(person_id, _bytes(entry["record"]))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
