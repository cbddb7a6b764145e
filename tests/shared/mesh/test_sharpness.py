import itertools

import cv2
import numpy as np
import pytest

from shared.mesh.sharpness import SCALES, scale_for, sharpness_level, source_slopes
from shared.mesh.source import BLURS
from shared.mesh.topology import with_ring
from shared.mesh.uvgrid import GRID
from tests.real_faces import faces_of, image_of, prepared

ALL_SEEN = np.ones((GRID, GRID), np.float32)


def level(blur_px: float, *, source: str = "astronaut.png", target: str = "single_face.jpg") -> int:
    image = image_of(target)
    if blur_px:
        image = cv2.GaussianBlur(image, (0, 0), blur_px)
    points = with_ring(faces_of(target)[0].landmarks)
    return sharpness_level(prepared(source), image, points, ALL_SEEN)


def test_a_softer_target_never_asks_for_a_sharper_source() -> None:
    levels = [level(blur) for blur in (0, 0.7, 1.5, 3, 6)]
    assert levels == sorted(levels)
    assert levels[0] <= 2
    assert levels[-1] >= 6


def test_a_source_on_its_own_photo_is_left_about_as_sharp_as_it_is() -> None:
    assert BLURS[level(0, source="single_face.jpg")] <= 1.0


def test_a_flat_target_gets_the_strongest_blur() -> None:
    grey = np.full((562, 572, 3), 128, np.uint8)
    points = with_ring(faces_of("single_face.jpg")[0].landmarks)
    assert sharpness_level(prepared("astronaut.png"), grey, points, ALL_SEEN) == len(BLURS) - 1


def test_nothing_seen_is_no_error() -> None:
    points = with_ring(faces_of("single_face.jpg")[0].landmarks)
    found = sharpness_level(prepared("astronaut.png"), image_of("single_face.jpg"), points, ALL_SEEN * 0)
    assert 0 <= found < len(BLURS)


@pytest.mark.parametrize("size", SCALES)
def test_each_blur_of_the_ladder_is_softer_than_the_one_before(size: int) -> None:
    slopes = source_slopes(prepared("astronaut.png"), size)
    assert len(slopes) == len(BLURS)
    assert all(a >= b - 1e-3 for a, b in itertools.pairwise(slopes))
    assert slopes[-1] < 0.8 * slopes[0]


def test_slopes_are_measured_once() -> None:
    source = prepared("astronaut.png")
    assert source_slopes(source, 128) is source_slopes(source, 128)


@pytest.mark.parametrize(
    ("width", "side"), [(1, 64), (55, 64), (80, 96), (105, 128), (160, 192), (2000, 192)]
)
def test_the_grid_is_about_as_large_as_the_face_on_screen(width: int, side: int) -> None:
    assert scale_for(width) == side
