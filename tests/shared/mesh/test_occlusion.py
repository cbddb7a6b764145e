import functools

import numpy as np
import pytest

from shared.arrays import ImageBgr
from shared.mesh.occlusion import OcclusionModel, look_of
from shared.mesh.topology import Floats, with_ring
from shared.mesh.uvgrid import GRID, face_regions, unwrap, uv_grid
from tests.real_faces import clip_faces, faces_of, image_of, prepared

FACING = np.ones((GRID, GRID), np.float32)
PATCH = np.s_[36:50, 12:28]
"""On a cheek."""
WELL_INSIDE = np.s_[39:47, 16:25]
SURE = 20.0


@functools.cache
def clip() -> tuple[ImageBgr, ...]:
    """The face of the packaged clip on the grid, frame by frame."""
    seen = []
    for image, face in clip_faces(24):
        seen.append(unwrap(image, with_ring(face.landmarks), uv_grid(GRID)))
    return tuple(seen)


def model() -> OcclusionModel:
    return OcclusionModel(prepared("single_face.jpg").grid_texture.astype(np.uint8))


def learned(count: int = 16) -> OcclusionModel:
    """A model that has seen the clip's free face for a while."""
    made = model()
    for seen in clip()[:count]:
        made.update(seen, FACING, SURE)
    return made


def covered(seen: ImageBgr, colour: tuple[int, int, int] = (150, 60, 40)) -> ImageBgr:
    """Something lies over the cheek."""
    out = seen.copy()
    out[PATCH] = colour
    return out


def on_face(visible: Floats) -> Floats:
    return visible[face_regions().face > 0]


def test_a_free_face_is_free() -> None:
    free = model()
    for number, seen in enumerate(clip()):
        visible = free.update(seen, FACING, SURE)
        assert visible.shape == (GRID, GRID)
        assert visible.min() >= 0
        assert visible.max() <= 1
        if number > 3:
            assert on_face(visible).mean() > 0.9
            assert free.hidden_share < 0.08


@pytest.mark.parametrize("colour", [(150, 60, 40), (20, 20, 20), (245, 245, 245), (90, 110, 160)])
def test_what_covers_the_face_is_found_where_it_is(colour: tuple[int, int, int]) -> None:
    watching = learned()
    before = watching.update(clip()[16], FACING, SURE)
    after = watching.update(covered(clip()[17], colour), FACING, SURE)
    assert after[WELL_INSIDE].mean() < 0.35
    # The other half of the face is as free as it was.
    np.testing.assert_allclose(after[:, 36:], before[:, 36:], atol=0.25)
    assert abs(float(after[:, 36:].mean() - before[:, 36:].mean())) < 0.02


def test_what_moves_over_the_face_is_followed() -> None:
    watching = learned()
    for column in range(8, 50, 4):
        seen = clip()[16].copy()
        seen[36:50, column : column + 12] = (150, 60, 40)
        visible = watching.update(seen, FACING, SURE)
        assert (
            visible[39:47, column + 3 : column + 9][
                face_regions().face[39:47, column + 3 : column + 9] > 0
            ].mean()
            < 0.4
        )


def test_what_goes_away_is_released_within_a_few_frames() -> None:
    watching = learned()
    for seen in clip()[16:20]:
        hidden = watching.update(covered(seen), FACING, SURE)
    assert hidden[WELL_INSIDE].mean() < 0.1
    first = watching.update(clip()[20], FACING, SURE)[WELL_INSIDE].mean()
    assert first < 0.6  # not at once: fingers flicker
    for _ in range(8):
        visible = watching.update(clip()[20], FACING, SURE)
    assert visible[WELL_INSIDE].mean() > 0.95


def test_what_stays_in_front_is_not_learned_as_the_face() -> None:
    watching = learned()
    for _ in range(60):
        hidden = watching.update(covered(clip()[16]), FACING, SURE)
    assert hidden[WELL_INSIDE].mean() < 0.1


def test_noise_is_no_occlusion() -> None:
    rng = np.random.default_rng(0)
    watching = learned()
    for number in range(20):
        noise = rng.normal(0, 4, (GRID, GRID, 3))
        seen = np.clip(clip()[16 + number % 8] + noise, 0, 255).astype(np.uint8)
        visible = watching.update(seen, FACING, SURE)
        assert on_face(visible).mean() > 0.9


@pytest.mark.parametrize("gain", [0.7, 1.25])
def test_a_lamp_that_is_dimmed_is_no_occlusion(gain: float) -> None:
    watching = learned()
    seen = np.clip(clip()[16] * gain, 0, 255).astype(np.uint8)
    assert on_face(watching.update(seen, FACING, SURE)).mean() > 0.85


def test_a_small_speck_is_ignored() -> None:
    watching = learned()
    before = watching.update(clip()[16], FACING, SURE)
    seen = clip()[16].copy()
    seen[40:43, 18:21] = (255, 255, 255)
    np.testing.assert_allclose(watching.update(seen, FACING, SURE), before, atol=0.25)


@pytest.mark.parametrize("name", ["single_face.jpg", "astronaut.png"])
def test_a_hand_that_is_there_from_the_start_covers_the_mouth(name: str) -> None:
    image, face = image_of(name), faces_of(name)[0]
    seen = unwrap(image, with_ring(face.landmarks), uv_grid(GRID))
    mouth = face_regions().lips > 0
    free = OcclusionModel(prepared("multi_face.jpg", 2).grid_texture.astype(np.uint8))
    assert free.update(seen, FACING, SURE)[mouth].mean() > 0.8
    # A flat hand of the face's own colour, with the gaps of its fingers.
    skin = np.median(seen[face_regions().cheeks > 0], axis=0)
    hand = seen.copy()
    hand[34:58, 14:50] = skin
    hand[34:58, 18:50:8] = skin * 0.6
    watching = OcclusionModel(prepared("multi_face.jpg", 2).grid_texture.astype(np.uint8))
    assert watching.update(hand, FACING, 9.0)[mouth].mean() < 0.6


def test_a_face_that_is_doubtful_teaches_nothing() -> None:
    watching = learned()
    for _ in range(40):
        watching.update(covered(clip()[16]), FACING, 5.0)
    for _ in range(10):
        visible = watching.update(clip()[16], FACING, 5.0)
    assert visible[WELL_INSIDE].mean() > 0.9


def test_the_look_of_a_doubtful_face_is_not_remembered() -> None:
    doubting, sure = learned(), learned()
    assert doubting._mean is not None
    assert sure._mean is not None
    before = doubting._mean.copy()
    doubting.update(clip()[20], FACING, 5.0)
    sure.update(clip()[20], FACING, SURE)
    np.testing.assert_array_equal(doubting._mean, before)
    assert np.abs(sure._mean - before).mean() > 0.001


def test_two_models_share_nothing() -> None:
    one, other = learned(), model()
    for _ in range(3):
        one.update(covered(clip()[16]), FACING, SURE)
    fresh = model()
    np.testing.assert_array_equal(
        other.update(clip()[0], FACING, SURE), fresh.update(clip()[0], FACING, SURE)
    )


def test_the_look_is_colour_and_slope() -> None:
    ramp = np.repeat(np.linspace(20, 230, GRID).astype(np.uint8)[None, :, None], GRID, 0).repeat(3, 2)
    look = look_of(np.ascontiguousarray(ramp))
    assert look.shape == (GRID, GRID, 5)
    inner = look[8:-8, 8:-8]
    np.testing.assert_allclose(inner[..., 1:3], 128, atol=1)
    assert (inner[..., 3] > 1).all()
    np.testing.assert_allclose(inner[..., 4], 0, atol=0.5)
