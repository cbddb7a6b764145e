"""Records go in with permission only, come out as they went in, and nobody else can tell what they are."""

import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edge.vault import Item, Kind, RootKind, Vault, WriteDecision
from edge.vault.keytable import STORE_OWNER
from shared.errors import PolicyError, VaultError, VaultMissingError
from tests.edge.vault.tools import ALLOWED, DENIED, enrol, open_vault, payloads, quick


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return open_vault(tmp_path / "memory")


def test_first_use_needs_no_setup_and_says_what_it_protects(vault: Vault) -> None:
    status = vault.status()

    assert (status.people, status.keys, status.generation, status.tombstones) == (0, 0, 1, 0)
    assert status.level in ("L0", "L0-")
    assert status.level_reason
    assert status.key_source == "key file"
    assert status.writer
    assert status.bytes_on_disk > 0


@pytest.mark.parametrize("payload", [b"", b"x", bytes(1024), b"\xff" * 2000, bytes(range(256)) * 400])
def test_what_was_put_is_what_is_got_after_opening_again(vault: Vault, payload: bytes) -> None:
    person = enrol(vault, payload)
    vault.close()

    with open_vault(vault.folder) as again:
        assert again.get(Kind.PERSON, person) == payload
        assert list(again.iterate(Kind.PERSON)) == [(person, [person], payload)]


def test_records_are_replaced_counted_and_deleted(vault: Vault) -> None:
    person = enrol(vault, b"first")
    vault.put(ALLOWED, Kind.PERSON, person, [person], b"second")
    vault.put(ALLOWED, Kind.ARTEFACT, b"mesh@1/a/b", [person], b"texture")

    assert vault.get(Kind.PERSON, person) == b"second"
    assert vault.status().records["artefact"] == 1
    assert vault.delete(Kind.ARTEFACT, b"mesh@1/a/b")
    assert not vault.delete(Kind.ARTEFACT, b"mesh@1/a/b")
    with pytest.raises(VaultMissingError):
        vault.get(Kind.ARTEFACT, b"mesh@1/a/b")


def test_a_record_that_changes_hands_dies_with_its_new_owner_only(vault: Vault) -> None:
    first, second = enrol(vault, b"one"), enrol(vault, b"two")
    vault.put(ALLOWED, Kind.ARTEFACT, b"texture", [first], b"of one")
    vault.put(ALLOWED, Kind.ARTEFACT, b"texture", [second], b"of two")

    vault.forget([first])
    assert payloads(vault, Kind.ARTEFACT) == {b"of two"}
    vault.forget([second])
    assert payloads(vault, Kind.ARTEFACT) == set()


@pytest.mark.parametrize(
    "decision",
    [
        DENIED,
        replace(ALLOWED, expires_at_s=99.0),
        replace(ALLOWED, usable_until_s=100.0),
        replace(ALLOWED, expires_at_s=float("nan")),
    ],
)
def test_nothing_is_written_without_an_allowing_decision_of_now(
    tmp_path: Path, decision: WriteDecision
) -> None:
    with open_vault(tmp_path / "memory", now_s=lambda: 100.0) as vault:
        person = vault.new_owner()
        before = (vault.folder / "data.mdb").read_bytes()

        with pytest.raises(PolicyError):
            vault.put(decision, Kind.PERSON, person, [person], b"face")
        with pytest.raises(PolicyError):
            vault.put_many([ALLOWED, decision], [Item(Kind.META, b"m", [], b"")] * 2)

        assert (vault.folder / "data.mdb").read_bytes() == before


def test_each_record_needs_its_decision(vault: Vault) -> None:
    with pytest.raises(PolicyError, match="each record"):
        vault.put_many([ALLOWED], [Item(Kind.META, b"a", [], b""), Item(Kind.META, b"b", [], b"")])


def test_nobody_can_be_an_owner_who_is_unknown_or_forgotten(vault: Vault) -> None:
    person = enrol(vault, b"face")
    vault.forget([person])

    for owner in (person, bytes(15) + b"x"):
        with pytest.raises(VaultMissingError, match="owner"):
            vault.put(ALLOWED, Kind.ARTEFACT, b"t", [owner], b"texture")
    assert vault.status().records["artefact"] == 0


@pytest.mark.parametrize("person", [b"short", STORE_OWNER, bytes(17)])
def test_only_ids_of_people_can_be_forgotten(vault: Vault, person: bytes) -> None:
    with pytest.raises(VaultError, match="no id of a person"):
        vault.forget([person])


def test_forgetting_a_stranger_or_nobody_changes_no_epoch(vault: Vault) -> None:
    enrol(vault, b"face")

    assert vault.forget([]).people == 0
    assert vault.forget([b"stranger to all!"]).people == 0
    assert vault.status().generation == 1
    assert payloads(vault) == {b"face"}


def test_touches_are_seen_at_once_and_written_later(vault: Vault) -> None:
    person = enrol(vault, b"seen yesterday")
    vault.put(ALLOWED, Kind.PERSON, person, [person], b"seen today", durable=False)

    assert vault.get(Kind.PERSON, person) == b"seen today"
    assert vault.status().pending == 1
    assert payloads(vault) == {b"seen today"}
    assert vault.status().pending == 0


def test_what_waits_to_be_written_is_written_by_closing_and_by_upkeep(vault: Vault) -> None:
    person = enrol(vault, b"1")
    vault.put(ALLOWED, Kind.PERSON, person, [person], b"2", durable=False)
    vault.maintenance()
    assert vault.status().pending == 0
    vault.put(ALLOWED, Kind.PERSON, person, [person], b"3", durable=False)
    vault.close()

    with open_vault(vault.folder) as again:
        assert payloads(again) == {b"3"}


def test_what_waits_to_be_written_is_forgotten_with_its_owner(vault: Vault) -> None:
    person = enrol(vault, b"1")
    vault.put(ALLOWED, Kind.PERSON, person, [person], b"2", durable=False)

    vault.forget([person])

    assert vault.status().pending == 0
    assert payloads(vault) == set()


def test_many_touches_do_not_pile_up(vault: Vault) -> None:
    for number in range(600):
        vault.put(ALLOWED, Kind.META, b"%d" % number, [], b"", durable=False)

    assert vault.status().pending < 600
    assert len(list(vault.iterate(Kind.META))) == 600


def test_secrets_differ_by_label_and_stay_through_forgets_and_new_keys(vault: Vault) -> None:
    person = enrol(vault, b"face")
    before = vault.secret("index"), vault.secret("sync")

    vault.forget([person])
    vault.rekey(quick("a passphrase"))

    assert before[0] != before[1]
    assert (vault.secret("index"), vault.secret("sync")) == before
    assert vault.is_forgotten(person)
    assert vault.tombstone_of(person) in vault.tombstones()


def test_folder_and_files_are_for_their_owner_alone(vault: Vault) -> None:
    enrol(vault, b"face")
    root = vault.folder.with_name("memory.root")

    for folder in (vault.folder, root):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [p.name for p in folder.iterdir() if stat.S_IMODE(p.stat().st_mode) & 0o077] == []
    assert (root / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")


def test_a_folder_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir(mode=0o755)

    with open_vault(tmp_path / "memory") as vault:
        assert stat.S_IMODE(vault.folder.stat().st_mode) == 0o700


def test_files_show_neither_ids_nor_names_nor_lengths(vault: Vault) -> None:
    person = enrol(vault, b"Ada")
    vault.put(ALLOWED, Kind.ARTEFACT, b"mesh@1/source/target", [person], b"A much longer name, in fact")
    shown = [path.read_bytes() for path in vault.folder.iterdir()]

    for secret in (person, b"Ada", b"mesh@1/source/target", b"longer name"):
        assert [data for data in shown if secret in data] == []


def test_a_closed_vault_is_closed(vault: Vault) -> None:
    enrol(vault, b"face")
    keys = vault._keys
    vault.close()
    vault.close()

    assert len(keys) == 0
    for use in (
        vault.status,
        vault.new_owner,
        vault.tombstones,
        lambda: vault.tombstone_of(bytes(16)),
        lambda: list(vault.iterate(Kind.META)),
    ):
        with pytest.raises(VaultError, match="closed"):
            use()  # type: ignore[operator]


def test_there_may_be_none(tmp_path: Path) -> None:
    with pytest.raises(VaultMissingError, match="no face memory"):
        open_vault(tmp_path / "memory", create=False)
    with pytest.raises(VaultMissingError, match="no face memory"):
        open_vault(tmp_path / "memory", writer=False)
    assert list(tmp_path.iterdir()) == []


def test_threads_may_share_a_vault(vault: Vault) -> None:
    def work() -> None:
        for _ in range(10):
            person = enrol(vault, b"face")
            assert vault.get(Kind.PERSON, person) == b"face"

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert vault.status().people == 40


def test_a_few_hundred_people_fill_journal_after_journal(vault: Vault) -> None:
    people = [person for _ in range(7) for person in vault.new_owners(100)]
    vault.put_many(ALLOWED, [Item(Kind.PERSON, person, [person], person) for person in people])
    vault.close()

    with open_vault(vault.folder) as again:
        assert {record_id for record_id, _, _ in again.iterate(Kind.PERSON)} == set(people)
        assert again.status().generation > 1


def test_the_root_may_lie_in_the_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = _Ring()
    monkeypatch.setattr("edge.vault.roots.os_keyring", lambda: ring)
    with open_vault(tmp_path / "memory", root_kind=RootKind.KEYRING) as vault:
        gone, stays = enrol(vault, b"gone"), enrol(vault, b"stays")
        vault.forget([gone])
        assert vault.status().level == "L1"
    assert not (tmp_path / "memory.root").exists()
    assert len(ring.entries) == 2

    with open_vault(tmp_path / "memory") as vault:
        assert vault.get(Kind.PERSON, stays) == b"stays"


class _Ring:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]
