"""A picture on its way through the pipeline, and what was changed in it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shared.arrays import ImageBgr, MaskU8


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture with the time it is shown at.

    Attributes:
        index: Position in its stream, from 0.
        image: Working copy, shape ``(h, w, 3)``, uint8 BGR, upright. Fusion writes into it.
        pts: Presentation time in units of ``time_base``; None for a still.
        time_base: Seconds per unit of ``pts``.
        native: What the decoder gave, in its own pixel format; only the decoder's module looks inside. The
            encoder takes over from it every pixel that no patch touched.
    """

    index: int
    image: ImageBgr
    pts: int | None = None
    time_base: Fraction = Fraction(1, 1)
    native: Any = None

    @property
    def time_s(self) -> float:
        """Presentation time in seconds; 0 for a still."""
        return 0.0 if self.pts is None else float(self.pts * self.time_base)


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """A changed part of a frame.

    Attributes:
        x: Left edge in frame pixels.
        y: Upper edge in frame pixels.
        image: The part as it shall look, shape ``(h, w, 3)``, uint8 BGR, already blended.
        changed: Shape ``(h, w)``, uint8: 0 where the frame's pixel is kept as it was.
    """

    x: int
    y: int
    image: ImageBgr
    changed: MaskU8


@dataclass(frozen=True, slots=True, eq=False)
class FusedFrame:
    """A frame whose ``image`` holds the fused faces, and where they are.

    Attributes:
        frame: The frame; outside of the patches its ``image`` is what was decoded.
        patches: What was changed, in the order it was applied (empty: the frame is untouched).
    """

    frame: Frame
    patches: tuple[Patch, ...] = ()
