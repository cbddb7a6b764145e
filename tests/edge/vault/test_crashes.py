"""The power goes during any write, whole or torn: the store opens, and what was acknowledged holds."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge.vault import Kind, PersonId, Vault, keytable
from edge.vault.keytable import KeyTable
from tests.edge.vault.adversary import recovered
from tests.edge.vault.tools import (
    ALLOWED,
    CutDisk,
    PowerCut,
    copy_vault,
    cuts,
    enrol,
    key_of,
    open_vault,
    payloads,
)

STAYS = {b"person 0", b"person 2", b"person 3"}
Action = Callable[[Vault, list[PersonId]], object]


@dataclass(frozen=True)
class Outcome:
    """What is left after the power came back.

    Attributes:
        folder: The vault.
        acknowledged: The call had returned.
        read: All that can be read.
    """

    folder: Path
    acknowledged: bool
    read: set[bytes]


@pytest.fixture
def people(tmp_path: Path) -> list[PersonId]:
    """Four people in a vault, the second of whom will be forgotten."""
    with open_vault(tmp_path / "base" / "memory") as vault:
        return [enrol(vault, b"person %d" % number) for number in range(4)]


def _changes_of(tmp_path: Path, people: list[PersonId], action: Action) -> int:
    """How often the action changes the disk, as it does in a vault that nothing happens to."""
    folder = copy_vault(tmp_path / "base" / "memory", tmp_path / "dry")
    disk = CutDisk()
    with open_vault(folder, disk=disk) as vault:
        before = disk.changes
        action(vault, people)
        return disk.changes - before


def _after_cuts(tmp_path: Path, people: list[PersonId], action: Action) -> list[Outcome]:
    (tmp_path / "dry").mkdir()
    outcomes = []
    for number, disk in enumerate(cuts(_changes_of(tmp_path, people, action))):
        place = tmp_path / f"run-{number}"
        place.mkdir()
        folder = copy_vault(tmp_path / "base" / "memory", place)
        vault = open_vault(folder, disk=disk)
        disk.cut_at += disk.changes
        acknowledged = False
        try:
            action(vault, people)
            acknowledged = True
        except PowerCut:
            pass
        # The process is gone: nothing is flushed, the lock goes with it.
        vault._pending = {}
        vault._release()
        with open_vault(folder) as vault:
            outcomes.append(Outcome(folder, acknowledged, payloads(vault)))
            assert vault.verify_forget().clean
    assert sum(not outcome.acknowledged for outcome in outcomes) == len(outcomes) - 8 > 8
    return outcomes


def test_a_forget_is_done_or_not_begun_and_nobody_else_is_lost(
    tmp_path: Path, people: list[PersonId]
) -> None:
    backup = shutil.copytree(tmp_path / "base" / "memory", tmp_path / "backup")

    outcomes = _after_cuts(tmp_path, people, lambda vault, ids: vault.forget([ids[1]]))

    # The note precedes the first write of keys, so opening completes what was begun.
    assert [outcome.read for outcome in outcomes] == [STAYS] * len(outcomes)
    for outcome in outcomes[:: max(len(outcomes) // 25, 1)]:
        kek = key_of(outcome.folder).path.read_bytes()
        store_id = (outcome.folder / "vault").read_bytes()[-16:]
        assert recovered([outcome.folder.parent, backup], kek, store_id) == STAYS


def test_a_forget_that_was_acknowledged_holds_when_its_clean_up_is_cut(
    tmp_path: Path, people: list[PersonId], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_scrub(self: KeyTable) -> None:
        raise PowerCut

    vault = open_vault(tmp_path / "base" / "memory")
    with monkeypatch.context() as patch:
        patch.setattr(KeyTable, "scrub", no_scrub)
        with pytest.raises(PowerCut):
            vault.forget([people[1]])
        vault._release()

    with open_vault(tmp_path / "base" / "memory") as vault:
        assert payloads(vault) == STAYS
        assert vault.status().records["person"] == 3
        assert vault._db.intents() == {}


def test_an_enrolment_that_was_acknowledged_stays(tmp_path: Path, people: list[PersonId]) -> None:
    outcomes = _after_cuts(tmp_path, people, lambda vault, _: enrol(vault, b"new"))

    assert all(outcome.read - {b"new"} == STAYS | {b"person 1"} for outcome in outcomes)
    assert all(b"new" in outcome.read for outcome in outcomes if outcome.acknowledged)


def test_enrolling_when_the_journal_is_full_is_as_safe(
    tmp_path: Path, people: list[PersonId], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keytable, "JOURNAL_ENTRIES", 4)

    outcomes = _after_cuts(tmp_path, people, lambda vault, _: enrol(vault, b"new"))

    assert all(outcome.read - {b"new"} == STAYS | {b"person 1"} for outcome in outcomes)


def test_growing_into_a_larger_file_is_as_safe(
    tmp_path: Path, people: list[PersonId], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two levels from five keys on; the vault's own is one of them.
    monkeypatch.setattr(keytable, "ONE_LEVEL_LIMIT", 5)
    monkeypatch.setattr(keytable, "SEGMENTS_ABOVE", 4)

    def grow(vault: Vault, _: list[PersonId]) -> None:
        enrol(vault, b"new")
        assert vault._keys.path.name == "keys-2.tab"

    outcomes = _after_cuts(tmp_path, people, grow)

    assert all(outcome.read - {b"new"} == STAYS | {b"person 1"} for outcome in outcomes)
    assert all(len(list(outcome.folder.glob("keys-*.tab"))) == 1 for outcome in outcomes)


def test_a_new_key_replaces_the_old_one_or_does_not(tmp_path: Path, people: list[PersonId]) -> None:
    outcomes = _after_cuts(tmp_path, people, lambda vault, _: vault.rekey(key_of(vault.folder)))

    assert all(outcome.read == STAYS | {b"person 1"} for outcome in outcomes)
    for outcome in outcomes:
        assert not key_of(outcome.folder)._next.exists()


def test_a_vault_that_was_being_made_is_made_anew(tmp_path: Path) -> None:
    dry = CutDisk()
    open_vault(tmp_path / "dry" / "memory", disk=dry).close()
    for cut_at in range(1, dry.changes + 1):
        folder = tmp_path / str(cut_at) / "memory"
        with pytest.raises(PowerCut):
            open_vault(folder, disk=CutDisk(cut_at=cut_at, kept=0.5))

        with open_vault(folder) as vault:
            person = enrol(vault, b"somebody")
            assert vault.get(Kind.PERSON, person) == b"somebody"


def test_keys_without_records_and_records_without_keys_are_collected(
    tmp_path: Path, people: list[PersonId]
) -> None:
    folder = tmp_path / "base" / "memory"
    vault = open_vault(folder)
    vault.new_owners(3)
    vault.maintenance()
    assert vault.status().keys == 7
    vault._release()

    with open_vault(folder) as vault:
        assert vault.status().keys == 7
        vault.maintenance()
        assert vault.status().keys == 4
        assert payloads(vault) == STAYS | {b"person 1"}


def test_a_failing_write_of_the_root_stops_all_further_changes(
    tmp_path: Path, people: list[PersonId], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "base" / "memory"
    with open_vault(folder) as vault:

        def fail(slot: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(vault._roots, "destroy", fail)
        with pytest.raises(Exception, match="Input/output"):
            vault.forget([people[1]])
        with pytest.raises(Exception, match="open the face memory again"):
            vault.new_owner()

    with open_vault(folder) as vault:
        assert payloads(vault) == STAYS
        vault.put(ALLOWED, Kind.META, b"m", [], b"works")
