import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mesh.raster import painter_order, pixel_grid, rasterise
from shared.mesh.topology import Floats, topology, with_ring

ONE = np.array([[0, 1, 2]])


def affine_values(points: Floats) -> Floats:
    """An affine function of the place, two numbers a point."""
    return np.stack([2 * points[:, 0] - points[:, 1] + 3, 0.5 * points[:, 1] - 7], 1).astype(np.float32)


def test_nothing_drawn_leaves_zeros() -> None:
    values, covered = rasterise(
        np.zeros((3, 2), np.float32), np.zeros((0, 3), int), np.ones((3, 4), np.float32), (5, 3)
    )
    assert values.shape == (3, 5, 4)
    assert not values.any()
    assert not covered.any()


coordinates = st.floats(-20, 60, width=32)


@given(st.lists(st.tuples(coordinates, coordinates), min_size=3, max_size=3))
def test_values_are_the_affine_map_through_the_corners(corners: list[tuple[float, float]]) -> None:
    points = np.array(corners, np.float32)
    (bx, by), (cx, cy) = points[1] - points[0], points[2] - points[0]
    area = float(bx) * float(cy) - float(by) * float(cx)
    if abs(area) < 5:
        return
    triangle = ONE if area > 0 else ONE[:, ::-1]
    values, covered = rasterise(points, triangle, affine_values(points), (40, 30))
    y, x = np.nonzero(covered)
    wanted = affine_values(np.stack([x, y], 1).astype(np.float32))
    longest = float(np.ptp(points, axis=0).max())
    # In a sliver the barycentrics lose digits with its height.
    np.testing.assert_allclose(values[y, x], wanted, atol=1e-4 * max(1, longest * longest / abs(area)) * 10)


def test_exactly_the_pixels_inside_are_covered() -> None:
    points = np.array([[1, 1], [6, 1], [1, 6]], np.float32)
    _, covered = rasterise(points, ONE, affine_values(points), (9, 8))
    y, x = np.mgrid[0:8, 0:9]
    np.testing.assert_array_equal(covered, 255 * ((x >= 1) & (y >= 1) & (x + y <= 7)))


def test_a_triangle_larger_than_the_grid_fills_it() -> None:
    points = np.array([[-100, -100], [300, -100], [-100, 300]], np.float32)
    values, covered = rasterise(points, ONE, affine_values(points), (20, 10))
    assert (covered == 255).all()
    np.testing.assert_allclose(
        values.reshape(-1, 2), affine_values(pixel_grid(20, 10).reshape(-1, 2)), atol=1e-3
    )


@pytest.mark.parametrize("shift", [(100, 0), (-100, 0), (0, 100), (0, -100)])
def test_a_triangle_outside_of_the_grid_draws_nothing(shift: tuple[int, int]) -> None:
    points = np.array([[1, 1], [6, 1], [1, 6]], np.float32) + np.array(shift, np.float32)
    _, covered = rasterise(points, ONE, affine_values(points), (9, 8))
    assert not covered.any()


def test_a_triangle_between_the_pixels_draws_nothing() -> None:
    points = np.array([[1.2, 1.2], [1.8, 1.2], [1.2, 1.8]], np.float32)
    _, covered = rasterise(points, ONE, affine_values(points), (9, 8))
    assert not covered.any()


def test_later_triangles_lie_over_earlier_ones() -> None:
    points = np.tile(np.array([[0, 0], [9, 0], [0, 9]], np.float32), (2, 1))
    attributes = np.repeat(np.array([[1.0], [2.0]], np.float32), 3, 0)
    both = np.array([[0, 1, 2], [3, 4, 5]])
    for order, top in ((both, 2), (both[::-1], 1)):
        values, covered = rasterise(points, order, attributes, (12, 12))
        np.testing.assert_allclose(values[covered > 0], top)


def test_no_seam_opens_between_neighbours() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        corners = np.array([[2, 2], [37, 3], [36, 34], [1, 36]], np.float32)
        centre = rng.uniform(10, 28, 2).astype(np.float32)
        points = np.vstack([corners, centre])
        fan = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
        values, covered = rasterise(points, fan, affine_values(points), (40, 40))
        assert (covered[4:33, 4:35] == 255).all()
        y, x = np.nonzero(covered)
        np.testing.assert_allclose(
            values[y, x], affine_values(np.stack([x, y], 1).astype(np.float32)), atol=2e-2
        )


def test_the_painter_leaves_out_what_looks_away_and_begins_with_the_ring() -> None:
    mesh = topology()
    points = with_ring(mesh.xyz)
    order = painter_order(points, mesh.triangles, mesh.face_triangles)
    ring = order >= mesh.face_triangles
    assert ring[:72].all()
    assert not ring[72:].any()
    depth = points[mesh.triangles[order[72:]], 2].mean(1)
    assert (np.diff(depth) <= 0).all()
    mirrored = points * np.array([-1, 1, 1], np.float32)
    assert len(painter_order(mirrored, mesh.triangles, mesh.face_triangles)) < 0.02 * len(mesh.triangles)


def test_a_triangle_without_area_is_left_out() -> None:
    points = np.array([[0, 0, 0], [5, 5, 0], [9, 9, 0]], np.float32)
    assert len(painter_order(points, ONE, 1)) == 0


def test_the_pixel_grid_holds_x_then_y_and_cannot_be_spoilt() -> None:
    grid = pixel_grid(7, 4)
    assert grid.shape == (4, 7, 2)
    np.testing.assert_array_equal(grid[2, 5], [5, 2])
    with pytest.raises(ValueError, match="read-only"):
        grid[0, 0] = 1
