import cv2
import numpy as np
import pytest

from shared.arrays import MaskU8
from shared.mesh.features import closing, mouth_openness, openness, own_features
from shared.mesh.topology import (
    EYE_LEFT,
    EYE_RIGHT,
    LID_POINTS_LEFT,
    LID_POINTS_RIGHT,
    LIDS_LEFT,
    LIPS_INNER,
    MOUTH_POINTS,
    NOSE_TIP,
    Floats,
    topology,
)

SIZE = (240, 300)


def face(width_px: float = 180, *, size: tuple[int, int] = SIZE) -> Floats:
    """The canonical face in the middle of a region, its eyes open and its mouth closed."""
    xyz = topology().xyz
    scale = width_px / float(np.ptp(xyz[:, 0]))
    points = xyz * np.float32(scale)
    points[:, :2] += np.array(size, np.float32) / 2 - (points[:, :2].max(0) + points[:, :2].min(0)) / 2
    return points


def with_opening(points: Floats, lid_points: tuple[int, int, int, int], opening: float) -> Floats:
    """The eye opened to this part of its width: its whole contour is squeezed or stretched."""
    points = points.copy()
    eye = EYE_LEFT if lid_points == LID_POINTS_LEFT else EYE_RIGHT
    y = points[eye, 1]
    points[eye, 1] = y.mean() + (y - y.mean()) * opening / openness(points, lid_points)
    return points


def with_mouth(points: Floats, gap_px: float) -> Floats:
    """The mouth opened by so many pixels: the lower lip and all below it go down."""
    points = points.copy()
    lower = points[:, 1] > (points[MOUTH_POINTS[0], 1] + points[MOUTH_POINTS[1], 1]) / 2
    points[lower, 1] += gap_px - (points[MOUTH_POINTS[1], 1] - points[MOUTH_POINTS[0], 1])
    return points


def at(mask: MaskU8, place: Floats) -> int:
    return int(mask[round(float(place[1])), round(float(place[0]))])


def test_openness_is_the_gap_over_the_width() -> None:
    points = np.zeros((468, 3), np.float32)
    points[list(LID_POINTS_LEFT), :2] = [[10, 5], [10, 8], [5, 6], [17, 6]]
    assert openness(points, LID_POINTS_LEFT) == pytest.approx(3 / 12)
    points[list(MOUTH_POINTS), :2] = [[50, 50], [50, 60], [30, 55], [70, 55]]
    assert mouth_openness(points) == pytest.approx(10 / 40)


def test_openness_of_an_eye_without_width_is_finite() -> None:
    assert openness(np.zeros((468, 3), np.float32), LID_POINTS_LEFT) == 0


@pytest.mark.parametrize(("opening", "closed"), [(0.4, 0), (0.22, 0), (0.18, 0.5), (0.14, 1), (0.02, 1)])
def test_an_eye_closes_by_degrees(opening: float, closed: float) -> None:
    points = with_opening(face(), LID_POINTS_LEFT, opening)
    assert closing(points, LID_POINTS_LEFT) == pytest.approx(closed, abs=0.01)


@pytest.mark.parametrize("width", [60, 180, 700])
def test_eyeballs_are_the_targets_own_and_cheeks_are_not(width: int) -> None:
    size = (int(width * 1.3), int(width * 1.6))
    points = face(width, size=size)
    for lids in (LID_POINTS_LEFT, LID_POINTS_RIGHT):
        points = with_opening(points, lids, 0.4)
    mask = own_features(points, size)
    assert mask.shape == (size[1], size[0])
    assert mask.dtype == np.uint8
    assert at(mask, points[EYE_RIGHT, :2].mean(0)) < 10
    assert at(mask, points[EYE_LEFT, :2].mean(0)) < 10
    for cheek in (50, 280, 117, 346, NOSE_TIP, 151, 152):
        assert at(mask, points[cheek]) == 255


def test_a_closed_mouth_is_fused_and_an_open_one_shows_the_targets_teeth() -> None:
    shut = with_mouth(face(), 0.5)
    assert at(own_features(shut, SIZE), shut[LIPS_INNER, :2].mean(0)) == 255
    talking = with_mouth(face(), 16)
    mask = own_features(talking, SIZE)
    assert at(mask, talking[list(MOUTH_POINTS[:2]), :2].mean(0)) < 10
    # The lips themselves stay the source's.
    for lip in (0, 17):
        assert at(mask, talking[lip]) == 255


def test_over_a_closed_eye_the_lids_are_the_targets_too() -> None:
    wide, shut = (own_features(with_opening(face(), LID_POINTS_RIGHT, o), SIZE) for o in (0.25, 0.05))
    # A little below the crease of the upper lid and above that of the lower.
    upper, lower = face()[27] + [0, 2, 0], face()[23] - [0, 2, 0]
    assert at(wide, upper) > 120
    assert at(shut, upper) < 100
    assert at(wide, lower) > 140
    assert at(shut, lower) < 100


def test_one_closed_eye_leaves_the_other_alone() -> None:
    open_both = own_features(face(), SIZE)
    winking = own_features(with_opening(face(), LID_POINTS_RIGHT, 0.03), SIZE)
    half = SIZE[0] // 2
    np.testing.assert_array_equal(winking[:, half:], open_both[:, half:])
    assert not np.array_equal(winking[:, :half], open_both[:, :half])


def test_a_face_partly_or_wholly_outside_of_the_region_is_no_trouble() -> None:
    points = face()
    whole = own_features(points, SIZE)
    moved = own_features(points + np.array([-100, -40, 0], np.float32), SIZE)
    # The same picture, shifted; its soft edges differ where the border cuts a feature.
    np.testing.assert_array_equal(moved[10:200, 10:130], whole[50:240, 110:230])
    assert (own_features(points + np.array([5000, 0, 0], np.float32), SIZE) == 255).all()


def test_a_large_face_is_drawn_small_and_lands_in_the_same_place() -> None:
    small = own_features(face(200, size=(260, 320)), (260, 320))
    large = own_features(face(800, size=(1040, 1280)), (1040, 1280))
    again = large.reshape(320, 4, 260, 4).mean((1, 3))
    assert np.abs(again - small).mean() < 1.5
    assert (large < 128).sum() / 16 == pytest.approx((small < 128).sum(), rel=0.1)


@pytest.mark.parametrize("width", [180, 800])
def test_the_hole_for_an_eye_lies_on_the_eye(width: int) -> None:
    size = (int(width * 1.3), int(width * 1.6))
    points = with_opening(face(width, size=size), LID_POINTS_RIGHT, 0.35)
    half = own_features(points, size)[:, : size[0] // 2]
    y, x = np.mgrid[0 : half.shape[0], 0 : half.shape[1]]
    weight = 255.0 - half
    eye = np.zeros((size[1], size[0]), np.uint8)
    cv2.fillPoly(eye, [np.rint(points[EYE_RIGHT, :2] * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
    moments = cv2.moments(eye)
    upper = y < size[1] / 2  # the mouth has a hole of its own
    weight = weight * upper
    assert (weight * x).sum() / weight.sum() == pytest.approx(
        moments["m10"] / moments["m00"], abs=0.2 + 0.0015 * width
    )
    assert (weight * y).sum() / weight.sum() == pytest.approx(
        moments["m01"] / moments["m00"], abs=0.2 + 0.0006 * width
    )


def test_tiny_regions_work() -> None:
    assert own_features(face(10, size=(1, 1)), (1, 1)).shape == (1, 1)
    assert own_features(face(4, size=(8, 8)), (8, 8)).shape == (8, 8)


def test_lid_rings_lie_round_their_eyes() -> None:
    points = face()
    assert points[LIDS_LEFT, 0].min() <= points[EYE_LEFT, 0].min() + 1
    assert points[LIDS_LEFT, 1].max() > points[EYE_LEFT, 1].max()
