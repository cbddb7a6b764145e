"""How sharp the target is, so that a crisp portrait does not look pasted onto a soft video.

The measure is a slope: fine detail over coarser detail. It is taken on the unwrapped target at about the
scale it has on screen, and compared with the source's atlas at the same scale after each blur of a ladder.
The atlas's side is tabulated per source and scale, so a measurement costs one unwrap and two blurs.
"""

import functools

import cv2
import numpy as np

from shared.arrays import ImageBgr
from shared.mesh.source import BLURS, PreparedSource
from shared.mesh.topology import RING_REACH, Floats
from shared.mesh.uvgrid import face_regions, unwrap, uv_grid

SCALES = (64, 96, 128, 192)
"""Sides of the grid the target may be unwrapped to; the nearest to its size on screen is taken."""
_UV_FACE_WIDTH = 0.8
"""Width of the face in the texture, as part of its side."""


def _slope(picture: ImageBgr, weight: Floats) -> float:
    grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY).astype(np.float32)
    fine = cv2.GaussianBlur(grey, (0, 0), 1.0)
    coarse = cv2.GaussianBlur(grey, (0, 0), 2.5)
    total = max(float(weight.sum()), 1.0)

    def std(values: Floats) -> float:
        mean = float((values * weight).sum()) / total
        return float(np.sqrt(((values - mean) ** 2 * weight).sum() / total))

    return std(grey - fine) / max(std(fine - coarse), 1e-3)


@functools.cache
def _measured(size: int) -> Floats:
    """Where sharpness is read: the inner face, away from its edge."""
    return cv2.erode(face_regions(size).inner, np.ones((5, 5), np.uint8))


def scale_for(face_width_px: float) -> int:
    """The grid side that shows the face at about its size on screen."""
    return min(SCALES, key=lambda side: abs(side * _UV_FACE_WIDTH - face_width_px))


def source_slopes(source: PreparedSource, size: int) -> list[float]:
    """Slope of the source after each blur of ``BLURS``, falling; measured once a source and scale."""
    if size not in source.slopes:
        weight = _measured(size)
        source.slopes[size] = [
            _slope(cv2.resize(source.blurred(level), (size, size), interpolation=cv2.INTER_AREA), weight)
            for level in range(len(BLURS))
        ]
    return source.slopes[size]


def sharpness_level(source: PreparedSource, image: ImageBgr, points: Floats, visible: Floats) -> int:
    """The first blur of ``BLURS`` after which the source is no sharper than the target.

    Args:
        source: The person to show.
        image: Picture around the target's face, shape ``(h, w, 3)``.
        points: Mesh points in its pixels, shape ``(504, 2+)``.
        visible: Where the target is its own unhidden surface, on the statistics grid.
    """
    width = float(np.ptp(points[:, 0])) / RING_REACH
    size = scale_for(width)
    weight = _measured(size) * cv2.resize(visible, (size, size), interpolation=cv2.INTER_LINEAR)
    step = max(1, int(width / (size * _UV_FACE_WIDTH) + 0.5))
    target = _slope(unwrap(image, points, uv_grid(size), step=step), weight)
    for level, slope in enumerate(source_slopes(source, size)):
        if slope <= target:
            return level
    return len(BLURS) - 1
