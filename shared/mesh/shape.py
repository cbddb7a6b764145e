"""The source's 3-D face shape, carried over to the target while the target's expression stays.

Texture alone leaves the target's proportions; moving the target's mesh towards the source's shape is the
largest single gain in likeness.
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.geometry import fit_rigid_3d
from shared.mesh.topology import (
    EYE_LEFT,
    EYE_RIGHT,
    FACE_POINTS,
    LIDS_LEFT,
    LIDS_RIGHT,
    LIPS_INNER,
    LIPS_OUTER,
    MOUTH_POINTS,
    Floats,
    topology,
)

# A source that smiles or squints must not bend the target's mouth and eyes: their own differences are pulled
# towards the mean difference of the region.
_MOUTH_KEEP = 0.6
_EYE_KEEP = 0.8
_LOWER_LIP = 0.7
"""Part of an opening mouth that the lower lip makes; the upper lip makes the rest."""
_SMOOTH_CM = 0.4
_NEUTRAL_FRAMES = 200
_NEUTRAL_RATE = 0.005
_REFRESH_FRAMES = 8


@dataclass(frozen=True, slots=True, eq=False)
class HeadPose:
    """Similarity from the canonical head to the picture.

    Attributes:
        scale: Pixels per cm.
        rotation: Shape ``(3, 3)``.
        shift: Pixels, shape ``(3,)``.
        canonical: The face's points brought back into the canonical frame, cm, shape ``(468, 3)``.
    """

    scale: float
    rotation: Floats
    shift: Floats
    canonical: Floats

    @property
    def yaw_deg(self) -> float:
        """Turn to the side in ``[-180, 180]``, positive where the nose points to the right of the picture."""
        return float(np.degrees(np.arctan2(-self.rotation[0, 2], self.rotation[2, 2])))

    @property
    def pitch_deg(self) -> float:
        """Nod, positive where the nose points up."""
        return float(np.degrees(-np.arctan2(self.rotation[2, 1], self.rotation[2, 2])))

    @property
    def roll_deg(self) -> float:
        """Tilt in the picture in ``[-180, 180]``, clockwise on the screen."""
        return float(np.degrees(np.arctan2(self.rotation[1, 0], self.rotation[0, 0])))


def head_pose(landmarks: Floats) -> HeadPose:
    """Fit the canonical head to the landmarks, shape ``(468 or more, 3)`` in pixels."""
    points = landmarks[:FACE_POINTS]
    scale, rotation, shift = fit_rigid_3d(topology().xyz, points)
    canonical = (points - shift) @ rotation / scale
    return HeadPose(
        scale,
        rotation.astype(np.float32),
        shift.astype(np.float32),
        canonical.astype(np.float32),
    )


@functools.cache
def _smoothing() -> Floats:
    """Row-normalised Gaussian over canonical distance, shape ``(468, 468)``."""
    xyz = topology().xyz
    distance2 = ((xyz[:, None] - xyz[None]) ** 2).sum(-1)
    kernel = np.exp(-distance2 / (2 * _SMOOTH_CM**2))
    return (kernel / kernel.sum(1, keepdims=True)).astype(np.float32)


def shape_difference(source: Floats, neutral: Floats) -> Floats:
    """How far each point of the target moves to take on the source's shape.

    Args:
        source: The source's shape in the canonical frame, cm, shape ``(468, 3)``.
        neutral: The target's own shape without expression, same frame and shape.

    Returns:
        Displacement in cm, shape ``(468, 3)``; symmetric, smooth, free of the source's expression.
    """
    delta = source - neutral
    mirrored = delta[topology().mirror] * np.array([-1, 1, 1], np.float32)
    delta = (delta + mirrored) / 2
    upper_lip, lower_lip = MOUTH_POINTS[:2]
    opened = delta[lower_lip, 1] - delta[upper_lip, 1]
    delta[:, 1] -= opened * _lip_shares()
    mouth = np.concatenate([LIPS_OUTER, LIPS_INNER])
    right = np.concatenate([EYE_RIGHT, LIDS_RIGHT])
    left = np.concatenate([EYE_LEFT, LIDS_LEFT])
    for region, keep in ((mouth, _MOUTH_KEEP), (right, _EYE_KEEP), (left, _EYE_KEEP)):
        mean = delta[region].mean(0)
        delta[region] = mean + keep * (delta[region] - mean)
    return (_smoothing() @ delta).astype(np.float32)


@functools.cache
def _lip_shares() -> Floats:
    """How each point takes part when the mouth opens by 1, shape ``(468,)``: lips only, none at the corners.

    An open mouth is an expression, not a shape: a laughing source must not part closed lips.
    """
    xyz = topology().xyz
    corner = abs(float(xyz[MOUTH_POINTS[2], 0]))
    middle = float(xyz[list(MOUTH_POINTS[:2]), 1].mean())
    shares = np.zeros(FACE_POINTS, np.float32)
    lips = np.concatenate([LIPS_OUTER, LIPS_INNER])
    across = np.clip(1 - (xyz[lips, 0] / corner) ** 2, 0, 1)
    shares[lips] = across * np.where(xyz[lips, 1] > middle, _LOWER_LIP, _LOWER_LIP - 1)
    return shares


class ShapeTransfer:
    """Moves the mesh of one running track towards a source's shape.

    The target's neutral face is the running mean of its canonical shape, so speech and blinks survive.

    Args:
        source_shape: Canonical shape of the source, cm, shape ``(468, 3)``.
        strength: 0 leaves the target's shape, 1 takes the source's.
    """

    def __init__(self, source_shape: Floats, strength: float) -> None:
        self._source_shape = source_shape
        self._strength = strength
        self._frames = 0
        self._neutral: Floats | None = None
        self._delta = np.zeros((FACE_POINTS, 3), np.float32)

    def moved(self, pose: HeadPose) -> npt.NDArray[np.float32]:
        """Screen displacement of each point in pixels, shape ``(468, 2)``."""
        if self._strength == 0:
            return np.zeros((FACE_POINTS, 2), np.float32)
        self._learn(pose.canonical)
        shift = self._delta @ pose.rotation[:2].T
        return shift * np.float32(self._strength * pose.scale)

    def _learn(self, canonical: Floats) -> None:
        self._frames += 1
        if self._neutral is None:
            self._neutral = canonical.copy()
        else:
            rate = max(1 / self._frames, _NEUTRAL_RATE) if self._frames <= _NEUTRAL_FRAMES else _NEUTRAL_RATE
            self._neutral += np.float32(rate) * (canonical - self._neutral)
        # The first frames move the mean a lot, later ones hardly.
        if self._frames <= 4 or self._frames % _REFRESH_FRAMES == 0:
            self._delta = shape_difference(self._source_shape, self._neutral)
