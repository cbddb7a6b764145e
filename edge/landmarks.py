"""The shape of a face: dense landmarks on a level crop, smoothed over time, and what follows from them.

The crop follows MediaPipe's convention, which the networks were trained with: a square of 1.5 times the
longer side of the face's box, turned so that the line through the outer eye corners is level. The box is
taken in the turned frame, so a rolling head keeps the size of its crop.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import Affine, BoxXyxy, ImageBgr, Landmarks5, MeshLandmarks, Points
from shared.geometry import box_of_points
from shared.mesh.topology import EYE_LEFT, EYE_RIGHT, NOSE_TIP, inter_ocular
from shared.ort import SessionPool

# "Left" is the left of the picture with the head upright: the subject's right.
LEFT_EYE, RIGHT_EYE = EYE_RIGHT, EYE_LEFT
LEFT_EYE_CORNER, RIGHT_EYE_CORNER = 33, 263
LEFT_MOUTH_CORNER, RIGHT_MOUTH_CORNER = 61, 291

_CROP_SCALE = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class MeshFit:
    """What the landmark network says about one crop.

    Attributes:
        landmarks: Shape ``(n, 3)``, frame pixels; z in the same scale, smaller = nearer.
        presence: Logit that the crop shows a face: 9..21 on clear ones.
        xyxy: Box round the landmarks, shape ``(4,)``, frame pixels.
    """

    landmarks: MeshLandmarks
    presence: float
    xyxy: BoxXyxy = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "xyxy", box_of_points(self.landmarks))


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    input_px: int
    points_output: str
    presence_output: str


_MODELS = {
    478: _Model("facemesh478", 256, "Identity", "Identity_1"),
    468: _Model("facemesh468", 192, "conv2d_21", "conv2d_31"),
}


class FaceMesh:
    """Fits dense landmarks. Keeps its input buffer, so each thread needs its own.

    Args:
        sessions: Where the network comes from.
        points: 478 follows turned heads better and has irises; 468 costs a quarter of the time.
    """

    def __init__(self, sessions: SessionPool, points: Literal[478, 468] = 478) -> None:
        if points not in _MODELS:
            raise ValueError(f"points must be 478 or 468, not {points}")
        model = _MODELS[points]
        self.points = points
        self._session = sessions.get(model.name)
        self._points_output = self._session.output_index(model.points_output)
        self._presence_output = self._session.output_index(model.presence_output)
        self._px = model.input_px
        self._crop = np.zeros((self._px, self._px, 3), np.uint8)
        self._tensor = np.zeros((1, self._px, self._px, 3), np.float32)

    def from_detection(self, image_bgr: ImageBgr, landmarks5: Landmarks5, xyxy: BoxXyxy) -> MeshFit:
        """Landmarks of a face the detector found.

        Args:
            image_bgr: Frame, shape ``(h, w, 3)``, uint8.
            landmarks5: The detector's five points, shape ``(5, 2)``, frame pixels.
            xyxy: The detector's box, shape ``(4,)``, frame pixels.
        """
        centre = ((float(xyxy[0]) + float(xyxy[2])) / 2, (float(xyxy[1]) + float(xyxy[3])) / 2)
        side = max(float(xyxy[2] - xyxy[0]), float(xyxy[3] - xyxy[1]))
        return self._fit(image_bgr, centre, side, _angle(landmarks5[0], landmarks5[1]))

    def from_previous(self, image_bgr: ImageBgr, landmarks: MeshLandmarks) -> MeshFit:
        """Landmarks of a face that was at ``landmarks`` a frame ago, or that shall be fitted once more.

        Args:
            image_bgr: Frame, shape ``(h, w, 3)``, uint8.
            landmarks: Shape ``(n, 3)``, frame pixels.
        """
        angle = _angle(landmarks[LEFT_EYE_CORNER], landmarks[RIGHT_EYE_CORNER])
        cos, sin = math.cos(angle), math.sin(angle)
        along = landmarks[:, 0] * cos + landmarks[:, 1] * sin
        down = landmarks[:, 1] * cos - landmarks[:, 0] * sin
        left, right, upper, lower = (float(v) for v in (along.min(), along.max(), down.min(), down.max()))
        u, v = (left + right) / 2, (upper + lower) / 2
        centre = (u * cos - v * sin, u * sin + v * cos)
        return self._fit(image_bgr, centre, max(right - left, lower - upper), angle)

    def from_turned_detection(self, image_bgr: ImageBgr, landmarks5: Landmarks5, xyxy: BoxXyxy) -> MeshFit:
        """Like ``from_detection``, for a face whose landmarks may be wrong because it is not upright.

        The detector boxes such faces well, but lays its five points as if they were upright. This tries the
        four quarter turns, refines each, and keeps the one that looks most like a face.

        Args:
            image_bgr: Frame, shape ``(h, w, 3)``, uint8.
            landmarks5: The detector's five points, shape ``(5, 2)``, frame pixels.
            xyxy: The detector's box, shape ``(4,)``, frame pixels.
        """
        eye, across = landmarks5[0], landmarks5[1] - landmarks5[0]
        fits = []
        for _ in range(4):
            turned = np.stack([eye, eye + across])
            first = self.from_detection(image_bgr, turned, xyxy)
            fits.append(self.from_previous(image_bgr, first.landmarks))
            across = np.array([-across[1], across[0]], np.float32)
        return max(fits, key=lambda fit: fit.presence)

    def _fit(
        self, image_bgr: ImageBgr, centre: tuple[float, float], box_side: float, angle: float
    ) -> MeshFit:
        """Run the network on the level square round a face."""
        scale = self._px / (_CROP_SCALE * max(box_side, 1.0))
        affine = _crop_affine(centre, scale, angle, self._px)
        # What lies outside of the frame repeats its edge: black would look like a shadow on the face.
        cv2.warpAffine(
            image_bgr,
            affine,
            (self._px, self._px),
            dst=self._crop,
            flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        cv2.cvtColor(self._crop, cv2.COLOR_BGR2RGB, dst=self._crop)
        np.multiply(self._crop, np.float32(1 / 255), out=self._tensor[0])
        outputs = self._session.run(self._tensor)
        landmarks: MeshLandmarks = outputs[self._points_output].reshape(-1, 3) * np.float32(1 / scale)
        cos, sin = math.cos(angle), math.sin(angle)
        half = self._px / (2 * scale)
        x, y = landmarks[:, 0] - half, landmarks[:, 1] - half
        landmarks[:, 0], landmarks[:, 1] = centre[0] + x * cos - y * sin, centre[1] + x * sin + y * cos
        return MeshFit(landmarks, float(outputs[self._presence_output].reshape(-1)[0]))


def _angle(left: Points, right: Points) -> float:
    """Direction of the eye line in the picture, radians, clockwise on the screen."""
    return math.atan2(float(right[1] - left[1]), float(right[0] - left[0]))


def _crop_affine(centre: tuple[float, float], scale: float, angle: float, size: int) -> Affine:
    """Map of frame pixels to a crop of ``size`` whose middle is ``centre``, turned back by ``angle``."""
    a, b = scale * math.cos(angle), scale * math.sin(angle)
    cx, cy = centre
    return np.array(
        [[a, b, size / 2 - a * cx - b * cy], [-b, a, size / 2 + b * cx - a * cy]],
        np.float32,
    )


class _SmootherState(NamedTuple):
    raw: MeshLandmarks
    smoothed: MeshLandmarks
    velocity: MeshLandmarks


class LandmarkSmoother:
    """Takes the jitter out of one face's landmarks without letting them lag (One-Euro, Casiez 2012).

    Each landmark has a low-pass filter whose cut-off rises with speed. Speed is counted in inter-ocular
    distances a second, so the size of the face does not matter, and is the greater of the landmark's own
    and the mean of all: when the head moves, all points follow at once.
    """

    # Cut-off at rest in Hz and its rise with speed, measured on clips: a fifth of the jitter, lag below 1 %
    # of the inter-ocular distance.
    _MIN_CUTOFF_HZ = 1.5
    _BETA = 10.0
    _SPEED_CUTOFF_HZ = 1.0
    # Assumed where time stands still or runs back (repeated stamps, a seek).
    _DEFAULT_STEP_S = 1 / 30

    def __init__(self) -> None:
        self._state: _SmootherState | None = None
        self._time_s = 0.0
        self._step_s = self._DEFAULT_STEP_S

    def reset(self) -> None:
        """Forget the past: the next landmarks come back as they are."""
        self._state = None
        self._step_s = self._DEFAULT_STEP_S

    def smooth(self, landmarks: MeshLandmarks, time_s: float) -> MeshLandmarks:
        """Smoothed landmarks at ``time_s``.

        Args:
            landmarks: Shape ``(n, 3)``, frame pixels; kept, so do not write into it.
            time_s: When the frame is shown, seconds.

        Returns:
            Shape ``(n, 3)``, frame pixels.
        """
        step = self._step(time_s)
        last = self._state
        if last is None or len(landmarks) != len(last.smoothed):
            self._state = _SmootherState(landmarks, landmarks, np.zeros_like(landmarks))
            return landmarks
        velocity = (landmarks - last.raw) * np.float32(1 / (step * max(inter_ocular(landmarks), 1e-3)))
        velocity = last.velocity + _weight(self._SPEED_CUTOFF_HZ, step) * (velocity - last.velocity)
        speed = np.sqrt(velocity[:, 0] ** 2 + velocity[:, 1] ** 2)
        speed = np.maximum(speed, speed.mean())
        weights = _weights(np.float32(self._MIN_CUTOFF_HZ) + np.float32(self._BETA) * speed, step)
        smoothed = last.smoothed + weights[:, None] * (landmarks - last.smoothed)
        self._state = _SmootherState(landmarks, smoothed, velocity)
        return smoothed

    def _step(self, time_s: float) -> float:
        """Seconds since the last frame; the usual step where the clock did not advance."""
        step = time_s - self._time_s
        self._time_s = time_s
        if self._state is None:
            return self._DEFAULT_STEP_S
        if step > 1e-6:
            self._step_s = step
        return self._step_s


def _weight(cutoff_hz: float, step_s: float) -> np.float32:
    """Weight of the newest value in a first-order low-pass filter."""
    return np.float32(1 / (1 + 1 / (2 * math.pi * cutoff_hz * step_s)))


def _weights(cutoff_hz: npt.NDArray[np.float32], step_s: float) -> npt.NDArray[np.float32]:
    """``_weight`` for many cut-offs."""
    x = cutoff_hz * np.float32(2 * math.pi * step_s)
    return x / (1 + x)


def five_points(landmarks: MeshLandmarks) -> Landmarks5:
    """The five points recognisers align by: eye centres, nose tip, mouth corners.

    Args:
        landmarks: Shape ``(n, 3)``, frame pixels.

    Returns:
        Shape ``(5, 2)``, frame pixels; order as with the head upright.
    """
    return np.stack(
        [
            landmarks[LEFT_EYE, :2].mean(0),
            landmarks[RIGHT_EYE, :2].mean(0),
            landmarks[NOSE_TIP, :2],
            landmarks[LEFT_MOUTH_CORNER, :2],
            landmarks[RIGHT_MOUTH_CORNER, :2],
        ]
    ).astype(np.float32)
