"""With every old copy and every present key nothing of the forgotten can be read, and all of the others."""

import base64
import random
import shutil
import time
from pathlib import Path

import lmdb
import numpy as np
import pytest

from edge.vault import Kind, PersonId, Vault, crypto, envelope
from edge.vault.keytable import KeyTable
from tests.edge.vault.adversary import files_of, recovered
from tests.edge.vault.tools import ALLOWED, enrol, key_of, open_vault, payloads

PEOPLE = 150
FORGOTTEN = 30


def _canary(number: int) -> bytes:
    """A made-up face and name that occur nowhere else."""
    face = np.random.default_rng(1000 + number).normal(size=192).astype(np.float16)
    return f"Canary Person {number:04d}".encode() + face.tobytes()


def _encodings(canary: bytes) -> list[bytes]:
    """How a canary might have leaked."""
    face = np.frombuffer(canary[-384:], np.float16)
    quantised = np.round(face.astype(np.float32) * 127 / np.abs(face).max()).astype(np.int8)
    raw = [canary[:18], canary[-384:], face.astype(np.float32).tobytes(), quantised.tobytes()]
    spelled = [
        text
        for part in (canary[:18], canary[-384:])
        for text in (part.hex().encode(), base64.b64encode(part))
    ]
    return [*raw, *spelled]


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> set[bytes]:
    """Every data key that was ever made."""
    keys: set[bytes] = set()
    original = KeyTable._append

    def note(self: KeyTable, fresh: dict[PersonId, bytearray]) -> None:
        keys.update(map(bytes, fresh.values()))
        original(self, fresh)

    monkeypatch.setattr(KeyTable, "_append", note)
    return keys


def _snapshot(folder: Path, to: Path) -> Path:
    """A copy of the data folder, as a backup takes it: without the root beside it."""
    return Path(shutil.copytree(folder, to / f"copy-{len(list(to.iterdir())):03d}"))


def _forget_some(vault: Vault, people: list[PersonId], between: list[str], copies: Path) -> list[int]:
    """Forget people, one by one and several at once, with other work in between; whom, by number."""
    rng = random.Random(3)
    victims = rng.sample(range(len(people)), FORGOTTEN)
    waiting = list(victims)
    while waiting:
        batch = [waiting.pop() for _ in range(min(rng.choice((1, 1, 4)), len(waiting)))]
        vault.forget([people[number] for number in batch])
        between.append("forget")
        if rng.random() < 0.3:
            _snapshot(vault.folder, copies)
        keeper = people[next(n for n in range(len(people)) if n not in victims)]
        vault.put(ALLOWED, Kind.ARTEFACT, b"churn", [keeper], rng.randbytes(3000))
    return victims


def test_nothing_of_the_forgotten_can_be_read_and_everything_of_the_others(
    tmp_path: Path, oracle: set[bytes]
) -> None:
    folder, copies = tmp_path / "memory", tmp_path / "copies"
    copies.mkdir()
    canaries = [_canary(number) for number in range(PEOPLE)]
    live = [folder, tmp_path / "memory.root"]
    with open_vault(folder) as vault:
        store_id, kek = vault._store_id, key_of(folder).path.read_bytes()
        people = []
        for number, canary in enumerate(canaries):
            people.append(enrol(vault, canary))
            if number % 40 == 0:
                _snapshot(folder, copies)
        _snapshot(folder, copies)
        # Control: before anybody is forgotten the adversary reads everybody.
        assert set(canaries) <= recovered([*live, copies], kek, store_id)

        victims = _forget_some(vault, people, [], copies)
        for compact in (False, True):
            kind = copies / f"lmdb-{compact}"
            kind.mkdir()
            vault._db._env.copy(str(kind), compact=compact)
        gone = {canaries[number] for number in victims}

        read = recovered([*live, copies], kek, store_id)
        assert read & gone == set()
        assert set(canaries) - gone <= read
        assert payloads(vault) == set(canaries) - gone
        assert vault.verify_forget(also=[copies]).clean
    contents = b"\0".join(path.read_bytes() for path in files_of([*live, copies]))
    assert [text for canary in canaries for text in _encodings(canary) if text in contents] == []
    assert len(oracle) == PEOPLE
    assert [key for key in oracle if key in contents] == []


def test_what_the_adversary_can_still_do_with_an_old_root_is_the_limit_of_a_root_in_a_file(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "memory"
    with open_vault(folder) as vault:
        person = enrol(vault, b"somebody")
        for path in (folder, tmp_path / "memory.root"):
            shutil.copytree(path, tmp_path / "thief" / path.name)
        vault.forget([person])
        kek = key_of(folder).path.read_bytes()

        assert b"somebody" in recovered([tmp_path / "thief"], kek, vault._store_id)
        # The backup that follows our advice lacks the root.
        assert (
            recovered([tmp_path / "thief" / "memory", tmp_path / "memory.root"], kek, vault._store_id)
            == set()
        )


def test_the_same_adversary_reads_the_forgotten_of_a_naive_store(tmp_path: Path) -> None:
    """Control: keys sealed under the key above them and kept in LMDB survive their deletion."""
    kek, store_id = crypto.random_bytes(32), crypto.random_bytes(16)
    canaries = [_canary(number) for number in range(40)]
    folder = tmp_path / "naive"
    folder.mkdir()
    with lmdb.open(str(folder), map_size=1 << 24, lib_version=0) as env:
        for number, canary in enumerate(canaries):
            dek, name = crypto.random_bytes(32), number.to_bytes(16, "big")
            with env.begin(write=True) as transaction:
                transaction.put(b"key" + name, crypto.seal(kek, dek, b""))
                fields = (Kind.PERSON, name, [name], name, canary, number)
                transaction.put(b"rec" + name, envelope.seal_record(dek, store_id, *fields))
        shutil.copytree(folder, tmp_path / "backup")
        for number in range(8):
            name = number.to_bytes(16, "big")
            with env.begin(write=True) as transaction:
                transaction.delete(b"key" + name)
                transaction.delete(b"rec" + name)

    assert set(canaries) <= recovered([folder, tmp_path / "backup"], kek, store_id)


def test_what_two_people_share_dies_with_either(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory") as vault:
        first, second, third = (enrol(vault, name) for name in (b"one", b"two", b"three"))
        vault.put(ALLOWED, Kind.ARTEFACT, b"both", [first, second], b"texture of two")
        vault.put(ALLOWED, Kind.ARTEFACT, b"own", [third], b"texture of one")
        kek, places = key_of(vault.folder).path.read_bytes(), [tmp_path]
        assert b"texture of two" in recovered(places, kek, vault._store_id)

        receipt = vault.forget([second])

        assert (receipt.people, receipt.records) == (1, 2)
        assert payloads(vault, Kind.ARTEFACT) == {b"texture of one"}
        assert payloads(vault) == {b"one", b"three"}
        assert recovered(places, kek, vault._store_id) == {b"one", b"three", b"texture of one"}


def test_forget_all_keeps_rules_and_whoever_asked_to_be_kept(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory") as vault:
        for number in range(5):
            enrol(vault, b"person %d" % number)
        careful = vault.new_owner()
        vault.put(ALLOWED, Kind.NEVER, b"rule", [careful], b"sketch")
        vault.put(ALLOWED, Kind.NEVER, b"zone", [], b"zone rule")

        receipt = vault.forget_all(keep=[careful])

        assert receipt.people == 5
        assert payloads(vault) == set()
        assert payloads(vault, Kind.NEVER) == {b"sketch", b"zone rule"}


def test_a_forgotten_person_does_not_come_back_by_import_or_by_old_records(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with open_vault(folder) as vault:
        person, other = enrol(vault, b"gone"), enrol(vault, b"stays")
    shutil.copy2(folder / "data.mdb", tmp_path / "old.mdb")
    with open_vault(folder) as vault:
        vault.forget([person])
        with pytest.raises(Exception, match="forgotten here"):
            vault.new_owner(person)
    shutil.copy2(tmp_path / "old.mdb", folder / "data.mdb")

    with open_vault(folder) as vault:
        assert vault.is_forgotten(person)
        assert not vault.is_forgotten(other)
        assert payloads(vault) == {b"stays"}
        assert vault.status().records["person"] == 2
        vault.maintenance()
        assert vault.status().records["person"] == 1
        with pytest.raises(Exception, match="forgotten here"):
            vault.new_owner(person)


def test_memory_holds_no_key_of_the_forgotten(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory") as vault:
        person = enrol(vault, b"somebody")
        held = vault._keys.find(person)
        assert held is not None
        root = vault._keys.own_secrets()[0]

        vault.forget([person])

        assert held == bytes(32)
        assert root == bytes(32)
        assert vault._keys.find(person) is None


def test_a_search_says_so_when_it_would_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_vault(tmp_path / "memory") as vault:
        enrol(vault, b"somebody")
        assert vault.verify_forget().clean
        monkeypatch.setattr("edge.vault.verify._records", lambda data: iter(()))

        report = vault.verify_forget()

    assert not report.clean
    assert "0 of 1 records" in report.problems[0]


def test_a_search_finds_a_root_that_was_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with open_vault(folder) as vault:
        person = enrol(vault, b"somebody")
        shutil.copy2(tmp_path / "memory.root" / "slots", folder / "left-behind")
        vault.forget([person])

        assert any("root of epoch 1" in problem for problem in vault.verify_forget().problems)


def test_a_forget_takes_milliseconds(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory") as vault:
        person = enrol(vault, b"somebody")
        started = time.perf_counter()
        receipt = vault.forget([person])

        assert receipt.seconds <= time.perf_counter() - started < 2.0
