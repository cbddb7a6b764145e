"""Templates follow their person and let nobody lead them astray."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.index import Match, Verdict
from edge.memory.templates import (
    Gate,
    Pose,
    Prototype,
    Sample,
    Templates,
    enrol,
    extend,
    pose_of,
    reset,
    update,
)
from shared.arrays import Embedding
from shared.errors import VaultIntegrityError

MODEL = "mobilefacenet192"
DAY_S = 86400.0


def unit(seed: int, dimensions: int = 192) -> Embedding:
    row = np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)
    return row / np.linalg.norm(row)


def near(row: Embedding, cosine: float, seed: int) -> Embedding:
    other = unit(10_000 + seed, len(row))
    other -= (other @ row) * row
    return (cosine * row + math.sqrt(1 - cosine**2) * other / np.linalg.norm(other)).astype(np.float32)


PERSON = unit(1)


def photo(seed: int = 1, *, pose: Pose = Pose.FRONT, quality: float = 0.8) -> Sample:
    return Sample(near(PERSON, 0.9, seed), pose, quality, 0.0)


def look(days: float = 1, seed: int = 2, **changes: object) -> Sample:
    sample = Sample(near(PERSON, 0.9, seed), Pose.FRONT, 0.8, days * DAY_S)
    return dataclasses.replace(sample, **changes)  # type: ignore[arg-type]


def matched(templates: Templates, embedding: Embedding, *, margin: float = math.inf) -> Match:
    score = float((templates.matrix() @ embedding).max())
    return Match(Verdict.KNOWN, b"x" * 16, score, margin, None, 0.45)


def offer(templates: Templates, sample: Sample) -> tuple[Templates, Gate]:
    return update(templates, sample, matched(templates, sample.embedding), allowed=True)


def front(templates: Templates) -> Prototype:
    prototype = templates.of(Pose.FRONT)
    assert prototype is not None
    return prototype


@pytest.fixture
def enrolled() -> Templates:
    return enrol(MODEL, [photo(n) for n in (1, 2, 3)])


@pytest.mark.parametrize(
    ("yaw", "pitch", "pose"),
    [
        (0, 0, Pose.FRONT),
        (19, -19, Pose.FRONT),
        (-30, 10, Pose.LEFT),
        (30, -10, Pose.RIGHT),
        (10, 30, Pose.UP),
        (-10, -30, Pose.DOWN),
        (40, 30, Pose.RIGHT),
    ],
)
def test_the_greater_turn_names_the_pose(yaw: float, pitch: float, pose: Pose) -> None:
    assert pose_of(yaw, pitch) is pose


def test_photos_make_an_anchor_and_a_prototype_for_each_pose() -> None:
    samples = [photo(1), photo(2, pose=Pose.LEFT), photo(3, pose=Pose.LEFT)]

    templates = enrol(MODEL, samples)

    assert {each.pose for each in templates.prototypes} == {Pose.FRONT, Pose.LEFT}
    assert templates.matrix().shape == (3, 192)
    np.testing.assert_allclose(np.linalg.norm(templates.matrix(), axis=1), 1, atol=1e-6)
    assert float(templates.anchor @ PERSON) > 0.94


def test_the_better_photo_counts_for_more() -> None:
    good, poor = photo(1, quality=0.9), photo(2, quality=0.1)

    anchor = enrol(MODEL, [good, poor]).anchor

    assert anchor @ good.embedding > anchor @ poor.embedding


def test_nothing_makes_no_templates_and_vectors_of_another_length_none_either() -> None:
    with pytest.raises(ValueError, match="at least one"):
        enrol(MODEL, [])
    with pytest.raises(ValueError, match="length 1"):
        enrol(MODEL, [Sample(1.27 * PERSON, Pose.FRONT, 0.5, 0)])


def test_a_sample_that_passes_moves_the_prototype_and_leaves_the_anchor(enrolled: Templates) -> None:
    sample = look()

    after, gate = offer(enrolled, sample)

    assert gate is Gate.PASSED
    np.testing.assert_array_equal(after.anchor, enrolled.anchor)
    assert front(after).embedding @ sample.embedding > front(enrolled).embedding @ sample.embedding
    np.testing.assert_array_equal(after.recent, sample.embedding[None])


def test_a_pose_not_seen_before_gets_its_prototype(enrolled: Templates) -> None:
    after, gate = offer(enrolled, look(pose=Pose.RIGHT))

    assert gate is Gate.PASSED
    assert after.of(Pose.RIGHT) is not None


@pytest.mark.parametrize(
    ("sample", "gate"),
    [
        (look(settled=False), Gate.NOT_SETTLED),
        (look(embedding=near(PERSON, 0.5, 33)), Gate.NOT_SURE),
        (look(days=0.9), Gate.TOO_SOON),
        (look(days=-5), Gate.TOO_SOON),
        (look(quality=0.79), Gate.QUALITY),
        (look(quality=math.nan), Gate.QUALITY),
        (look(quality=0.29, pose=Pose.UP), Gate.QUALITY),
    ],
)
def test_a_sample_that_fails_a_gate_changes_nothing(enrolled: Templates, sample: Sample, gate: Gate) -> None:
    after, stopped = offer(enrolled, sample)

    assert stopped is gate
    assert after is enrolled


def test_without_permission_nothing_is_learnt(enrolled: Templates) -> None:
    sample = look()

    assert update(enrolled, sample, matched(enrolled, sample.embedding), allowed=False) == (
        enrolled,
        Gate.NOT_ALLOWED,
    )


def test_a_face_that_is_nearly_somebody_elses_is_not_learnt(enrolled: Templates) -> None:
    sample = look()

    _, gate = update(enrolled, sample, matched(enrolled, sample.embedding, margin=0.09), allowed=True)

    assert gate is Gate.MARGIN


@pytest.mark.parametrize("verdict", [Verdict.MAYBE, Verdict.UNKNOWN])
def test_only_a_known_face_is_learnt(enrolled: Templates, verdict: Verdict) -> None:
    sample = look()
    match = dataclasses.replace(matched(enrolled, sample.embedding), verdict=verdict)

    assert update(enrolled, sample, match, allowed=True)[1] is Gate.NOT_SURE


def test_what_is_like_a_prototype_but_unlike_the_anchor_is_not_learnt(enrolled: Templates) -> None:
    astray = near(enrolled.anchor, 0.45, 7)
    after = dataclasses.replace(enrolled, recent=astray[None])

    assert offer(after, look(embedding=astray))[1] is Gate.ANCHOR


def test_a_pose_learns_once_a_day_and_each_pose_for_itself(enrolled: Templates) -> None:
    once, _ = offer(enrolled, look(1))

    assert offer(once, look(1.5))[1] is Gate.TOO_SOON
    assert offer(once, look(1.5, pose=Pose.LEFT))[1] is Gate.PASSED
    assert offer(once, look(2))[1] is Gate.PASSED


def test_what_was_learnt_counts_half_after_ninety_days(enrolled: Templates) -> None:
    before = front(enrolled).weight

    after, _ = offer(enrolled, look(90))

    assert front(after).weight == pytest.approx(before / 2 + 0.8)


def test_no_more_than_two_recent_samples_are_kept(enrolled: Templates) -> None:
    for day in range(1, 5):
        enrolled, _ = offer(enrolled, look(day, seed=day))

    assert enrolled.recent.shape == (2, 192)
    assert len(enrolled.matrix()) == 4


@pytest.mark.parametrize("camera", [1.0, 0.9])
def test_an_honest_person_is_learnt_for_months(camera: float) -> None:
    # Through another camera everybody looks a little different, always in the same way.
    there = PERSON if camera == 1 else near(PERSON, camera, 5)
    for seed in range(5):
        templates = enrol(MODEL, [photo(100 * seed + n) for n in range(3)])
        gates = []
        for day in range(1, 100):
            sample = look(day, embedding=near(there, 0.9, 1000 * seed + day))
            templates, gate = offer(templates, sample)
            gates.append(gate)
        assert Gate.POISONING not in gates
        assert gates.count(Gate.PASSED) > 50
        assert float(front(templates).embedding @ there) > 0.9


@pytest.mark.parametrize("likeness", [0.0, 0.3, 0.5])
def test_somebody_who_creeps_into_a_template_day_by_day_is_stopped_and_undone(likeness: float) -> None:
    for seed in range(5):
        intruder = near(PERSON, likeness, 50 + seed)
        templates = start = enrol(MODEL, [photo(100 * seed + n) for n in range(3)])
        gates = []
        for day in range(1, 30):
            templates, gate = offer(templates, look(day, embedding=_as_far_as_it_goes(templates, intruder)))
            gates.append(gate)
        assert gates.index(Gate.POISONING) < 6
        assert front(templates).frozen
        np.testing.assert_array_equal(front(templates).embedding, front(start).embedding)
        gained = float((templates.matrix() @ intruder).max() - (start.matrix() @ intruder).max())
        assert gained <= 0.0


def _as_far_as_it_goes(templates: Templates, intruder: Embedding) -> Embedding:
    """The mixture of person and intruder that is most like the intruder and still passes."""
    for share in np.linspace(1, 0, 41, dtype=np.float32):
        mixed = share * intruder + (1 - share) * PERSON
        mixed /= np.linalg.norm(mixed)
        if (templates.matrix() @ mixed).max() >= 0.56 and mixed @ templates.anchor >= 0.5:
            return mixed
    raise AssertionError("even the person does not pass")


@given(st.lists(st.tuples(st.floats(0.5, 1), st.integers(0, 10**6), st.sampled_from(Pose)), max_size=30))
def test_no_prototype_ever_comes_further_than_35_degrees(
    looks: list[tuple[float, int, Pose]],
) -> None:
    templates = start = enrol(MODEL, [photo(1)])
    for day, (cosine, seed, pose) in enumerate(looks, start=1):
        sample = Sample(near(PERSON, cosine, seed), pose, 0.9, day * DAY_S)
        templates, _ = offer(templates, sample)
        for each in templates.prototypes:
            assert float(each.embedding @ each.origin) >= math.cos(math.radians(35.01))
    np.testing.assert_array_equal(templates.anchor, start.anchor)
    assert len(templates.matrix()) <= 8


def test_more_photos_found_missing_poses_and_renew_a_frozen_one(enrolled: Templates) -> None:
    frozen = dataclasses.replace(front(enrolled), frozen=True)
    enrolled = dataclasses.replace(enrolled, prototypes=(frozen,))
    assert offer(enrolled, look())[1] is Gate.FROZEN

    after = extend(enrolled, MODEL, [photo(8), photo(9, pose=Pose.UP)])

    np.testing.assert_array_equal(after.anchor, enrolled.anchor)
    assert not front(after).frozen
    assert after.of(Pose.UP) is not None


def test_photos_of_another_recogniser_are_not_added(enrolled: Templates) -> None:
    with pytest.raises(ValueError, match="cannot be added"):
        extend(enrolled, "dlib_resnet", [photo()])


def test_a_prototype_can_be_taken_back_to_where_it_began(enrolled: Templates) -> None:
    learnt, _ = offer(enrolled, look())

    np.testing.assert_array_equal(reset(front(learnt), 0).embedding, front(enrolled).embedding)


def test_templates_come_back_from_the_vault_as_they_were(enrolled: Templates) -> None:
    learnt, _ = offer(enrolled, look())
    learnt, _ = offer(learnt, look(2, pose=Pose.LEFT))

    back = Templates.from_bytes(learnt.to_bytes())

    assert back.recogniser == MODEL
    assert (back.matrix() * learnt.matrix()).sum(1) == pytest.approx(1, abs=1e-4)
    for mine, theirs in zip(learnt.prototypes, back.prototypes, strict=True):
        for name in ("pose", "weight", "updated_s", "qualities", "onward", "frozen"):
            assert getattr(mine, name) == getattr(theirs, name)
        assert float(mine.origin @ theirs.origin) == pytest.approx(1, abs=1e-4)


def test_templates_of_one_pose_take_little_room(enrolled: Templates) -> None:
    assert len(enrolled.to_bytes()) < 2000


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"{}\n",
        lambda data: data[:-2],
        lambda data: data[: -3 * 384],
        lambda data: data + bytes(3 * 384),
        lambda data: data.replace(b'"version": 1', b'"version": 2'),
        lambda data: data.replace(b'"front"', b'"above"'),
        lambda data: data.replace(b'"dimensions": 192', b'"dimensions": 0  '),
        lambda data: data[: -3 * 384] + b"\xff" * (3 * 384),
        lambda data: data.replace(b'"frozen": false', b'"melted": false'),
        lambda data: json.dumps([1]).encode() + b"\n",
    ],
)
def test_templates_that_cannot_be_read_say_so(enrolled: Templates, damage: object) -> None:
    damaged = damage(enrolled.to_bytes())  # type: ignore[operator]

    with pytest.raises(VaultIntegrityError, match="damaged, or written by a newer version"):
        Templates.from_bytes(damaged)


def test_nothing_that_is_printed_holds_a_vector(enrolled: Templates) -> None:
    assert "array" not in repr(enrolled)
    assert "array" not in repr(front(enrolled))
    assert "array" not in repr(look())
