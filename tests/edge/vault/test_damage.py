"""Altered, moved, cut, rolled back, full, read-only: the vault notices, says so, and loses no more."""

import contextlib
import errno
import hashlib
import shutil
from pathlib import Path

import lmdb
import pytest

from edge.vault import Kind, Vault, crypto, filesystem
from edge.vault.database import DiskFullError
from edge.vault.disk import RealDisk
from edge.vault.kek import ARGON2ID, KdfParameters
from edge.vault.roots import SLOT_BYTES
from shared.errors import (
    VaultError,
    VaultIntegrityError,
    VaultKeyError,
    VaultMissingError,
)
from tests.edge.vault.tools import ALLOWED, enrol, key_of, open_vault, payloads, quick


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A vault of three people, closed."""
    with open_vault(tmp_path / "memory") as vault:
        for name in (b"one", b"two", b"three"):
            enrol(vault, name)
    return tmp_path / "memory"


def _records(folder: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(folder), max_dbs=5) as env:
        table = env.open_db(b"r")
        with env.begin(db=table) as transaction:
            return dict(transaction.cursor())


def _set_record(folder: Path, key: bytes, value: bytes) -> None:
    with lmdb.open(str(folder), max_dbs=5) as env:
        table = env.open_db(b"r")
        with env.begin(write=True, db=table) as transaction:
            transaction.put(key, value)


@pytest.mark.parametrize("place", [0, 2, 3, 4, 5, 8, 20, 40, 60, -1])
def test_a_record_of_which_one_bit_was_altered_is_refused(folder: Path, place: int) -> None:
    key, value = next(iter(_records(folder).items()))
    altered = bytearray(value)
    altered[place] ^= 1
    _set_record(folder, key, bytes(altered))

    with open_vault(folder) as vault:
        readable = []
        with pytest.raises((VaultIntegrityError, VaultMissingError)):
            readable = [vault.get(Kind.PERSON, person) for person in vault.owners()]
        damage: list[VaultIntegrityError] = []
        readable = [payload for _, _, payload in vault.iterate(Kind.PERSON, on_damage=damage.append)]
        assert len(readable) == 2


def test_records_that_changed_places_are_refused(folder: Path) -> None:
    (first, a), (second, b), *_ = _records(folder).items()
    _set_record(folder, first, b)
    _set_record(folder, second, a)

    with open_vault(folder) as vault, pytest.raises(VaultIntegrityError, match="another one belongs"):
        payloads(vault)


def test_a_record_cannot_be_given_to_another_person_or_kind(folder: Path) -> None:
    (key, value), (_, other), *_ = _records(folder).items()
    stolen = value[:35] + other[35:51] + value[51:]
    _set_record(folder, key, stolen)
    moved = bytes([Kind.META]) + key[1:]
    _set_record(folder, moved, value[:4] + bytes([Kind.META]) + value[5:])

    with open_vault(folder) as vault:
        for kind in (Kind.PERSON, Kind.META):
            with pytest.raises(VaultIntegrityError, match="authenticate"):
                payloads(vault, kind)


def test_a_record_of_another_vault_is_refused(folder: Path, tmp_path: Path) -> None:
    with open_vault(tmp_path / "other") as vault:
        enrol(vault, b"elsewhere")
    key, value = next(iter(_records(tmp_path / "other").items()))
    _set_record(folder, key, value)

    with open_vault(folder) as vault:
        assert payloads(vault) == {b"one", b"two", b"three"}


def test_an_old_key_table_put_back_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copy2(folder / "keys-1.tab", tmp_path / "old.tab")
    with open_vault(folder) as vault:
        vault.forget(vault.owners()[:1])
    shutil.copy2(tmp_path / "old.tab", folder / "keys-1.tab")

    with pytest.raises(VaultIntegrityError, match="key table"):
        open_vault(folder)


def test_an_old_root_put_back_with_its_table_is_noticed(folder: Path, tmp_path: Path) -> None:
    root = folder.with_name("memory.root")
    shutil.copy2(folder / "keys-1.tab", tmp_path / "old.tab")
    shutil.copy2(root / "slots", tmp_path / "old.slots")
    with open_vault(folder) as vault:
        vault.forget(vault.owners()[:1])
    shutil.copy2(tmp_path / "old.tab", folder / "keys-1.tab")
    shutil.copy2(tmp_path / "old.slots", root / "slots")

    with pytest.raises(VaultIntegrityError, match="an old copy was put back"):
        open_vault(folder)


@pytest.mark.parametrize("place", [5, 20, 60, 120, 180, 230, SLOT_BYTES - 1])
def test_a_root_that_was_altered_opens_nothing(folder: Path, place: int) -> None:
    slots = folder.with_name("memory.root") / "slots"
    data = bytearray(slots.read_bytes())
    data[4096 + place] ^= 1
    slots.write_bytes(bytes(data))

    with pytest.raises(VaultIntegrityError, match="missing or damaged"):
        open_vault(folder)


@pytest.mark.parametrize("name", ["keys-1.tab", "data.mdb", "vault"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_file_that_was_cut_short_is_an_error_and_not_a_crash(folder: Path, name: str, share: float) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(len(data) * share)])

    # What was cut off may have been reserve.
    with contextlib.suppress(VaultError), open_vault(folder) as vault:
        payloads(vault)
        enrol(vault, b"new")


@pytest.mark.parametrize("name", ["keys-1.tab", "data.mdb"])
def test_a_file_that_is_missing_is_an_error(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises(VaultIntegrityError, match="missing"):
        open_vault(folder)


def test_tombstones_torn_or_made_up_are_none(folder: Path) -> None:
    with open_vault(folder) as vault:
        first, second, _ = vault.owners()
        vault.forget([first])
        (folder / "tombstones").write_bytes((folder / "tombstones").read_bytes() + bytes(64) + b"torn")
    with open_vault(folder) as vault:
        assert len(vault.tombstones()) == 1
        vault.forget([second])
    with open_vault(folder) as vault:
        assert len(vault.tombstones()) == 2
        assert vault.status().people == 1


def test_a_wrong_passphrase_opens_nothing_and_harms_nothing(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory", quick("right")) as vault:
        person = enrol(vault, b"face")
    before = (tmp_path / "memory.root" / "slots").read_bytes()

    with pytest.raises(VaultKeyError, match="does not open") as caught:
        open_vault(tmp_path / "memory", quick("wrong"))

    assert caught.value.exit_code == 2
    assert (tmp_path / "memory.root" / "slots").read_bytes() == before
    with open_vault(tmp_path / "memory", quick("right")) as vault:
        assert vault.get(Kind.PERSON, person) == b"face"
        assert vault.status().key_source == "passphrase"


def test_a_passphrase_does_not_open_what_a_key_file_closed(folder: Path) -> None:
    with pytest.raises(VaultKeyError, match="passphrase does not open"):
        open_vault(folder, quick("anything"))


def test_after_a_new_key_the_old_one_opens_nothing(folder: Path) -> None:
    with open_vault(folder) as vault:
        vault.rekey(quick("new"))
        assert vault.status().generation == 2

    with pytest.raises(VaultKeyError):
        open_vault(folder)
    with open_vault(folder, quick("new")) as vault:
        assert payloads(vault) == {b"one", b"two", b"three"}


def test_a_key_file_that_is_gone_is_named(folder: Path) -> None:
    key_of(folder).path.unlink()

    with pytest.raises(VaultKeyError, match=r"memory\.key: the key file is missing"):
        open_vault(folder)


@pytest.mark.parametrize(
    ("memory_kib", "passes", "lanes"),
    [(64 << 20, 3, 2), (1 << 31, 1, 1), (65536, 1 << 30, 1), (65536, 3, 1 << 20), (65536, 0, 1), (8, 1, 1)],
)
def test_a_root_that_asks_for_too_much_work_is_refused_at_once(
    tmp_path: Path, memory_kib: int, passes: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_vault(tmp_path / "memory", quick("right")).close()
    slots = tmp_path / "memory.root" / "slots"
    data = slots.read_bytes()
    honest = KdfParameters(ARGON2ID, bytes(16), 8192, 1, 1).packed()[:13]
    numbers = b"".join(number.to_bytes(4, "big") for number in (memory_kib, passes, lanes))
    at = data.index(honest)
    data = data[:at] + bytes([ARGON2ID]) + numbers + data[at + 13 :]
    body = data[4096 : 4096 + SLOT_BYTES - 32]
    slots.write_bytes(data[:4096] + body + hashlib.sha256(body).digest() + data[4096 + SLOT_BYTES :])
    monkeypatch.setattr(crypto, "stretch", lambda *_, **__: pytest.fail("it was tried"))

    with pytest.raises(VaultIntegrityError, match="out of bounds"):
        open_vault(tmp_path / "memory", quick("right"))


def test_a_remote_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/share rw\n")
    monkeypatch.setattr(filesystem, "MOUNTS", mounts)

    with pytest.raises(VaultError, match="lies on nfs4"):
        open_vault(tmp_path / "memory")
    assert not (tmp_path / "memory").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(VaultError, match="cannot be kept here"):
        open_vault(tmp_path / "file" / "memory")


class _ReadOnlyDisk(RealDisk):
    def write(self, path: Path, offset: int, data: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))


def test_a_read_only_disk_fails_the_call_and_the_vault_stays_usable(folder: Path) -> None:
    with open_vault(folder) as vault:
        vault._disk = vault._keys._disk = _ReadOnlyDisk()
        with pytest.raises(VaultError, match="Read-only"):
            vault.new_owner()
        assert payloads(vault) == {b"one", b"two", b"three"}


class _FullDisk(RealDisk):
    """Lets what exists be overwritten, and nothing grow."""

    def allocate(self, path: Path, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def write(self, path: Path, offset: int, data: bytes) -> None:
        if not path.exists() or offset + len(data) > path.stat().st_size:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        super().write(path, offset, data)


def _no_room(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    vault._log._disk = vault._keys._disk = _FullDisk()

    def full(*_: object, **__: object) -> None:
        raise DiskFullError("full")

    monkeypatch.setattr(vault._db, "writing", full)


def test_a_forget_needs_no_free_space(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_vault(folder) as vault:
        victim = next(person for person, _, payload in vault.iterate(Kind.PERSON) if payload == b"two")
        with monkeypatch.context() as patch:
            _no_room(vault, patch)
            with pytest.raises(DiskFullError):
                vault.put(ALLOWED, Kind.META, b"m", [], b"")
            receipt = vault.forget([victim])

        assert (receipt.people, receipt.records, receipt.noted) == (1, 0, False)
        assert vault.is_forgotten(victim)
        assert payloads(vault) == {b"one", b"three"}
        assert not (folder / "ballast").exists()

        vault._log._disk = vault._keys._disk = RealDisk()
        vault.maintenance()
        assert vault.status().records["person"] == 2
        assert (folder / "ballast").stat().st_size == 1 << 20
    with open_vault(folder) as vault:
        assert vault.is_forgotten(victim)


def test_the_ballast_makes_room_for_the_note_of_a_forget(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_vault(folder) as vault:
        victim, writing = vault.owners()[0], vault._db.writing

        def full_with_ballast() -> object:
            if (folder / "ballast").exists():
                raise DiskFullError("full")
            return writing()

        monkeypatch.setattr(vault._db, "writing", full_with_ballast)
        receipt = vault.forget([victim])

    assert (receipt.people, receipt.records, receipt.noted) == (1, 1, True)


def test_growing_on_a_full_disk_fails_before_anything_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.vault.keytable.ONE_LEVEL_LIMIT", 4)
    with open_vault(folder) as vault:
        vault._keys._disk = _FullDisk()
        with pytest.raises(DiskFullError):
            vault.new_owner()
        assert payloads(vault) == {b"one", b"two", b"three"}
        vault._keys._disk = RealDisk()
        assert enrol(vault, b"four")
