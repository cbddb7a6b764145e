import numpy as np
import numpy.typing as npt
import pytest

from shared.mesh.shape import HeadPose, ShapeTransfer, head_pose, shape_difference
from shared.mesh.topology import EYE_RIGHT, LIPS_OUTER, NOSE_TIP, Floats, topology


def turned(yaw_deg: float = 0, pitch_deg: float = 0, roll_deg: float = 0) -> npt.NDArray[np.float64]:
    """Rotation of the picture's axes (y down, z away): yaw to its right, pitch up, roll clockwise."""
    y, p, r = np.radians([-yaw_deg, -pitch_deg, roll_deg])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(p), -np.sin(p)], [0, np.sin(p), np.cos(p)]])
    about_z = np.array([[np.cos(r), -np.sin(r), 0], [np.sin(r), np.cos(r), 0], [0, 0, 1]])
    return about_z @ about_y @ about_x


def placed(xyz: Floats, rotation: npt.NDArray[np.float64], scale: float = 11.0) -> Floats:
    return (scale * xyz @ rotation.T + [320, 240, 0]).astype(np.float32)


def canonical() -> Floats:
    return topology().xyz.copy()


def pose_of(xyz: Floats) -> HeadPose:
    return HeadPose(1.0, np.eye(3, dtype=np.float32), np.zeros(3, np.float32), xyz)


# Pose


@pytest.mark.parametrize("yaw", [-60, -20, 0, 35])
@pytest.mark.parametrize("pitch", [-25, 0, 15])
@pytest.mark.parametrize("roll", [0, 30])
def test_the_pose_of_a_head_that_was_turned_is_found(yaw: float, pitch: float, roll: float) -> None:
    pose = head_pose(placed(canonical(), turned(yaw, pitch, roll)))
    assert pose.scale == pytest.approx(11, rel=1e-3)
    np.testing.assert_allclose(pose.rotation, turned(yaw, pitch, roll), atol=1e-3)
    np.testing.assert_allclose(pose.canonical, topology().xyz, atol=5e-3)
    if roll == 0 and pitch == 0:
        assert pose.yaw_deg == pytest.approx(yaw, abs=0.2)
    if roll == 0 and yaw == 0:
        assert pose.pitch_deg == pytest.approx(pitch, abs=0.2)


def test_a_positive_yaw_looks_to_the_right_of_the_picture_and_a_positive_pitch_up() -> None:
    front = placed(canonical(), turned())[NOSE_TIP]
    right, up = placed(canonical(), turned(yaw_deg=20)), placed(canonical(), turned(pitch_deg=20))
    assert right[NOSE_TIP, 0] > front[0] + 10
    assert head_pose(right).yaw_deg > 19
    assert up[NOSE_TIP, 1] < front[1] - 10
    assert head_pose(up).pitch_deg > 19


def test_iris_points_do_not_matter_for_the_pose() -> None:
    points = placed(canonical(), turned(10))
    more = np.vstack([points, np.full((10, 3), 999, np.float32)])
    np.testing.assert_array_equal(head_pose(more).rotation, head_pose(points).rotation)


# The difference of two shapes


def test_equal_shapes_differ_by_nothing() -> None:
    np.testing.assert_allclose(shape_difference(canonical(), canonical()), 0, atol=1e-6)


def test_a_wider_face_moves_every_point_outwards_by_its_own_share() -> None:
    wider = canonical() * np.array([1.1, 1, 1], np.float32)
    moved = shape_difference(wider, canonical())
    np.testing.assert_allclose(moved[:, 1:], 0, atol=1e-5)
    # Smoothing pulls the outline a little inwards.
    np.testing.assert_allclose(moved[:, 0], 0.1 * canonical()[:, 0], atol=0.12)
    assert moved[234, 0] < -0.5 < 0.5 < moved[454, 0]


def test_a_shift_of_the_whole_shape_passes_unchanged() -> None:
    moved = shape_difference(canonical() + np.array([0, 0.3, -0.2], np.float32), canonical())
    np.testing.assert_allclose(moved, np.tile([0, 0.3, -0.2], (468, 1)), atol=1e-5)


def test_what_is_different_on_one_side_only_becomes_half_of_both() -> None:
    rng = np.random.default_rng(0)
    moved = shape_difference(canonical() + rng.normal(0, 0.3, (468, 3)).astype(np.float32), canonical())
    mirrored = moved[topology().mirror] * np.array([-1, 1, 1])
    np.testing.assert_allclose(moved, mirrored, atol=1e-4)


def test_a_crooked_face_is_not_copied() -> None:
    # Everything leans to one side: the mirror image leans to the other.
    moved = shape_difference(canonical() + np.array([0.5, 0, 0], np.float32), canonical())
    np.testing.assert_allclose(moved, 0, atol=1e-5)


@pytest.mark.parametrize(("region", "axis"), [(LIPS_OUTER, 0), (EYE_RIGHT, 1)])
def test_an_expression_of_the_source_is_held_back(region: npt.NDArray[np.intp], axis: int) -> None:
    smiling = canonical()
    both = np.unique(np.concatenate([region, topology().mirror[region]]))
    stretched = smiling[both, axis] - smiling[both, axis].mean()
    smiling[both, axis] += 0.3 * stretched
    moved = shape_difference(smiling, canonical())
    assert np.ptp(moved[region, axis]) < 0.85 * np.ptp(0.3 * stretched)


# One track


def test_no_strength_moves_nothing() -> None:
    transfer = ShapeTransfer(canonical() * 1.2, 0)
    assert not transfer.moved(pose_of(canonical())).any()


def test_the_source_shape_itself_is_not_moved() -> None:
    pose = head_pose(placed(canonical(), turned(15, 5, -20)))
    np.testing.assert_allclose(ShapeTransfer(canonical(), 1).moved(pose), 0, atol=0.1)


def test_the_move_turns_and_grows_with_the_head() -> None:
    wider = canonical() * np.array([1.1, 1, 1], np.float32)
    delta = shape_difference(wider, canonical())
    rotation = turned(0, 0, 90)
    moved = ShapeTransfer(wider, 1).moved(head_pose(placed(canonical(), rotation, scale=20)))
    np.testing.assert_allclose(moved, 20 * (delta @ rotation.T)[:, :2], atol=0.15)
    # Rolled by a quarter turn, wider is longer on screen.
    assert np.ptp(moved[:, 1]) > 10 * np.ptp(moved[:, 0])


def test_the_move_is_in_proportion_to_the_strength() -> None:
    wider = canonical() * np.array([1.1, 1, 1], np.float32)
    whole, half = (ShapeTransfer(wider, s).moved(pose_of(canonical())) for s in (1.0, 0.5))
    np.testing.assert_allclose(half * 2, whole, atol=1e-5)


def test_speech_of_the_target_survives() -> None:
    transfer = ShapeTransfer(canonical() * np.array([1.1, 1, 1], np.float32), 1)
    for _ in range(60):
        calm = transfer.moved(pose_of(canonical()))
    talking = canonical()
    talking[LIPS_OUTER, 1] *= 1.5
    for _ in range(3):
        moved = transfer.moved(pose_of(talking))
    # The open mouth is not taken for its shape, so the same move is added to it.
    np.testing.assert_allclose(moved, calm, atol=0.1)


def test_the_neutral_face_is_the_mean_of_what_was_seen() -> None:
    rng = np.random.default_rng(0)
    transfer = ShapeTransfer(canonical(), 1)
    for _ in range(200):
        noisy = canonical() + rng.normal(0, 0.5, (468, 3)).astype(np.float32)
        moved = transfer.moved(pose_of(noisy))
    assert np.abs(moved).mean() < 0.02


@pytest.mark.parametrize("opened_cm", [-0.5, 0.6, 1.4])
def test_a_laughing_source_does_not_part_the_targets_lips(opened_cm: float) -> None:
    neutral = topology().xyz
    laughing = neutral.copy()
    upper, lower = [82, 13, 312], [87, 14, 317]
    laughing[upper, 1] -= 0.3 * opened_cm
    laughing[lower, 1] += 0.7 * opened_cm
    moved = shape_difference(laughing, neutral)[:, 1]
    assert abs(moved[14] - moved[13]) < 0.15 * abs(opened_cm)
    assert abs(moved[NOSE_TIP]) < 0.05 * abs(opened_cm)
