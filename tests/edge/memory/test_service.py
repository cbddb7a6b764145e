"""The face memory as jobs and commands use it."""

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge.embedder import MobileFaceNet
from edge.memory import Consenting, FaceMemory, View
from edge.memory.rules import NeverLabel, NeverSource, NeverTime, NeverZone
from edge.memory.service import RECOGNISER, tombstone
from edge.vault import Vault
from edge.vault.filesystem import Lock
from shared.errors import (
    PolicyError,
    UsageError,
    VaultError,
    VaultKeyError,
    VaultLockedError,
    VaultMissingError,
)
from tests.edge.memory.conftest import DAY_S, Home, face

PHOTO = "/photos/anna.jpg"
KEY = "fuse/mesh@1/abc/any/default"


def remember(memory: FaceMemory, name: str, person: int, source: str = PHOTO) -> bytes:
    return memory.remember(name, face(person), yaw_deg=0, pitch_deg=0, quality=0.9, source=source)


def names(memory: FaceMemory) -> list[str | None]:
    return [person.name for person in memory.people()]


# Knowing


def test_nothing_is_on_the_disk_until_somebody_is_remembered(home: Home) -> None:
    memory = home.open()

    assert memory.recognise(face(1), source="clip.mp4") is None
    assert memory.people() == []
    assert memory.status()["exists"] is False
    assert memory.forget([bytes(16)]).people == 0
    assert memory.forget_all().people == 0
    home.close()
    assert not home.folder.exists()


def test_an_enrolled_person_is_known_across_jobs_and_a_stranger_is_not(home: Home) -> None:
    who = remember(home.open(), "Anna", 1)

    memory = home.open()
    known = memory.recognise(face(1, 7))

    assert known is not None
    assert (known.person_id, known.name) == (who, "Anna")
    assert known.similarity == pytest.approx(float(face(1) @ face(1, 7)), abs=0.01)
    assert memory.recognise(face(2)) is None
    stats = memory.stats()
    assert (stats.people, stats.hits, stats.misses) == (1, 1, 1)


def test_the_user_is_told_once_where_the_memory_is_and_at_what_level(home: Home) -> None:
    memory = home.open()
    remember(memory, "Anna", 1)
    remember(memory, "Ben", 2)

    (note,) = home.notes
    assert str(home.folder) in note
    assert "key file" in note
    assert "level L" in note


def test_people_are_found_by_name_whatever_its_case_and_by_the_beginning_of_their_id(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Zoë", 1)

    for name in ("Zoë", "ZOË", "Zoe\u0308", who.hex(), who.hex()[:6].upper()):
        person = memory.person(name)
        assert person is not None
        assert person.person_id == who
    assert memory.person("Anna") is None
    with pytest.raises(UsageError, match="lethe memory list"):
        memory.require("Anna")


def test_an_id_that_could_be_two_is_refused(home: Home) -> None:
    memory = home.open()
    for number in range(20):
        remember(memory, f"person {number}", number)
    firsts = [person.person_id.hex()[0] for person in memory.people()]
    twice = next(digit for digit in firsts if firsts.count(digit) > 1)
    with pytest.raises(UsageError, match="begin like this"):
        memory.person(twice)


def test_more_photos_of_a_person_add_views(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)

    again = memory.remember("anna", face(1, 3), yaw_deg=-30, pitch_deg=0, quality=0.8)

    assert again == who
    assert memory.require("anna").views == 2


def test_a_name_belongs_to_one_person_and_a_person_has_one_name(home: Home) -> None:
    memory = home.open()
    remember(memory, "Anna", 1)

    with pytest.raises(UsageError, match="somebody else is remembered by this name"):
        remember(memory, "Anna", 2)
    with pytest.raises(UsageError, match="is remembered already"):
        memory.remember("Ben", face(1, 4), yaw_deg=0, pitch_deg=0, quality=0.9)
    assert names(memory) == ["Anna"]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, "\udcff"])
def test_a_name_that_will_not_do_is_refused_before_anything_is_made(home: Home, name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        remember(home.open(), name, 1)
    assert not home.folder.exists()


def test_names_are_changed_but_not_to_one_that_is_taken(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)
    remember(memory, "Ben", 2)

    memory.rename(who, "Anna B.")
    with pytest.raises(UsageError, match="somebody else"):
        memory.rename(who, "BEN")
    memory.rename(who, "anna b.")

    assert names(home.open()) == ["anna b.", "Ben"]


def test_where_and_when_somebody_was_seen_is_kept(home: Home) -> None:
    who = remember(home.open(), "Anna", 1)
    memory = home.open()
    home.clock.pass_s(2 * DAY_S)
    memory.recognise(face(1), source="/clips/party.mp4")

    person = home.open().person(who.hex())

    assert person is not None
    assert person.last_seen_s == home.clock.wall_s
    assert person.sources == (PHOTO, "/clips/party.mp4")
    assert person.created_s == home.clock.wall_s - 2 * DAY_S


def test_a_clear_view_teaches_and_an_unclear_one_does_not(home: Home) -> None:
    memory = home.open()
    remember(memory, "Anna", 1)
    home.clock.pass_s(DAY_S)

    memory.recognise(face(1, 1), yaw_deg=-35, pitch_deg=0, quality=0.1)
    assert memory.require("Anna").views == 1
    memory.recognise(face(1, 1), quality=0.9)
    assert memory.require("Anna").views == 1
    memory.recognise(face(1, 1), yaw_deg=-35, pitch_deg=0, quality=0.9)

    assert memory.require("Anna").views == 3
    assert home.open().require("Anna").views == 3


def test_the_score_can_be_set(home: Home) -> None:
    remember(home.open(), "Anna", 1)

    assert home.open(recognition_score=0.95).recognise(face(1, 1)) is None
    assert home.open(recognition_score=0.3).recognise(face(1, 1)) is not None
    thresholds = [home.open(mode=mode).status()["recognition_score"] for mode in ("accuracy", "speed")]
    assert thresholds[0] > thresholds[1]


# Artefacts


def test_what_was_prepared_is_found_again_and_dies_with_any_of_its_owners(home: Home) -> None:
    memory = home.open()
    anna, ben = remember(memory, "Anna", 1), remember(memory, "Ben", 2)
    assert memory.put_artefact(KEY, [anna, ben], b"both" * 200_000, source=PHOTO)
    assert memory.put_artefact("other", [anna], b"anna", source=PHOTO)

    memory = home.open()
    assert memory.get_artefact(KEY, [ben, anna]) == b"both" * 200_000
    assert memory.get_artefact(KEY) == b"both" * 200_000
    assert memory.get_artefact(KEY, [anna]) is None
    assert memory.artefact_counts() == {anna: 2, ben: 1}
    memory.forget([ben])

    memory = home.open()
    assert memory.get_artefact(KEY) is None
    assert memory.get_artefact("other", [anna]) == b"anna"
    assert memory.stats().artefact_hits == 1


def test_who_agreed_to_be_recognised_only_is_in_no_artefact(home: Home) -> None:
    memory = home.open()
    who = memory.remember("Anna", face(1), yaw_deg=0, pitch_deg=0, quality=1, consent_scope="recognition")

    assert memory.recognise(face(1)) is not None
    assert memory.put_artefact(KEY, [who], b"x", source=PHOTO) is False
    assert memory.stats().denied == 1


@pytest.mark.parametrize("owners", [[], [bytes(16)]])
def test_nothing_is_kept_of_nobody_and_of_strangers(home: Home, owners: list[bytes]) -> None:
    memory = home.open()
    remember(memory, "Anna", 1)
    assert memory.put_artefact(KEY, owners, b"x", source=PHOTO) is False


# Policy


def test_time_limits_end_unless_pinned_and_begin_anew_when_seen(home: Home) -> None:
    memory = home.open()
    for number, name in enumerate(("Anna", "Ben", "Cem")):
        remember(memory, name, number)
    memory.set_pinned(memory.require("Ben").person_id, True)
    for _ in range(4):
        home.clock.pass_s(6 * DAY_S)
        home.open().recognise(face(2), source="clip.mp4")
    home.clock.pass_s(6.5 * DAY_S)

    memory = home.open()

    assert names(memory) == ["Ben", "Cem"]
    assert math.isinf(memory.require("Ben").expires_at_s)
    memory.set_pinned(memory.require("Ben").person_id, False)
    assert memory.require("Ben").expires_at_s == home.clock.wall_s + 30 * DAY_S
    assert memory.audit()[-4].action == "pin"
    assert "expire" in [entry.action for entry in memory.audit()]


def test_consent_ends_with_the_next_face_even_of_the_pinned(home: Home) -> None:
    memory = home.open()
    consent = Consenting(given_by="her mother", expires_at_s=home.clock.wall_s + 3600)
    who = memory.enrol("Anna", [View(face(1), 0, 0, 1.0)], consent).person_id
    memory.set_pinned(who, True)
    memory.put_artefact(KEY, [who], b"x", source=PHOTO)
    assert memory.recognise(face(1)) is not None
    assert memory.require("Anna").consent is not None

    home.clock.pass_s(3601)

    assert memory.recognise(face(1)) is None
    assert memory.get_artefact(KEY) is None
    assert names(home.open()) == []


def test_beyond_the_limit_those_not_seen_for_longest_go(home: Home) -> None:
    memory = home.open()
    for number in range(5):
        remember(memory, f"person {number}", number)
        home.clock.pass_s(60)
    memory.set_pinned(memory.require("person 0").person_id, True)

    assert names(home.open(limit_people=3)) == ["person 0", "person 3", "person 4"]


def test_beyond_the_limit_of_size_those_not_seen_for_longest_go(home: Home) -> None:
    memory = home.open()
    for number in range(3):
        who = remember(memory, f"person {number}", number)
        memory.put_artefact(str(number), [who], bytes(1_000_000), source=PHOTO)
        home.clock.pass_s(60)

    assert names(home.open(limit_mb=2)) == ["person 2"]


def test_with_the_policy_seen_strangers_are_known_for_a_day_after_they_were_first_seen(home: Home) -> None:
    memory = home.open(policy="seen")
    assert memory.recognise(face(1), quality=0.2) is None
    assert memory.people() == []
    assert memory.recognise(face(1), quality=0.9, source="clip.mp4") is None
    home.clock.pass_s(20 * 3600)

    memory = home.open(policy="seen")
    known = memory.recognise(face(1, 2), quality=0.9, source="clip.mp4")
    assert known is not None
    assert known.name is None
    with pytest.raises(PolicyError, match="enrol"):
        memory.set_pinned(known.person_id, True)
    home.clock.pass_s(5 * 3600)

    assert home.open(policy="seen").people() == []


def test_a_stranger_who_is_enrolled_keeps_their_id_and_gets_a_name(home: Home) -> None:
    memory = home.open(policy="seen")
    memory.recognise(face(1), quality=0.9)
    (stranger,) = memory.people()

    assert remember(memory, "Anna", 1) == stranger.person_id
    assert memory.require("Anna").origin == "enrolled"


def test_strangers_are_not_recognised_once_only_those_who_agreed_are(home: Home) -> None:
    home.open(policy="seen").recognise(face(1), quality=0.9)
    assert home.open(policy="consented").recognise(face(1)) is None


def test_off_reads_and_writes_nothing_but_can_still_forget(home: Home) -> None:
    who = remember(home.open(), "Anna", 1)
    home.close()
    before = home.bytes_on_disk()

    memory = home.open(policy="off")
    assert memory.recognise(face(1)) is None
    assert memory.get_artefact(KEY) is None
    with pytest.raises(PolicyError, match="off"):
        remember(memory, "Ben", 2)
    assert memory.put_artefact(KEY, [who], b"x", source=PHOTO) is False
    assert len(before) == len(home.bytes_on_disk())
    assert memory.forget([who]).people == 1


# Rules


@pytest.mark.parametrize(
    "rule",
    [
        NeverSource(rule_id="a", pattern="/clinic"),
        NeverZone(rule_id="a", pattern="/clinic/*", box=(0, 0, 0.5, 1)),
        NeverTime(rule_id="a", from_minute=0, to_minute=0),
    ],
    ids=lambda rule: rule.kind,
)
def test_where_a_rule_says_never_nobody_becomes_known(home: Home, rule: NeverSource) -> None:
    memory = home.open(policy="seen")
    memory.never(rule)

    memory = home.open(policy="seen")
    assert memory.rules() == [rule]
    memory.recognise(face(1), quality=1.0, source="/clinic/a.mp4", box=(0.1, 0.1, 0.2, 0.2))
    with pytest.raises(PolicyError, match="rule"):
        remember(memory, "Anna", 1, source="/clinic/a.jpg")
    assert memory.people() == []

    assert memory.allow(["a"]) == ["a"]
    memory.recognise(face(1), quality=1.0, source="/clinic/a.mp4", box=(0.1, 0.1, 0.2, 0.2))
    assert len(memory.people()) == 1
    assert home.open().rules() == []


def test_a_rule_by_source_forbids_artefacts_and_learning_as_well(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)
    memory.never(NeverSource(rule_id="a", pattern="/clinic"))
    home.clock.pass_s(DAY_S)

    assert memory.put_artefact(KEY, [who], b"x", source="/clinic/a.mp4") is False
    assert memory.recognise(face(1), source="/clinic/a.mp4", yaw_deg=0, pitch_deg=0) is not None
    memory.touch(who)

    assert home.open().require("Anna").last_seen_s == home.clock.wall_s - DAY_S


def test_rules_end(home: Home) -> None:
    memory = home.open()
    memory.never(NeverLabel(rule_id="a", label="child", expires_at_s=home.clock.wall_s + 3600))
    assert len(home.open().rules()) == 1
    home.clock.pass_s(3601)
    assert home.open().rules() == []


def test_a_rule_that_is_not_there_cannot_be_taken_back_and_then_none_is(home: Home) -> None:
    memory = home.open()
    memory.never(NeverLabel(rule_id="a", label="child"))
    with pytest.raises(UsageError, match="no such rule"):
        memory.allow(["a", "b"])
    assert len(memory.rules()) == 1
    assert memory.allow(None) == ["a"]


def encodings(embedding: np.ndarray) -> list[bytes]:
    """Ways in which numbers of a face could end up in a file."""
    half, whole = embedding.astype("<f2").tobytes(), embedding.astype("<f4").tobytes()
    whole8 = np.round(embedding * 127).astype(np.int8).tobytes()
    raw = [half[:64], whole[:64], whole8[:64], embedding.astype("<f8").tobytes()[:64]]
    texts = [each.hex().encode() for each in raw] + [base64.b64encode(each[:48]) for each in raw]
    return raw + texts + [f"{embedding[0]:.6f}".encode(), repr(float(embedding[0])).encode()]


def test_a_person_under_a_never_rule_goes_through_every_stage_and_leaves_nothing(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    canary = face(66)
    memory = home.open(policy="seen")
    remember(memory, "Anna", 1)
    rule = memory.never_person([canary])
    home.close()
    memory = home.open(policy="seen")
    memory.touch(bytes(16))
    generation, before = memory.status()["generation"], home.bytes_on_disk()

    for look in range(5):
        assert memory.recognise(face(66, look, spread=0.2), quality=1.0, source="clip.mp4") is None
    with pytest.raises(PolicyError, match="rule"):
        memory.enrol("Canary", [View(canary, 0, 0, 1)], Consenting(), sources=["clip.mp4"])
    assert memory.look_up(canary) is None

    assert home.bytes_on_disk() == before
    assert memory.status()["generation"] == generation
    assert names(memory) == ["Anna"]
    home.close()
    for encoded in encodings(canary):
        assert encoded not in home.bytes_on_disk()
        assert encoded not in caplog.text.encode() + repr(home.notes).encode()

    assert home.open(policy="seen").allow([rule.rule_id]) == [rule.rule_id]
    assert home.open(policy="seen").recognise(canary, quality=1.0) is None
    assert len(home.open(policy="seen").people()) == 2


def test_taking_back_a_rule_about_a_person_destroys_its_key(home: Home) -> None:
    memory = home.open()
    rule = memory.never_person([face(66)])
    generation = memory.status()["generation"]

    memory.allow([rule.rule_id])

    assert memory.status()["generation"] > generation
    assert memory.verify_forget().clean


# Forgetting


def test_who_is_forgotten_is_unknown_at_once_and_for_good(home: Home) -> None:
    memory = home.open()
    anna, ben = remember(memory, "Anna", 1), remember(memory, "Ben", 2)

    done = memory.forget([anna])

    assert (done.people, done.records) == (1, 1)
    assert done.generation == 2
    assert memory.recognise(face(1)) is None
    assert memory.person("Anna") is None
    memory = home.open()
    assert [p.person_id for p in memory.people()] == [ben]
    report = memory.verify_forget()
    assert report.clean
    assert report.remains >= 0


def test_caches_are_told_before_a_forget_is_acknowledged(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)
    told: list[tuple[frozenset[bytes], int]] = []
    memory.register_purger(lambda gone: told.append((gone, memory.status()["generation"])))

    memory.forget([who])

    assert told == [(frozenset({who}), 1)]
    assert memory.status()["generation"] == 2


def test_a_forget_is_chosen_by_time_and_by_source(home: Home) -> None:
    memory = home.open()
    remember(memory, "Anna", 1, source="/holidays/a.jpg")
    home.clock.pass_s(3 * 3600)
    remember(memory, "Ben", 2, source="/party/b.jpg")

    assert [p.name for p in memory.seen_since(home.clock.wall_s - 3600)] == ["Ben"]
    assert [p.name for p in memory.from_source("/holidays")] == ["Anna"]
    assert memory.from_source("/hol") == []


def test_everybody_is_forgotten_and_the_rules_stay(home: Home) -> None:
    memory = home.open(policy="seen")
    for number in range(4):
        remember(memory, f"person {number}", number)
    rule = memory.never_person([face(66)])
    memory.never(NeverLabel(rule_id="b", label="child"))

    assert memory.forget_all().people == 4

    memory = home.open(policy="seen")
    assert memory.people() == []
    assert {each.rule_id for each in memory.rules()} == {rule.rule_id, "b"}
    memory.recognise(face(66), quality=1.0, source="x")
    assert memory.people() == []


def test_the_journal_says_what_was_done_and_names_nobody(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Annabella", 1)
    memory.rename(who, "Annabellina")
    memory.forget([who])

    entries = home.open().audit()

    assert [entry.action for entry in entries] == ["forget", "rename", "enrol"]
    assert "Annabel" not in repr(entries)
    assert who.hex()[:6] not in repr(entries)
    assert len(home.open().audit(last=1)) == 1


def test_a_closed_memory_forgets_nobody_and_says_so(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)
    home.close()
    for use in (
        lambda: memory.forget([who]),
        memory.forget_all,
        lambda: remember(memory, "Ben", 2),
        lambda: memory.recognise(face(1)),
    ):
        with pytest.raises(VaultError, match="closed"):
            use()
    memory.close()


# Processes


def test_a_second_job_knows_people_and_remembers_nothing_and_says_so(home: Home) -> None:
    who = remember(home.open(), "Anna", 1)
    home.close()
    # It is what another process would hold.
    lock = Lock(home.folder / "lock", home.folder)
    try:
        memory = home.open(policy="seen")
        assert "another process" in home.notes[-1]
        assert memory.recognise(face(1)) is not None
        assert memory.recognise(face(2), quality=1.0) is None
        memory.touch(who)
        assert memory.put_artefact(KEY, [who], b"x", source=PHOTO) is False
        for change in (
            lambda: remember(memory, "Ben", 2),
            lambda: memory.forget([who]),
            lambda: memory.rename(who, "Ben"),
            lambda: memory.never(NeverLabel(rule_id="a", label="x")),
        ):
            with pytest.raises(VaultLockedError, match="another process"):
                change()
        assert memory.recognise(face(1)) is not None
        with pytest.raises(VaultLockedError):
            FaceMemory.manage(home.settings(), notify=print, writer=True)
    finally:
        lock.release()


def test_a_job_goes_on_where_nothing_can_be_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = home.open(policy="seen")
    who = remember(memory, "Anna", 1)

    def full(*_arguments: object, **_named: object) -> None:
        raise VaultError("the disk is full; free some space")

    monkeypatch.setattr(Vault, "put_many", full)
    home.clock.pass_s(DAY_S)

    assert memory.recognise(face(1), source="clip.mp4") is not None
    assert memory.recognise(face(2), quality=1.0, source="clip.mp4") is None
    assert memory.put_artefact(KEY, [who], b"x", source=PHOTO) is False
    home.close()
    assert all("the disk is full" in note for note in home.notes[1:])
    assert len(home.notes) == len(set(home.notes))
    with pytest.raises(VaultError, match="full"):
        remember(home.open(), "Ben", 2)


@pytest.mark.parametrize("value", [0.0, math.nan, 3.0])
def test_what_is_no_embedding_is_nobody(home: Home, value: float) -> None:
    memory = home.open(policy="seen")
    remember(memory, "Anna", 1)
    assert memory.recognise(np.full(192, value, np.float32), quality=1.0) is None
    assert names(memory) == ["Anna"]


def test_sources_are_known_by_their_absolute_path(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = home.open()
    memory.never(NeverSource(rule_id="a", pattern=str(tmp_path / "clinic")))
    with pytest.raises(PolicyError, match="rule"):
        remember(memory, "Anna", 1, source="clinic/a.jpg")
    remember(memory, "Anna", 1, source="party/a.jpg")
    assert memory.require("Anna").sources == (str(tmp_path / "party" / "a.jpg"),)


# Keys


def test_a_passphrase_opens_and_a_wrong_one_does_not(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_MEMORY_PASSPHRASE", "correct horse")
    remember(home.open(key="passphrase"), "Anna", 1)

    assert names(home.open(key="passphrase")) == ["Anna"]
    home.close()
    monkeypatch.setenv("LETHE_MEMORY_PASSPHRASE", "wrong horse")
    with pytest.raises(VaultKeyError, match="does not open"):
        home.open(key="passphrase")
    monkeypatch.delenv("LETHE_MEMORY_PASSPHRASE")
    with pytest.raises(VaultKeyError, match="LETHE_MEMORY_PASSPHRASE"):
        home.open(key="passphrase")


def test_after_a_rekey_only_the_new_key_opens(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(home.open(), "Anna", 1)
    home.open().rekey("passphrase", lambda: "correct horse")
    home.close()

    with pytest.raises(VaultKeyError):
        home.open()
    monkeypatch.setenv("LETHE_MEMORY_PASSPHRASE", "correct horse")
    assert names(home.open(key="passphrase")) == ["Anna"]


def test_what_does_not_exist_cannot_be_rekeyed_verified_or_exported(home: Home) -> None:
    memory = home.open()
    for asked in (lambda: memory.rekey("file", str), memory.verify_forget, memory.give_away):
        with pytest.raises(VaultMissingError):
            asked()


# Clocks


def test_a_clock_that_falls_back_to_1970_keeps_nobody_for_ever(home: Home) -> None:
    remember(home.open(), "Anna", 1)
    home.close()
    now_s = home.clock.wall_s
    home.clock.wall_s = 1000.0
    memory = home.open()
    assert memory.recognise(face(1)) is not None
    assert memory.require("Anna").last_seen_s >= now_s
    home.close()
    home.clock.wall_s = now_s + 40 * DAY_S
    assert home.open().recognise(face(1)) is None


def test_a_clock_that_leaps_ahead_hides_people_before_it_forgets_them(home: Home) -> None:
    remember(home.open(), "Anna", 1)
    home.close()
    now_s = home.clock.wall_s
    home.clock.wall_s = now_s + 3650 * DAY_S
    memory = home.open()
    assert memory.recognise(face(1)) is None
    assert names(memory) == ["Anna"]
    home.close()
    home.clock.wall_s = now_s + 60
    assert home.open().recognise(face(1)) is not None


# Moving


def test_people_move_in_a_bundle_and_keep_their_id(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open(policy="seen")
    who = remember(memory, "Anna", 1)
    memory.recognise(face(5), quality=1.0)
    bundle = memory.give_away()
    memory.note_export(bundle, "people.age")

    taken = there.open().take_over(bundle)

    assert (taken.added, taken.known) == (1, 0)
    known = there.open().recognise(face(1, 1))
    assert known is not None
    assert (known.person_id, known.name) == (who, "Anna")
    assert there.open().take_over(bundle).known == 1
    assert here.open().copies_of([who]) != []
    assert here.open().copies_of([bytes(16)]) == []
    here.open().forget([who])
    assert here.open().copies_of([who]) == []


def test_tombstones_win_on_both_sides(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open()
    who = remember(memory, "Anna", 1)
    remember(memory, "Ben", 2)
    old = memory.give_away()
    there.open().take_over(old)

    # Forgotten there, the old bundle brings nobody back.
    there.open().forget([who])
    again = there.open().take_over(old)
    assert (again.added, again.known, again.forgotten_before) == (0, 1, 1)
    # Forgotten here, a new bundle takes them away there.
    memory = here.open()
    memory.forget([memory.require("Ben").person_id])
    taken = there.open().take_over(memory.give_away())
    assert taken.forgotten_now == 1
    assert there.open().people() == []


def test_nobody_lives_longer_by_being_moved(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open()
    remember(memory, "Anna", 1)
    bundle = memory.give_away()
    expires_at_s = memory.require("Anna").expires_at_s
    there.clock.pass_s(5 * DAY_S)
    there.open().take_over(bundle)
    assert there.open().require("Anna").expires_at_s == expires_at_s
    there.close()
    late = make_home("late")
    late.clock.pass_s(31 * DAY_S)
    assert late.open().take_over(bundle).refused == 1


def test_an_import_minds_the_rules(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open()
    remember(memory, "Anna", 1)
    bundle = memory.give_away()
    there.open().never_person([face(1)])
    assert there.open().take_over(bundle).refused == 1
    assert there.open().people() == []


def test_a_name_that_is_taken_is_told_apart(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open()
    who = remember(memory, "Anna", 1)
    remember(there.open(), "Anna", 2)
    there.open().take_over(memory.give_away())
    assert names(there.open()) == ["Anna", f"Anna ({who.hex()[:8]})"]


def test_a_damaged_record_in_a_bundle_is_left_out(make_home: Callable[[str], Home]) -> None:
    here, there = make_home("here"), make_home("there")
    memory = here.open()
    remember(memory, "Anna", 1)
    bundle = memory.give_away()
    record = bundle.people[0].record
    for broken in (b"", record[:40], record[:-2], b"\0\0\0\2{}" + record, record[:-8] + b"\xff" * 8):
        bad = replace(bundle, people=(replace(bundle.people[0], record=broken),))
        assert there.open().take_over(bad).refused == 1


def test_the_hash_of_a_tombstone_is_the_vaults(home: Home) -> None:
    memory = home.open()
    who = remember(memory, "Anna", 1)
    memory.forget([who])
    remember(memory, "Ben", 2)
    bundle = memory.give_away()
    assert tombstone(bundle.sync_key, who) in bundle.tombstones


def test_the_recogniser_is_that_of_the_product() -> None:
    assert MobileFaceNet.name == RECOGNISER
