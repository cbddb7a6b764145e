"""What is known of one person: as bytes, as shown, and gone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.index import Match, Verdict
from edge.memory.people import Consenting, Person, View, check_name, same_name
from edge.memory.policy import Purpose
from shared.errors import UsageError, VaultIntegrityError
from tests.edge.memory.conftest import face

WHO = bytes(range(16))
NOW_S = 1_800_000_000.0


def person() -> Person:
    views = [View(face(1), 0, 0, 0.9), View(face(1, 1), -35, 0, 0.7)]
    made = Person.new(WHO, "m", views, NOW_S, "/a.jpg")
    consent = Consenting("recognition", "Anna", NOW_S + 60).given(NOW_S)
    return replace(made, name="Anna", origin="enrolled", consent=consent, pinned=True)


def test_a_person_comes_back_from_bytes() -> None:
    before = person()
    after = Person.from_bytes(WHO, before.to_bytes())

    for name in ("person_id", "name", "origin", "consent", "pinned", "created_s", "last_seen_s", "sources"):
        assert getattr(after, name) == getattr(before, name)
    assert math.isinf(after.keep_until_s)
    np.testing.assert_allclose(after.embeddings, before.looks.templates.matrix(), atol=1e-3)
    assert after.looks.templates.recogniser == "m"


@given(st.binary(max_size=300))
def test_bytes_that_are_nobody_are_refused(data: bytes) -> None:
    with pytest.raises(VaultIntegrityError):
        Person.from_bytes(WHO, data)


@given(st.data())
def test_a_person_with_changed_bytes_is_refused_or_still_whole(data: st.DataObject) -> None:
    packed = bytearray(person().to_bytes())
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        changed = Person.from_bytes(WHO, bytes(packed))
        rows = changed.looks.templates.matrix()
    except VaultIntegrityError:
        return
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)


def test_one_photo_is_one_row_and_one_view() -> None:
    alone = Person.new(WHO, "m", [View(face(1), 0, 0, 0.9)], NOW_S, "")
    assert alone.embeddings.shape == (1, 192)
    assert alone.shown(0).views == 1
    assert person().embeddings.shape == (3, 192)
    assert person().shown(0).views == 2


def test_the_places_somebody_was_seen_at_are_the_newest_sixteen() -> None:
    seen = person()
    for number in range(40):
        seen = seen.seen(NOW_S + number, f"/{number % 20}.mp4")
    assert seen.sources == tuple(f"/{number}.mp4" for number in range(4, 20))
    assert seen.last_seen_s == NOW_S + 39
    assert seen.seen(NOW_S, None).sources == seen.sources


def test_nothing_is_learnt_from_a_view_without_a_pose() -> None:
    match = Match(Verdict.KNOWN, WHO, 0.9, math.inf, None, 0.5)
    before = person()
    assert before.learnt(View(face(1, 2), None, 0, 1.0), match, NOW_S + 1e6) is None
    assert before.learnt(View(face(1, 2), 0, 0, 1.0), match, NOW_S + 1e6) is not None


def test_who_is_wiped_leaves_no_numbers() -> None:
    gone = person()
    templates = gone.looks.templates
    gone.wipe()
    assert not templates.anchor.any()
    assert not any(each.embedding.any() or each.origin.any() for each in templates.prototypes)
    assert not any(gone.looks.to_bytes())


def test_a_scope_says_what_may_be_done() -> None:
    def scope(name: str) -> frozenset[Purpose]:
        return Consenting(name).given(0).for_policy().scope

    assert scope("fusion") == {Purpose.FUSE, Purpose.RECOGNISE}
    assert scope("recognition") == {Purpose.RECOGNISE}
    with pytest.raises(UsageError, match="scope"):
        Consenting("everything")


def test_names_are_kept_clean_and_compared_as_people_do() -> None:
    assert check_name("  Zoe\u0308 ") == "Zoë"
    assert same_name("Zoë", "ZOE\u0308")
    assert not same_name("Zoë", "Zoe")
