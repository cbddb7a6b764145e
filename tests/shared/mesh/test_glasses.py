import cv2
import numpy as np
import pytest

from shared.arrays import MaskU8
from shared.mesh.glasses import SIDE, GlassesModel
from shared.mesh.topology import CHIN, EYE_RIGHT, FACE_POINTS, LIPS_OUTER, topology, with_ring
from shared.mesh.uvgrid import face_regions
from tests.real_faces import faces_of, image_of

WITH = [("grace_hopper.jpg", 0), ("multi_face.jpg", 0)]
WITHOUT = [("single_face.jpg", 0), ("astronaut.png", 0), *(("multi_face.jpg", i) for i in range(1, 5))]


def looked_at(name: str, which: int, model: GlassesModel | None = None, scale: float = 1) -> MaskU8 | None:
    image, points = image_of(name), with_ring(faces_of(name)[which].landmarks)
    if scale != 1:
        image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        points = (points + 0.5) * np.float32(scale) - 0.5
    return (model or GlassesModel()).update(image, points, float(np.ptp(points[:FACE_POINTS, 0])))


def at(mask: MaskU8, point: int | list[int]) -> int:
    x, y = np.atleast_2d(topology().uv[point]).mean(0) * SIDE - 0.5
    return int(mask[round(float(y)), round(float(x))])


@pytest.mark.parametrize(("name", "which"), WITH)
def test_spectacles_are_found(name: str, which: int) -> None:
    bare = looked_at(name, which)
    assert bare is not None
    assert bare.shape == (SIDE, SIDE)
    assert bare.dtype == np.uint8
    # All that is kept lies in the band round the eyes.
    grown = cv2.dilate(face_regions(SIDE).band, np.ones((21, 21)))
    assert (bare[grown == 0] == 255).all()
    assert at(bare, CHIN) == at(bare, LIPS_OUTER.tolist()) == 255
    # Temples and bridge belong to the frame.
    assert at(bare, 6) < 128
    assert 0.03 < (bare < 128).mean() < 0.25


@pytest.mark.parametrize(("name", "which"), WITHOUT)
def test_a_bare_face_has_none(name: str, which: int) -> None:
    assert looked_at(name, which) is None


def test_tinted_glass_covers_the_eyes() -> None:
    bare = looked_at("multi_face.jpg", 0)
    assert bare is not None
    assert at(bare, EYE_RIGHT.tolist()) < 60


def test_through_clear_glass_the_eyes_are_not_the_frame() -> None:
    bare = looked_at("grace_hopper.jpg", 0)
    assert bare is not None
    assert at(bare, EYE_RIGHT.tolist()) > 200


def test_frames_of_a_tiny_face_are_not_looked_for() -> None:
    assert looked_at("grace_hopper.jpg", 0, scale=0.3) is None


def test_frames_of_a_larger_picture_are_found_as_well() -> None:
    assert looked_at("grace_hopper.jpg", 0, scale=2.5) is not None


def test_spectacles_are_kept_between_looks_and_forgotten_when_taken_off() -> None:
    model = GlassesModel()
    first = looked_at("grace_hopper.jpg", 0, model)
    assert first is not None
    # Until the next look, whatever comes changes nothing.
    for _ in range(11):
        held = looked_at("single_face.jpg", 0, model)
        assert held is not None
        np.testing.assert_array_equal(held, first)
    for _ in range(12 * 12):
        held = looked_at("single_face.jpg", 0, model)
    assert held is None


def test_spectacles_that_are_put_on_later_are_found() -> None:
    model = GlassesModel()
    assert looked_at("single_face.jpg", 0, model) is None
    found = [looked_at("grace_hopper.jpg", 0, model) for _ in range(12)]
    assert found[10] is None
    assert found[11] is not None
