"""The parts of the vault one by one: keys, roots, table, envelopes, file systems."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.vault import KeyFile, KeyringKey, Kind, Passphrase, crypto, envelope, filesystem, keytable
from edge.vault.disk import RealDisk
from edge.vault.filesystem import Ballast, Mount, mount_of
from edge.vault.kek import STORED, KdfParameters, os_keyring
from edge.vault.keytable import KeyTable, Layout
from edge.vault.roots import FileRootStore, Wrapping, destroyed_slot, is_destroyed, parse_slot
from shared.errors import VaultError, VaultIntegrityError, VaultKeyError
from tests.edge.vault.tools import quick

STORE = bytes(range(16))


@pytest.mark.parametrize("algorithm", list(crypto.Algorithm))
def test_a_sealed_blob_opens_with_its_key_and_its_context_only(
    algorithm: crypto.Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crypto, "preferred_algorithm", lambda: algorithm)
    key = crypto.new_key()
    blob = crypto.seal(key, b"secret", b"here")

    assert blob[0] == algorithm
    assert crypto.unseal(key, blob, b"here", "it") == b"secret"
    for other, text, aad in (
        (crypto.new_key(), blob, b"here"),
        (key, blob, b"there"),
        (key, blob[:-1], b"here"),
    ):
        with pytest.raises(VaultIntegrityError, match="it does not authenticate"):
            crypto.unseal(other, text, aad, "it")
    with pytest.raises(VaultIntegrityError, match="it is cut short"):
        crypto.unseal(key, blob[:20], b"here", "it")


def test_machines_without_aes_instructions_use_the_other_cipher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, expected in (
        ("flags\t\t: fpu aes sse", crypto.Algorithm.AES_256_GCM),
        ("flags\t\t: fpu sse", crypto.Algorithm.CHACHA20_POLY1305),
        ("Features\t: fp asimd crc32", crypto.Algorithm.CHACHA20_POLY1305),
        ("processor\t: 0", crypto.Algorithm.AES_256_GCM),
    ):
        monkeypatch.setattr(Path, "read_text", lambda *_, text=text, **__: text)
        assert crypto.preferred_algorithm.__wrapped__() == expected


def test_keys_for_different_purposes_differ_and_keys_can_be_wiped() -> None:
    key = crypto.new_key()
    assert len({bytes(crypto.derive(key, label)) for label in ("a", "b")} | {bytes(key)}) == 3
    assert crypto.derive(key, "a", b"1") != crypto.derive(key, "a", b"2")
    crypto.wipe(key)
    assert key == bytes(32)


def test_blind_names_of_many_are_those_of_each() -> None:
    key, ids = crypto.new_key(), [crypto.random_bytes(16) for _ in range(5)]

    assert crypto.blind_ids(key, b"".join(ids)) == b"".join(crypto.blind_ids(key, each) for each in ids)
    assert crypto.blind_ids(key, b"") == b""


@given(
    payload=st.binary(max_size=6000),
    record_id=st.binary(max_size=64),
    owners=st.integers(0, 4),
    kind=st.sampled_from(Kind),
)
def test_records_come_back_and_show_no_lengths(
    payload: bytes, record_id: bytes, owners: int, kind: Kind
) -> None:
    key, names = crypto.new_key(), [crypto.random_bytes(16) for _ in range(owners)]
    blob = envelope.seal_record(key, STORE, kind, bytes(16), names, record_id, payload, 7)
    head = envelope.parse_head(blob)

    assert envelope.unseal_record(key, STORE, blob, head) == (record_id, payload)
    assert (head.kind, head.owners, head.sequence, head.size) == (kind, tuple(names), 7, len(blob))
    with pytest.raises(VaultIntegrityError):
        envelope.unseal_record(key, bytes(16), blob, head)
    with pytest.raises(VaultIntegrityError):
        envelope.parse_head(blob[:-1])


@given(size=st.integers(0, 1 << 20))
def test_buckets_hold_what_they_are_for_and_fill_pages(size: int) -> None:
    padded = envelope.padded_size(size)
    sealed = padded + envelope.HEAD_BYTES + 16 + 28

    assert padded >= size
    assert padded == envelope.padded_size(padded)
    assert sealed <= 2000 or (sealed + 16) % 4096 > 3800


def test_a_key_of_several_people_needs_all_of_them_in_any_order() -> None:
    a, b = crypto.new_key(), crypto.new_key()

    assert envelope.record_key([a], b"n") is a
    assert envelope.record_key([a, b], b"n") == envelope.record_key([b, a], b"n")
    assert (
        len(
            {bytes(envelope.record_key(deks, n)) for deks, n in (([a, b], b"n"), ([a, b], b"m"), ([a], b"n"))}
        )
        == 3
    )


def test_a_record_has_limits() -> None:
    with pytest.raises(VaultError, match="too long"):
        envelope.seal_record(bytes(32), STORE, Kind.META, bytes(16), [], bytes(2000), b"", 1)


def test_a_passphrase_gives_one_key_for_one_salt_however_it_is_typed() -> None:
    kdf, key = quick("Zürich").fresh(reuse=False)

    assert list(quick("Zu\u0308rich").keys(kdf)) == [key]
    assert list(quick("Zurich").keys(kdf)) != [key]
    assert quick("Zürich").fresh(reuse=False)[1] != key
    with pytest.raises(VaultKeyError, match="empty"):
        Passphrase("")


def test_a_key_file_is_private_and_replaced_only_when_confirmed(tmp_path: Path) -> None:
    source = KeyFile(tmp_path / "sub" / "key")
    kdf, first = source.fresh(reuse=True)
    source.confirm(first)
    assert stat.S_IMODE(source.path.stat().st_mode) == 0o600
    assert source.fresh(reuse=True)[1] == first

    _, second = source.fresh(reuse=False)
    assert list(source.keys(kdf)) == [first, second]
    source.confirm(first)
    assert list(source.keys(kdf)) == [first]
    _, third = source.fresh(reuse=False)
    source.confirm(third)
    assert list(source.keys(kdf)) == [third]


@pytest.mark.parametrize(
    ("content", "mode", "reason"), [(bytes(32), 0o644, "chmod 600"), (b"x", 0o600, "no key file")]
)
def test_a_key_file_that_cannot_be_one_is_refused(
    tmp_path: Path, content: bytes, mode: int, reason: str
) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(mode)

    with pytest.raises(VaultKeyError, match=reason):
        list(KeyFile(tmp_path / "key").keys(KdfParameters(STORED, bytes(16))))


class _Ring(dict[tuple[str, str], str]):
    def get_password(self, service: str, username: str) -> str | None:
        return self.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self[service, username]


def test_a_key_in_the_keyring_is_replaced_only_when_confirmed() -> None:
    source = KeyringKey("memory", ring=_Ring())
    kdf, first = source.fresh(reuse=True)
    source.confirm(first)
    assert source.fresh(reuse=True)[1] == first
    _, second = source.fresh(reuse=False)

    assert list(source.keys(kdf)) == [first, second]
    source.confirm(second)
    assert list(source.keys(kdf)) == [second]
    with pytest.raises(VaultKeyError, match="no key of this memory"):
        list(KeyringKey("other", ring=_Ring()).keys(kdf))


def test_a_session_without_a_keyring_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Module:
        @staticmethod
        def get_keyring() -> object:
            return object()

    monkeypatch.setattr("importlib.import_module", lambda name: _Module)
    with pytest.raises(VaultKeyError, match="no keyring"):
        os_keyring()


def test_a_keyring_that_is_locked_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Errors:
        KeyringError = RuntimeError

    class _Backend:
        priority = 5

    class _Module:
        errors = _Errors
        get_keyring = _Backend

        @staticmethod
        def get_password(service: str, username: str) -> str:
            raise RuntimeError("locked")

    monkeypatch.setattr("importlib.import_module", lambda name: _Module)
    with pytest.raises(VaultKeyError, match="unlock it"):
        KeyringKey("memory").fresh(reuse=True)


@pytest.fixture
def table(tmp_path: Path) -> KeyTable:
    return _new_table(tmp_path)


def _new_table(folder: Path) -> KeyTable:
    disk = RealDisk()
    roots = FileRootStore(folder / "memory", disk)
    roots.prepare()
    wrapping = Wrapping(KdfParameters(STORED, bytes(16)), crypto.new_key())
    return KeyTable.create(folder, disk, roots, STORE, wrapping)


def _loaded(table: KeyTable) -> KeyTable:
    sealed = [slot for slot in map(parse_slot, table._roots.read()) if slot is not None]
    assert len(sealed) == 1
    return KeyTable.load(table._folder, RealDisk(), table._roots, sealed[0], table.wrapping.kek)


def test_a_table_comes_back_with_the_same_keys(table: KeyTable) -> None:
    people = [crypto.random_bytes(16) for _ in range(600)]
    for start in range(0, 600, 60):
        table.add(people[start : start + 60])
    table.change_epoch(remove=people[:50])

    again = _loaded(table)

    assert set(again) == set(table)
    assert len(again) == 551
    assert all(again.find(person) == table.find(person) for person in people)


def test_a_large_table_has_two_levels_and_a_forget_writes_little_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keytable, "ONE_LEVEL_LIMIT", 3000)
    table = _new_table(tmp_path)
    people = [crypto.random_bytes(16) for _ in range(4000)]
    table.add(people)
    table.scrub()
    written: list[int] = []
    original = RealDisk.write

    def note(self: RealDisk, path: Path, offset: int, data: bytes) -> None:
        written.append(len(data))
        original(self, path, offset, data)

    monkeypatch.setattr(RealDisk, "write", note)
    table.change_epoch(remove=people[:1])
    table.scrub()

    assert sum(written) < table.path.stat().st_size / 20
    again = _loaded(table)
    assert len(again) == 4000
    assert again.find(people[0]) is None
    assert all(again.find(person) is not None for person in people[1:])
    table.change_epoch(remove=people[:3900])
    assert len(_loaded(table)) == 101


@pytest.mark.parametrize("count", [1, 1024, 1025, 20_000, 20_001, 100_000, 1_000_000])
def test_layouts_have_room_for_what_they_are_made_for(count: int) -> None:
    layout = Layout.for_keys(count)

    assert layout.segments * layout.capacity >= count
    assert layout.segments == (1 if count <= 20_000 else 256)
    assert layout.file_bytes < 48 * count * 6 + (1 << 20) * 4


@pytest.mark.parametrize(("segments", "capacity"), [(0, 10), (2, 10), (1, 0), (1, 1 << 30)])
def test_a_layout_that_nobody_made_is_refused(segments: int, capacity: int) -> None:
    with pytest.raises(VaultIntegrityError):
        Layout(segments, capacity)


def test_a_destroyed_slot_can_be_told_from_a_torn_one() -> None:
    slot = destroyed_slot()

    assert is_destroyed(slot)
    assert is_destroyed(bytes(len(slot)))
    assert is_destroyed(b"")
    assert not is_destroyed(slot[:100] + bytes(len(slot) - 100))
    assert parse_slot(slot) is None


def _mounts(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_file_system_of_a_folder_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = _mounts(
        tmp_path,
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
        f"30 22 0:40 / {tmp_path}/with\\040space rw shared:1 - btrfs /dev/sdb rw,ssd",
        f"31 22 0:41 / {tmp_path}/journal rw - ext4 /dev/sdc rw,data=journal",
        "broken line",
    )

    assert mount_of(tmp_path / "a", mounts).overwrites()[0]
    kind = mount_of(tmp_path / "with space" / "memory", mounts)
    assert (kind.kind, kind.overwrites()[0], kind.is_remote) == ("btrfs", False, False)
    in_place, reason = mount_of(tmp_path / "journal", mounts).overwrites()
    assert not in_place
    assert "data=journal" in reason
    assert mount_of(tmp_path, tmp_path / "missing").overwrites() == (False, "the file system is not known")


@pytest.mark.parametrize(
    ("kind", "remote"),
    [("nfs", True), ("nfs4", True), ("cifs", True), ("9p", True), ("fuse.sshfs", True), ("smb3", True)]
    + [(kind, False) for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk", "f2fs", "")],
)
def test_file_systems_of_other_machines_are_known(kind: str, remote: bool) -> None:
    assert Mount(kind).is_remote is remote


def test_the_ballast_is_taken_once_and_given_back(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", 8192)

    assert ballast.load()
    assert ballast.load()
    assert (tmp_path / "ballast").stat().st_size == 8192
    ballast.drop()
    ballast.drop()
    assert not (tmp_path / "ballast").exists()
    assert not Ballast(tmp_path / "missing" / "ballast").load()


def test_a_crash_writes_no_memory_to_disk() -> None:
    resource = pytest.importorskip("resource")
    filesystem.forbid_core_dumps()

    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
