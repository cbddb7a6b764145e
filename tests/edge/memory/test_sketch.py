"""Sketches keep the angle between embeddings, depend on their key, and stay the same for ever."""

import hashlib
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.sketch import NEVER_BITS, NEVER_RADIUS, Sketch, Sketcher, radius_for, require_unit, rotation
from tests.real_faces import embedding_of, faces_of, image_of

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
Floats = npt.NDArray[np.float32]


def pairs(cosine: float, count: int, dimensions: int = 192, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    first, second = rng.standard_normal((2, count, dimensions))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second -= (first * second).sum(1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    second = cosine * first + math.sqrt(1 - cosine**2) * second
    return first.astype(np.float32), second.astype(np.float32)


def distances(sketcher: Sketcher, first: Floats, second: Floats) -> npt.NDArray[np.int64]:
    columns = np.zeros((2, sketcher.words, len(first)), np.uint64)
    sketcher.columns(first, columns[0])
    sketcher.columns(second, columns[1])
    return np.bitwise_count(columns[0] ^ columns[1]).sum(0, dtype=np.int64)


@pytest.mark.parametrize("dimensions", [128, 192, 512])
def test_a_rotation_keeps_lengths_and_angles(dimensions: int) -> None:
    turn = rotation(KEY, "x", dimensions)

    np.testing.assert_allclose(turn @ turn.T, np.eye(dimensions), atol=1e-5)


def test_a_rotation_follows_from_its_key_and_label_alone() -> None:
    turn = rotation(KEY, "x", 64)

    np.testing.assert_array_equal(turn, rotation(KEY, "x", 64))
    for other in (rotation(OTHER_KEY, "x", 64), rotation(KEY, "y", 64)):
        assert abs(float((turn * other).sum()) / 64) < 0.2


def test_a_stored_sketch_matches_in_every_version() -> None:
    vector = np.arange(1, 193, dtype=np.float32) * np.where(np.arange(192) % 2, -1, 1)
    vector /= np.linalg.norm(vector)

    sketch = Sketcher(KEY, "mobilefacenet192", 192).sketch(vector.astype(np.float32))

    assert hashlib.sha256(sketch.bits).hexdigest()[:16] == "863cac4a5f33361d"


@pytest.mark.parametrize("dimensions", [192, 512])
@pytest.mark.parametrize("cosine", [0.0, 0.5, 0.8, 1.0])
def test_the_distance_of_sketches_tells_the_angle(cosine: float, dimensions: int) -> None:
    apart = distances(Sketcher(KEY, "m", dimensions), *pairs(cosine, 200, dimensions))

    assert apart.mean() == pytest.approx(NEVER_BITS * math.acos(cosine) / math.pi, abs=3)


def test_a_person_is_hardly_ever_missed_and_few_strangers_are_taken_for_them() -> None:
    sketcher = Sketcher(KEY, "m", 192)

    assert (distances(sketcher, *pairs(0.02, 4000)) <= NEVER_RADIUS).mean() < 0.015
    assert (distances(sketcher, *pairs(0.53, 4000)) <= NEVER_RADIUS).mean() > 0.99
    assert (distances(sketcher, *pairs(0.81, 4000)) <= NEVER_RADIUS).all()


def test_sketches_of_two_keys_have_nothing_in_common() -> None:
    same, _ = pairs(0.0, 500)
    columns = np.zeros((2, 4, 500), np.uint64)
    Sketcher(KEY, "m", 192).columns(same, columns[0])
    Sketcher(OTHER_KEY, "m", 192).columns(same, columns[1])

    apart = np.bitwise_count(columns[0] ^ columns[1]).sum(0)

    assert abs(apart.mean() - NEVER_BITS / 2) < 2


def test_many_at_once_get_the_bits_each_gets_alone() -> None:
    vectors, _ = pairs(0.0, 5)
    sketcher = Sketcher(KEY, "m", 192)
    columns = np.zeros((4, 5), np.uint64)
    sketcher.columns(vectors, columns)

    alone = [sketcher.sketch(vector).bits for vector in vectors]

    assert alone == [columns[:, i].astype("<u8").tobytes() for i in range(5)]


def test_sketches_of_two_recognisers_are_never_compared() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        Sketch("a", bytes(32)).distance(Sketch("b", bytes(32)))


def test_a_sketch_shows_none_of_its_bits() -> None:
    assert "bits" not in repr(Sketch("a", bytes(32)))


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((1, 192), np.float32),
        np.full((1, 192), np.nan, np.float32),
        np.full((1, 192), 1.27 / math.sqrt(192), np.float32),
        np.full((1, 128), 1 / math.sqrt(128), np.float32),
        np.zeros(192, np.float32),
    ],
    ids=["zeros", "nan", "longer, as dlib's are", "other shape", "no row"],
)
def test_what_is_no_embedding_of_length_one_is_refused(bad: Floats) -> None:
    with pytest.raises(ValueError, match="embeddings must"):
        require_unit(bad, 192)


@pytest.mark.parametrize(("secret", "bits"), [(b"short", 256), (KEY, 100), (KEY, 0)])
def test_a_sketcher_wants_a_real_key_and_whole_words(secret: bytes, bits: int) -> None:
    with pytest.raises(ValueError, match=r"bytes or more|multiple of 64"):
        Sketcher(secret, "m", 192, bits)


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_the_less_alike_the_wider_the_radius(a: float, b: float) -> None:
    low, high = sorted((a, b))

    assert radius_for(high, 256, 0) <= radius_for(low, 256, 0)
    assert 0 <= radius_for(high, 256, 0) <= 256


def test_two_looks_at_a_real_face_match_and_those_of_others_do_not() -> None:
    sketcher = Sketcher(KEY, "mobilefacenet192", 192)
    photo, people = image_of("multi_face.jpg"), faces_of("multi_face.jpg")
    darker = (photo * 0.6).astype(np.uint8)
    plain = [sketcher.sketch(embedding_of(photo, face.landmarks)) for face in people]
    dark = [sketcher.sketch(embedding_of(darker, face.landmarks)) for face in people]

    apart = np.array([[a.distance(b) for b in dark] for a in plain])

    assert (apart.diagonal() <= NEVER_RADIUS).all()
    assert apart[~np.eye(len(people), dtype=bool)].min() > apart.diagonal().max()
