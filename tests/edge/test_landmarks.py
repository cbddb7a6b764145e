from pathlib import Path
from typing import Literal

import cv2
import numpy as np
import pytest

from edge.detector import FaceDetector
from edge.landmarks import (
    FaceMesh,
    LandmarkSmoother,
    MeshFit,
    five_points,
)
from shared.arrays import ImageBgr, MeshLandmarks
from shared.geometry import box_iou
from shared.mesh.shape import head_pose
from shared.mesh.topology import inter_ocular
from shared.ort import SessionPool

POOL = SessionPool()


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return FaceDetector(POOL)


@pytest.fixture(scope="module", params=[478, 468])
def mesh(request: pytest.FixtureRequest) -> FaceMesh:
    points: Literal[478, 468] = request.param
    return FaceMesh(POOL, points)


@pytest.fixture(scope="module")
def photo(samples: Path) -> ImageBgr:
    return read(samples / "single_face.jpg")


def read(path: Path) -> ImageBgr:
    return np.asarray(cv2.imread(str(path)), np.uint8)


def fit_best(mesh: FaceMesh, detector: FaceDetector, image: ImageBgr) -> MeshFit:
    found = detector.detect_still(image)
    first = mesh.from_detection(image, found.landmarks[0], found.xyxy[0])
    return mesh.from_previous(image, first.landmarks)


def moved_apart(a: MeshLandmarks, b: MeshLandmarks) -> float:
    """Mean distance of the points of two fits, in inter-ocular distances."""
    return float(np.hypot(*(a - b)[:, :2].T).mean()) / inter_ocular(a)


def test_only_the_two_meshes_there_are_can_be_asked_for() -> None:
    with pytest.raises(ValueError, match="points must be 478 or 468, not 68"):
        FaceMesh(POOL, 68)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["single_face.jpg", "multi_face.jpg", "astronaut.png", "grace_hopper.jpg"])
def test_landmarks_fill_the_detected_box(
    mesh: FaceMesh, detector: FaceDetector, samples: Path, name: str
) -> None:
    image = read(samples / name)
    found = detector.detect_still(image)
    for xyxy, landmarks5 in zip(found.xyxy, found.landmarks, strict=True):
        first = mesh.from_detection(image, landmarks5, xyxy)
        fit = mesh.from_previous(image, first.landmarks)
        assert fit.landmarks.shape == (mesh.points, 3)
        assert fit.landmarks.dtype == np.float32
        assert fit.presence > 8
        assert box_iou(fit.xyxy[None], xyxy[None])[0, 0] > 0.65
        assert np.abs(five_points(fit.landmarks) - landmarks5).max() < 0.35 * inter_ocular(fit.landmarks)


def test_a_second_look_hardly_moves_the_landmarks(
    mesh: FaceMesh, detector: FaceDetector, photo: ImageBgr
) -> None:
    fit = fit_best(mesh, detector, photo)
    again = mesh.from_previous(photo, fit.landmarks)
    assert moved_apart(fit.landmarks, again.landmarks) < 0.02


def test_landmarks_follow_a_shift_of_the_picture(
    mesh: FaceMesh, detector: FaceDetector, photo: ImageBgr
) -> None:
    fit = fit_best(mesh, detector, photo)
    step = 0.1 * inter_ocular(fit.landmarks)
    shifted = cv2.warpAffine(photo, np.array([[1, 0, step], [0, 1, -step]], np.float32), photo.shape[1::-1])
    after = mesh.from_previous(np.asarray(shifted, np.uint8), fit.landmarks)
    assert moved_apart(fit.landmarks + np.array([step, -step, 0], np.float32), after.landmarks) < 0.02


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_head_on_its_side_or_upside_down_gets_the_same_shape(
    mesh: FaceMesh, detector: FaceDetector, photo: ImageBgr, quarters: int
) -> None:
    upright = fit_best(mesh, detector, photo)
    turned = fit_best(mesh, detector, np.ascontiguousarray(np.rot90(photo, -quarters)))
    h, w = photo.shape[:2]
    x, y, z = upright.landmarks.T
    expected = {1: (h - y, x, z), 2: (w - x, h - y, z), 3: (y, w - x, z)}[quarters]
    assert moved_apart(np.stack(expected, 1), turned.landmarks) < 0.05
    change = head_pose(turned.landmarks).roll_deg - head_pose(upright.landmarks).roll_deg
    assert (change - 90 * quarters + 180) % 360 - 180 == pytest.approx(0, abs=3)


def test_wrong_points_of_a_turned_head_are_put_right(detector: FaceDetector, samples: Path) -> None:
    mesh = FaceMesh(POOL)
    image = np.ascontiguousarray(np.rot90(read(samples / "astronaut.png"), 2))
    found = detector.detect(image)  # upright detector: the box is right, the points are not
    upright = mesh.from_detection(image, found.landmarks[0], found.xyxy[0])
    turned = mesh.from_turned_detection(image, found.landmarks[0], found.xyxy[0])
    assert upright.presence < 3 < 15 < turned.presence
    assert abs(head_pose(turned.landmarks).roll_deg) > 170


def test_a_picture_without_a_face_has_low_presence(mesh: FaceMesh) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    eyes = np.array([[80, 90], [120, 90], [100, 110], [85, 130], [115, 130]], np.float32)
    assert mesh.from_detection(noise, eyes, np.array([60, 60, 140, 140], np.float32)).presence < 2


def test_depth_has_the_scale_of_the_frame(mesh: FaceMesh, detector: FaceDetector, photo: ImageBgr) -> None:
    small = fit_best(mesh, detector, photo).landmarks
    doubled = np.asarray(cv2.resize(photo, None, fx=2, fy=2), np.uint8)
    large = fit_best(mesh, detector, doubled).landmarks
    assert np.ptp(large[:, 2]) / np.ptp(small[:, 2]) == pytest.approx(2, rel=0.1)
    # The tip of the nose is nearer than the ears.
    assert small[1, 2] < small[[127, 356], 2].min()


def test_mirroring_turns_yaw_and_roll_round(detector: FaceDetector, samples: Path) -> None:
    mesh = FaceMesh(POOL)
    turn = cv2.getRotationMatrix2D((220, 120), -15, 1)
    image = np.asarray(cv2.warpAffine(read(samples / "astronaut.png"), turn, (512, 512)), np.uint8)
    pose = head_pose(fit_best(mesh, detector, image).landmarks)
    mirrored = head_pose(fit_best(mesh, detector, np.ascontiguousarray(image[:, ::-1])).landmarks)
    assert pose.roll_deg == pytest.approx(15, abs=5)  # clockwise on the screen
    assert mirrored.yaw_deg == pytest.approx(-pose.yaw_deg, abs=4)
    assert mirrored.pitch_deg == pytest.approx(pose.pitch_deg, abs=4)
    assert mirrored.roll_deg == pytest.approx(-pose.roll_deg, abs=4)


def test_yaw_is_positive_towards_the_right_of_the_picture(shared_media: Path, detector: FaceDetector) -> None:
    # The woman at the left of the cafe looks to the right, at the one opposite.
    image = read(shared_media / "group" / "cafe_depth.jpg")
    mesh = FaceMesh(POOL)
    found = detector.detect_still(image)
    yaws = {}
    for xyxy, landmarks5 in zip(found.xyxy, found.landmarks, strict=True):
        landmarks = mesh.from_detection(image, landmarks5, xyxy).landmarks
        nose = five_points(landmarks)[2, 0] - (landmarks[234, 0] + landmarks[454, 0]) / 2
        yaws[head_pose(landmarks).yaw_deg] = nose
    assert all(np.sign(yaw) == np.sign(nose) for yaw, nose in yaws.items() if abs(yaw) > 15)
    assert max(yaws) > 15
    assert min(yaws) < -15


# One-Euro


@pytest.fixture(scope="module")
def still(detector: FaceDetector, photo: ImageBgr) -> MeshLandmarks:
    return fit_best(FaceMesh(POOL), detector, photo).landmarks


def jitter(track: list[MeshLandmarks]) -> float:
    second = np.diff(np.stack(track), n=2, axis=0)
    return float(np.sqrt((second**2).mean() / 6))


def test_the_first_landmarks_come_back_as_they_are(still: MeshLandmarks) -> None:
    smoother = LandmarkSmoother()
    np.testing.assert_array_equal(smoother.smooth(still, 5.0), still)


def test_noise_on_a_still_face_is_taken_out(still: MeshLandmarks) -> None:
    rng = np.random.default_rng(1)
    smoother = LandmarkSmoother()
    noise = 0.0015 * inter_ocular(still)
    raw = [still + rng.normal(0, noise, still.shape).astype(np.float32) for _ in range(60)]
    smooth = [smoother.smooth(landmarks, i / 30) for i, landmarks in enumerate(raw)]
    assert jitter(smooth[5:]) < 0.35 * jitter(raw[5:])


@pytest.mark.parametrize("fps", [12, 30, 60])
def test_a_moving_face_does_not_lag_much(still: MeshLandmarks, fps: int) -> None:
    smoother = LandmarkSmoother()
    iod = inter_ocular(still)
    # A nod of half an inter-ocular distance to either side, once a second.
    for i in range(2 * fps):
        raw = still + np.array([0, 0.5 * iod * np.sin(2 * np.pi * i / fps), 0], np.float32)
        smooth = smoother.smooth(raw, i / fps)
        assert np.abs(smooth - raw).max() < 0.13 * iod


def test_a_slow_point_of_a_moving_face_follows_with_the_others(still: MeshLandmarks) -> None:
    smoother = LandmarkSmoother()
    share = np.ones((len(still), 1), np.float32)
    share[:10] = 0.1  # points near the axis of a turn
    step = 0.05 * inter_ocular(still)
    for i in range(20):
        raw = still + share * np.array([i * step, 0, 0], np.float32)
        smooth = smoother.smooth(raw, i / 30)
    lag = np.abs(smooth - raw)[:, 0]
    assert lag[:10].max() < 0.25 * lag[10:].max()


def test_after_a_reset_nothing_is_remembered(still: MeshLandmarks) -> None:
    smoother = LandmarkSmoother()
    smoother.smooth(still, 0.0)
    smoother.reset()
    np.testing.assert_array_equal(smoother.smooth(still + 100, 0.03), still + 100)


def test_another_number_of_points_starts_anew(still: MeshLandmarks) -> None:
    smoother = LandmarkSmoother()
    smoother.smooth(still, 0.0)
    np.testing.assert_array_equal(smoother.smooth(still[:468] + 3, 0.03), still[:468] + 3)


@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0, 1.0), (1.0, 0.5, 0.25, 0.0), (0.0, 1e-9, 2e-9, 3e-9)])
def test_time_that_stands_still_or_runs_back_is_survived(
    still: MeshLandmarks, times: tuple[float, ...]
) -> None:
    smoother = LandmarkSmoother()
    for i, time_s in enumerate(times):
        smooth = smoother.smooth(still + np.float32(i), time_s)
        assert np.isfinite(smooth).all()
        assert np.abs(smooth - (still + i)).max() < 3


def test_after_a_long_gap_the_new_place_counts(still: MeshLandmarks) -> None:
    smoother = LandmarkSmoother()
    smoother.smooth(still, 0.0)
    assert np.abs(smoother.smooth(still + 50, 10.0) - (still + 50)).max() < 1
