import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.geometry import (
    ARCFACE_112,
    DLIB_150,
    affine_scale,
    box_iou,
    box_of_points,
    fit_rigid_3d,
    fit_similarity,
    invert_affine,
    non_maximum_suppression,
    transform_points,
)

Floats = npt.NDArray[np.float32]

angles = st.floats(-np.pi, np.pi)
scales = st.floats(0.05, 20)
shifts = st.tuples(st.floats(-2000, 2000), st.floats(-2000, 2000))


def similarity(angle: float, scale: float, shift: tuple[float, float]) -> Floats:
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    return np.array([[c, -s, shift[0]], [s, c, shift[1]]], np.float32)


def rotation(x: float, y: float, z: float) -> npt.NDArray[np.float64]:
    def turn(angle: float, a: int, b: int) -> npt.NDArray[np.float64]:
        out = np.eye(3)
        out[a, a] = out[b, b] = np.cos(angle)
        out[a, b], out[b, a] = -np.sin(angle), np.sin(angle)
        return out

    return turn(z, 0, 1) @ turn(y, 2, 0) @ turn(x, 1, 2)


def boxes(*rows: tuple[float, float, float, float]) -> Floats:
    return np.array(rows, np.float32).reshape(-1, 4)


# Similarities in the plane


@given(angles, scales, shifts)
def test_a_similarity_that_was_applied_is_found(
    angle: float, scale: float, shift: tuple[float, float]
) -> None:
    wanted = similarity(angle, scale, shift)
    found = fit_similarity(ARCFACE_112, transform_points(wanted, ARCFACE_112))
    np.testing.assert_allclose(found[:, :2], wanted[:, :2], atol=2e-3 + 1e-4 * scale)
    np.testing.assert_allclose(
        transform_points(found, ARCFACE_112), transform_points(wanted, ARCFACE_112), atol=0.02
    )


def test_two_points_fix_a_similarity() -> None:
    source = np.array([[0, 0], [1, 0]], np.float32)
    target = np.array([[5, 5], [5, 7]], np.float32)
    np.testing.assert_allclose(fit_similarity(source, target), [[0, -2, 5], [2, 0, 5]], atol=1e-6)


def test_a_mirror_image_is_not_mirrored() -> None:
    mirrored = ARCFACE_112 * np.array([-1, 1], np.float32)
    found = fit_similarity(ARCFACE_112, mirrored)
    assert np.linalg.det(found[:, :2]) >= 0


def test_the_fit_is_least_squares_when_it_cannot_be_exact() -> None:
    rng = np.random.default_rng(1)
    target = ARCFACE_112 + rng.normal(0, 3, ARCFACE_112.shape).astype(np.float32)
    best = fit_similarity(ARCFACE_112, target)

    def error(affine: Floats) -> float:
        return float(((transform_points(affine, ARCFACE_112) - target) ** 2).sum())

    least = error(best)
    for _ in range(50):
        nudge = np.zeros((2, 3), np.float32)
        nudge[0, 0] = nudge[1, 1] = rng.normal(0, 1e-2)
        nudge[1, 0] = rng.normal(0, 1e-2)
        nudge[0, 1] = -nudge[1, 0]
        nudge[:, 2] = rng.normal(0, 0.3, 2)
        assert error(best + nudge) >= least


@pytest.mark.parametrize("place", [(0, 0), (1000.1, 700.3)])
def test_points_that_are_all_one_go_to_the_middle_of_the_target(place: tuple[float, float]) -> None:
    source = np.tile(np.array(place, np.float32), (5, 1))
    found = fit_similarity(source, ARCFACE_112)
    assert np.isfinite(found).all()
    middle = np.tile(ARCFACE_112.mean(0), (5, 1))
    np.testing.assert_allclose(transform_points(found, source), middle, atol=0.05)


def test_a_target_that_is_one_point_takes_everything() -> None:
    target = np.tile(np.array([[9.0, 4.0]], np.float32), (5, 1))
    found = fit_similarity(ARCFACE_112, target)
    np.testing.assert_allclose(found, [[0, 0, 9], [0, 0, 4]], atol=1e-5)


@given(angles, scales, shifts)
def test_the_way_back_undoes_the_way_there(angle: float, scale: float, shift: tuple[float, float]) -> None:
    affine = similarity(angle, scale, shift)
    there = transform_points(affine, DLIB_150)
    back = transform_points(invert_affine(affine), there)
    np.testing.assert_allclose(back, DLIB_150, atol=0.02 + 1e-3 / scale)


@given(angles, scales)
def test_the_scale_of_a_similarity_does_not_depend_on_its_turn(angle: float, scale: float) -> None:
    assert affine_scale(similarity(angle, scale, (3, 4))) == pytest.approx(scale, rel=1e-5)


def test_points_of_any_shape_are_transformed() -> None:
    affine = np.array([[2, 0, 1], [0, 3, -1]], np.float32)
    points = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    out = transform_points(affine, points)
    assert out.shape == (3, 2, 2)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, points * [2, 3] + [1, -1])


# Similarities in space


@given(angles, st.floats(-1.5, 1.5), angles, scales)
def test_a_pose_that_was_applied_is_found(x: float, y: float, z: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(0, 5, (20, 3)).astype(np.float32)
    turn, shift = rotation(x, y, z), np.array([100, -50, 7])
    target = (scale * points @ turn.T + shift).astype(np.float32)
    found_scale, found_turn, found_shift = fit_rigid_3d(points, target)
    assert found_scale == pytest.approx(scale, rel=1e-4)
    np.testing.assert_allclose(found_turn, turn, atol=1e-3)
    np.testing.assert_allclose(found_shift, shift, atol=1e-2)


def test_a_mirror_image_in_space_still_gets_a_rotation() -> None:
    points = np.random.default_rng(0).normal(0, 5, (20, 3)).astype(np.float32)
    _, turn, _ = fit_rigid_3d(points, points * np.array([-1, 1, 1], np.float32))
    assert np.linalg.det(turn) == pytest.approx(1)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-9)


def test_flat_points_and_a_single_place_give_a_rotation_all_the_same() -> None:
    flat = np.random.default_rng(0).normal(0, 5, (20, 3)).astype(np.float32) * np.array([1, 1, 0], np.float32)
    scale, turn, shift = fit_rigid_3d(flat, 2 * flat + 1)
    assert scale == pytest.approx(2, rel=1e-5)
    np.testing.assert_allclose(scale * flat @ turn.T + shift, 2 * flat + 1, atol=1e-4)
    one = np.ones((5, 3), np.float32)
    scale, turn, shift = fit_rigid_3d(one, one * 3)
    assert np.isfinite(scale)
    assert np.linalg.det(turn) == pytest.approx(1)
    np.testing.assert_allclose(scale * one @ turn.T + shift, one * 3, atol=1e-6)


# Boxes


def test_the_box_of_points_is_their_extremes_and_ignores_depth() -> None:
    points = np.array([[3, 9, -50], [1, 10, 99], [2, 4, 0]], np.float32)
    np.testing.assert_array_equal(box_of_points(points), [1, 4, 3, 10])


@pytest.mark.parametrize(
    ("other", "overlap"),
    [
        ((0, 0, 10, 10), 1.0),
        ((5, 0, 15, 10), 50 / 150),
        ((0, 0, 5, 5), 0.25),
        ((10, 0, 20, 10), 0.0),
        ((50, 50, 60, 60), 0.0),
        ((5, 5, 5, 5), 0.0),
        ((20, 20, 10, 10), 0.0),
    ],
)
def test_the_overlap_of_two_boxes(other: tuple[float, float, float, float], overlap: float) -> None:
    one = boxes((0, 0, 10, 10))
    assert box_iou(one, boxes(other))[0, 0] == pytest.approx(overlap)
    assert box_iou(boxes(other), one)[0, 0] == pytest.approx(overlap)


def test_overlaps_come_as_a_table_also_when_there_is_nothing() -> None:
    three = boxes((0, 0, 1, 1), (0, 0, 2, 2), (5, 5, 6, 6))
    assert box_iou(three, three[:2]).shape == (3, 2)
    assert box_iou(boxes(), three).shape == (0, 3)
    assert box_iou(three, boxes()).shape == (3, 0)


def test_two_empty_boxes_in_one_place_do_not_divide_by_zero() -> None:
    empty = boxes((5, 5, 5, 5))
    assert box_iou(empty, empty)[0, 0] == 0


def test_of_overlapping_boxes_the_better_one_is_kept() -> None:
    crowd = boxes((0, 0, 10, 10), (1, 0, 11, 10), (30, 30, 40, 40), (2, 0, 12, 10))
    confidence = np.array([0.6, 0.9, 0.7, 0.8], np.float32)
    np.testing.assert_array_equal(non_maximum_suppression(crowd, confidence, 0.4), [1, 2])
    np.testing.assert_array_equal(non_maximum_suppression(crowd, confidence, 1.0), [1, 3, 2, 0])


def test_a_box_is_judged_against_those_that_are_kept_only() -> None:
    # The middle box is dropped for the first; the last overlaps nothing but the middle.
    row = boxes((0, 0, 10, 10), (4, 0, 14, 10), (8, 0, 18, 10))
    np.testing.assert_array_equal(
        non_maximum_suppression(row, np.array([0.9, 0.8, 0.7], np.float32), 0.3), [0, 2]
    )


def test_no_boxes_leave_no_boxes() -> None:
    kept = non_maximum_suppression(boxes(), np.zeros(0, np.float32), 0.5)
    assert kept.shape == (0,)
    assert kept.dtype == np.intp
