"""Faces in a frame: what the detector finds and what the tracker follows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.arrays import BoxesXyxy, BoxXyxy, MeshLandmarks


def require_shape(name: str, array: npt.NDArray[Any], expected: tuple[int, ...]) -> None:
    """Raise ``ValueError`` naming the array, the shape wanted and the shape it has."""
    if array.shape != expected:
        raise ValueError(f"{name} must have shape {expected}, not {array.shape}")


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """All faces of one frame, as parallel arrays over the same ``n``.

    Attributes:
        xyxy: Boxes, shape ``(n, 4)``, frame pixels.
        confidence: Detector score, shape ``(n,)``, in ``[0, 1]``.
        landmarks: Five points a face, shape ``(n, 5, 2)``, frame pixels, order of ``Landmarks5``.
    """

    xyxy: BoxesXyxy
    confidence: npt.NDArray[np.float32]
    landmarks: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        n = len(self.xyxy)
        require_shape("xyxy", self.xyxy, (n, 4))
        require_shape("confidence", self.confidence, (n,))
        require_shape("landmarks", self.landmarks, (n, 5, 2))

    def __len__(self) -> int:
        return len(self.xyxy)

    @classmethod
    def empty(cls) -> "Detections":
        """No face at all."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros((0, 5, 2), np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class TrackedFace:
    """One face of one frame, as the fusion needs it.

    Attributes:
        track_id: Unique within one stream; survives occlusion.
        landmarks: Smoothed dense points, shape ``(n, 3)``, frame pixels.
        presence: Face-presence logit of the landmark model; 9..21 on clear faces, below 3 no face.
        xyxy: Box round the landmarks, shape ``(4,)``, frame pixels.
        confidence: Score of the detection that last confirmed the track, in ``[0, 1]``.
        restarted: True on the first frame of a track and after a cut or a loss: temporal state starts anew.
        pair: Index of the source that goes onto this face, or None to leave it alone.
    """

    track_id: int
    landmarks: MeshLandmarks
    presence: float
    xyxy: BoxXyxy
    confidence: float
    restarted: bool
    pair: int | None = None

    def __post_init__(self) -> None:
        require_shape("landmarks", self.landmarks, (len(self.landmarks), 3))
        require_shape("xyxy", self.xyxy, (4,))
