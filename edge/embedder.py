"""Who a face is: recognisers that turn an aligned face into an identity vector."""

from typing import Protocol

import cv2
import numpy as np

from shared.arrays import Embedding, ImageBgr, Landmarks5
from shared.geometry import ARCFACE_112, DLIB_150, fit_similarity
from shared.ort import SessionPool


class Embedder(Protocol):
    """A recogniser.

    Attributes:
        name: The model's name in the registry. Vectors of different names must never be compared.
    """

    @property
    def name(self) -> str:
        """The model's name in the registry."""
        ...

    def embed(self, image_bgr: ImageBgr, landmarks5: Landmarks5) -> Embedding:
        """Identity vector of the face at ``landmarks5`` (frame pixels)."""
        ...

    def similarity(self, a: Embedding, b: Embedding) -> float:
        """How alike two vectors of this recogniser are: higher is more alike, 1 is the same picture."""
        ...


class MobileFaceNet:
    """The product's recogniser: 192 numbers, L2-normalised, compared by cosine; same person from 0.45.

    Keeps its input buffer, so each thread needs its own.

    Args:
        sessions: Where the network comes from.
    """

    name = "mobilefacenet192"

    def __init__(self, sessions: SessionPool) -> None:
        self._session = sessions.get(self.name)
        self._crop = np.zeros((112, 112, 3), np.uint8)
        self._tensor = np.zeros((1, 112, 112, 3), np.float32)

    def embed(self, image_bgr: ImageBgr, landmarks5: Landmarks5) -> Embedding:
        """Identity vector, shape ``(192,)``, length 1.

        Args:
            image_bgr: Frame, shape ``(h, w, 3)``, uint8.
            landmarks5: Shape ``(5, 2)``, frame pixels.
        """
        affine = fit_similarity(landmarks5, ARCFACE_112)
        cv2.warpAffine(image_bgr, affine, (112, 112), dst=self._crop, flags=cv2.INTER_LINEAR)
        cv2.cvtColor(self._crop, cv2.COLOR_BGR2RGB, dst=self._crop)
        np.subtract(self._crop, np.float32(127.5), out=self._tensor[0])
        self._tensor *= np.float32(1 / 128)
        vector = self._session.run(self._tensor)[0][0]
        return vector / max(float(np.linalg.norm(vector)), 1e-12)

    def similarity(self, a: Embedding, b: Embedding) -> float:
        """Cosine, in ``[-1, 1]``."""
        return float(a @ b)


class DlibResNet:
    """An independent second opinion for benchmarks: 128 numbers, not normalised, compared by distance.

    Two pictures show one person when their distance is below 0.6, that is from a similarity of 0.4.
    Keeps its input buffer, so each thread needs its own.

    Args:
        sessions: Where the network comes from.
    """

    name = "dlib_resnet"

    def __init__(self, sessions: SessionPool) -> None:
        self._session = sessions.get(self.name)
        self._crop = np.zeros((150, 150, 3), np.uint8)
        self._tensor = np.zeros((1, 3, 150, 150), np.float32)

    def embed(self, image_bgr: ImageBgr, landmarks5: Landmarks5) -> Embedding:
        """Identity vector, shape ``(128,)``, of length about 1.27.

        Args:
            image_bgr: Frame, shape ``(h, w, 3)``, uint8.
            landmarks5: Shape ``(5, 2)``, frame pixels.
        """
        affine = fit_similarity(landmarks5, DLIB_150)
        cv2.warpAffine(image_bgr, affine, (150, 150), dst=self._crop, flags=cv2.INTER_LINEAR)
        for channel in range(3):
            self._tensor[0, 2 - channel] = self._crop[:, :, channel]
        return self._session.run(self._tensor)[0][0]

    def similarity(self, a: Embedding, b: Embedding) -> float:
        """One less the Euclidean distance: 1 for equal vectors, falling without bound."""
        return 1.0 - float(np.linalg.norm(a - b))
