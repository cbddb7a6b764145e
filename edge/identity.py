"""Who a track is, decided over many frames: a vote of its best embeddings.

Embedding a face costs as much as finding its landmarks, and a single frame may mislead: blur, a hand, a
profile. So a track is embedded when it is new, every few frames until its samples agree, and rarely after
that; the mean of the five best counts. A sample unlike that mean is doubted and asked for once more on the
next frame; a second one like the first means that the track has slipped onto somebody else.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from shared.arrays import Embedding


@dataclass(frozen=True, slots=True)
class IdentityConfig:
    """How often faces are embedded and when their samples agree.

    Attributes:
        open_every_n: Frames between samples until the vote is settled.
        settled_every_n: Frames between samples after that.
        contested_every_n: Frames between samples while another face is near enough to be mixed up.
        keep: How many samples are kept, the best by quality.
        settle_samples: So many samples that agree settle the vote.
        agree_cosine: From this likeness to the mean a sample agrees.
        jump_cosine: Below this likeness to the mean a sample is of somebody else.
        max_yaw_deg: Faces turned further do not vote, degrees.
    """

    open_every_n: int = 5
    settled_every_n: int = 30
    contested_every_n: int = 3
    keep: int = 5
    settle_samples: int = 3
    agree_cosine: float = 0.5
    jump_cosine: float = 0.3
    max_yaw_deg: float = 45.0

    def __post_init__(self) -> None:
        for name in ("open_every_n", "settled_every_n", "contested_every_n", "keep", "settle_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class Verdict(Enum):
    """What became of a sample."""

    COUNTED = "counted"
    IGNORED = "ignored"
    DOUBTED = "doubted"
    JUMPED = "jumped"


def face_quality(inter_ocular_px: float, presence: float, yaw_deg: float) -> float:
    """How far a face can be trusted to show who it is, in ``[0, 1]``: size, clearness and frontality."""
    size = min(1.0, inter_ocular_px / 50)
    clear = min(1.0, max(0.0, presence / 12))
    return size * clear * max(0.0, math.cos(math.radians(yaw_deg)))


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    quality: float
    embedding: Embedding


class IdentityVote:
    """The vote of one track.

    Args:
        config: How often to sample and when samples agree.
    """

    # A sample this much better than the best one kept is worth taking before its turn.
    _BETTER = 1.3
    # A sample this much worse than the best one kept says nothing about somebody else.
    _TOO_POOR = 0.5

    def __init__(self, config: IdentityConfig | None = None) -> None:
        self._config = config or IdentityConfig()
        self._samples: list[_Sample] = []
        self._mean: Embedding | None = None
        self._doubted: Embedding | None = None
        self._last_frame: int | None = None

    @property
    def embedding(self) -> Embedding | None:
        """Mean of the best samples, weighted by quality, of length 1; None before the first."""
        return self._mean

    @property
    def last_frame(self) -> int | None:
        """Index of the frame last sampled; None before the first."""
        return self._last_frame

    @property
    def settled(self) -> bool:
        """Enough samples agree."""
        if self._mean is None:
            return False
        agree = sum(float(s.embedding @ self._mean) >= self._config.agree_cosine for s in self._samples)
        return agree >= min(self._config.settle_samples, self._config.keep)

    def due(self, frame_index: int, quality: float, yaw_deg: float, *, contested: bool = False) -> bool:
        """Whether this frame's face should be embedded.

        Args:
            frame_index: Position in the stream.
            quality: Of the face in this frame, see ``face_quality``.
            yaw_deg: How far the head is turned.
            contested: Another face is near enough to be mixed up.
        """
        if abs(yaw_deg) > self._config.max_yaw_deg:
            return False
        if self._last_frame is None or self._doubted is not None:
            return True
        waited = frame_index - self._last_frame
        if waited < 0:
            return True  # the stream was wound back
        if contested and waited >= self._config.contested_every_n:
            return True
        if waited < self._config.open_every_n:
            return False
        better = quality > self._BETTER * max((s.quality for s in self._samples), default=0.0)
        return better or not self.settled or waited >= self._config.settled_every_n

    def likeness(self, embedding: Embedding) -> float | None:
        """Cosine between a sample and the mean; None before the first sample."""
        return None if self._mean is None else float(embedding @ self._mean)

    def add(self, embedding: Embedding, quality: float, frame_index: int) -> Verdict:
        """Take a sample.

        Args:
            embedding: Of length 1.
            quality: See ``face_quality``.
            frame_index: Position in the stream.

        Returns:
            Whether it counts; ``JUMPED`` when, for the second time running, it is somebody else's.
        """
        self._last_frame = frame_index
        if self._mean is not None and float(embedding @ self._mean) < self._config.jump_cosine:
            if quality < self._TOO_POOR * max(s.quality for s in self._samples):
                return Verdict.IGNORED
            return self._doubt(embedding)
        self._doubted = None
        # Stable sort: of equal quality the older stays in front, so a still scene does not churn.
        self._samples.append(_Sample(max(quality, 1e-3), embedding))
        self._samples.sort(key=lambda s: -s.quality)
        del self._samples[self._config.keep :]
        total = np.sum([s.quality * s.embedding for s in self._samples], axis=0)
        self._mean = (total / max(float(np.linalg.norm(total)), 1e-12)).astype(np.float32)
        return Verdict.COUNTED

    def _doubt(self, embedding: Embedding) -> Verdict:
        before, self._doubted = self._doubted, embedding
        if before is not None and float(embedding @ before) >= self._config.agree_cosine:
            self._doubted = None
            return Verdict.JUMPED
        return Verdict.DOUBTED
