import numpy as np
import pytest

from shared.mesh.topology import (
    BROW_LEFT,
    CHIN,
    EYE_LEFT,
    EYE_RIGHT,
    FACE_POINTS,
    LIPS_OUTER,
    NOSE_TIP,
    OVAL,
    Floats,
    topology,
)
from shared.mesh.uvgrid import GRID, edge_distance, face_regions, unwrap, uv_grid


def texel(points: int | Floats, size: int) -> tuple[int, int]:
    """Row and column of the middle of some points."""
    x, y = np.atleast_2d(topology().uv[points]).mean(0) * size - 0.5
    return round(float(y)), round(float(x))


@pytest.mark.parametrize("size", [32, GRID, 192])
@pytest.mark.parametrize("ring", [False, True])
def test_interpolated_texture_coordinates_are_the_texels_own(size: int, ring: bool) -> None:
    grid = uv_grid(size, ring=ring)
    where = grid.interpolate(topology().uv, outside=-1)
    y, x = np.divmod(grid.inside, size)
    # Where a weight is a little below zero it is cut off.
    np.testing.assert_allclose(where[y, x], np.stack([x + 0.5, y + 0.5], 1) / size, atol=0.03 / size)
    outside = np.ones((size, size), bool)
    outside[y, x] = False
    assert (where[outside] == -1).all()


def test_the_ring_makes_the_grid_larger_and_leaves_the_face_to_the_face() -> None:
    face, ringed = uv_grid(GRID), uv_grid(GRID, ring=True)
    assert set(face.inside) < set(ringed.inside)
    own = np.isin(ringed.inside, face.inside)
    assert (ringed.triangle[own] < topology().face_triangles).all()


def test_weights_are_shares_of_one() -> None:
    weights = uv_grid(GRID).weights[..., 0]
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)


def test_a_value_for_each_triangle_is_spread_over_it_and_zero_outside() -> None:
    grid = uv_grid(GRID)
    spread = grid.interpolate_triangles(np.arange(1, 899, dtype=np.float32)).reshape(-1)
    np.testing.assert_array_equal(spread[grid.inside], grid.triangle + 1)
    assert np.delete(spread, grid.inside).max() == 0


def test_grids_are_made_once() -> None:
    assert uv_grid(GRID) is uv_grid(GRID)
    assert face_regions() is face_regions()


@pytest.mark.parametrize("size", [GRID, 192, 384])
def test_regions_lie_where_their_names_say(size: int) -> None:
    regions = face_regions(size)
    assert regions.eyes[texel(EYE_RIGHT, size)] == regions.eyes[texel(EYE_LEFT, size)] == 1
    assert regions.brows[texel(BROW_LEFT, size)] == 1
    assert regions.lips[texel(LIPS_OUTER, size)] == 1
    for feature in (EYE_RIGHT, EYE_LEFT, BROW_LEFT, LIPS_OUTER):
        assert regions.skin[texel(feature, size)] == 0
    assert regions.cheeks[texel(NOSE_TIP, size)] == 1
    assert regions.forehead[texel(151, size)] == 1
    assert regions.forehead[texel(NOSE_TIP, size)] == 0
    assert regions.band[texel(EYE_RIGHT, size)] == 1
    assert regions.band[texel(CHIN, size)] == regions.band[texel(LIPS_OUTER, size)] == 0


@pytest.mark.parametrize("size", [GRID, 192, 384])
def test_regions_are_parts_of_the_face_and_of_each_other(size: int) -> None:
    r = face_regions(size)
    for part in (r.eyes, r.brows, r.lips, r.skin, r.inner, r.cheeks, r.forehead, r.band):
        assert part.shape == (size, size)
        assert set(np.unique(part)) == {0, 1}
        assert (part <= r.face).all()
    np.testing.assert_array_equal(r.skin, r.face * (1 - np.maximum(np.maximum(r.eyes, r.brows), r.lips)))
    assert (r.cheeks <= r.skin).all()
    assert (r.cheeks <= r.inner).all()
    assert not (r.inner * r.forehead).any()


def test_regions_are_the_same_on_both_sides() -> None:
    r = face_regions(192)
    for part in (r.face, r.eyes, r.brows, r.lips, r.inner):
        assert np.abs(part - part[:, ::-1]).mean() < 0.01


def test_the_distance_to_the_edge_grows_inwards_from_nothing() -> None:
    distance = edge_distance(384)
    oval = np.array([distance[texel(int(i), 384)] for i in OVAL])
    assert np.abs(oval).max() < 0.03
    # The middle is nearly half a face away from its sides.
    assert 0.4 < distance[texel(NOSE_TIP, 384)] < 0.6
    assert distance[0, 0] == 0


def test_a_photo_is_laid_out_by_its_points() -> None:
    # The face lies in the picture as in the texture, three times as large and moved.
    points = topology().uv * 180 + np.array([20, 31], np.float32)
    y, x = np.mgrid[0:230, 0:220].astype(np.float32)
    image = np.dstack([x, y, 0 * x + 77]).astype(np.uint8)
    seen = unwrap(image, points, uv_grid(GRID)).reshape(-1, 3)
    grid = uv_grid(GRID)
    rows, columns = np.divmod(grid.inside, GRID)
    wanted = np.stack([columns + 0.5, rows + 0.5], 1) / GRID * 180 + [20, 31]
    np.testing.assert_allclose(seen[grid.inside][:, :2], wanted, atol=0.6)
    assert (seen[:, 2] == 77).all()


@pytest.mark.parametrize("step", [2, 3, 4])
def test_reading_every_few_pixels_shifts_nothing(step: int) -> None:
    points = topology().uv * 180 + np.array([20, 31], np.float32)
    y, x = np.mgrid[0:230, 0:220].astype(np.float32)
    image = np.dstack([x, y, 0 * x]).astype(np.uint8)
    inside = uv_grid(GRID).inside
    fine = unwrap(image, points, uv_grid(GRID)).reshape(-1, 3)[inside].astype(int)
    coarse = unwrap(image, points, uv_grid(GRID), step=step).reshape(-1, 3)[inside].astype(int)
    assert np.abs(coarse - fine).max() <= 1


def test_a_face_beyond_the_picture_repeats_its_edge() -> None:
    points = topology().uv * 100 - 500
    image = np.full((50, 50, 3), 9, np.uint8)
    assert (unwrap(image, points, uv_grid(GRID)) == 9).all()


def test_the_face_points_alone_carry_the_face_grid() -> None:
    assert uv_grid(GRID).corners.max() < FACE_POINTS
