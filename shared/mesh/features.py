"""The parts of the face that stay the target's own: eyeballs, closing lids and the inside of the mouth.

A dead gaze or borrowed teeth betray a fusion at once; the target's own keep looking, blinking and talking.
"""

import cv2
import numpy as np

from shared.arrays import MaskU8
from shared.mesh.topology import (
    EYE_LEFT,
    EYE_RIGHT,
    LID_POINTS_LEFT,
    LID_POINTS_RIGHT,
    LIDS_LEFT,
    LIDS_RIGHT,
    LIPS_INNER,
    MOUTH_POINTS,
    Floats,
)

_DRAWN_FACE_PX = 220
"""The mask is drawn as if the face were this wide at most, and scaled up: it is soft anyway."""
_SOFT = 0.016
"""Width of the soft edge, as part of the face's width."""
_MOUTH_OPEN = 0.02
"""The lips count as open beyond this part of the face's width."""


def openness(points: Floats, lid_points: tuple[int, int, int, int]) -> float:
    """Gap between two lids (or lips) over the distance of the corners."""
    upper, lower, outer, inner = (points[i, :2] for i in lid_points)
    width = float(np.hypot(*(outer - inner)))
    return float(np.hypot(*(upper - lower))) / max(width, 1e-3)


def mouth_openness(points: Floats) -> float:
    """Gap of the inner lips over the width of the mouth."""
    return openness(points, MOUTH_POINTS)


def closing(points: Floats, lid_points: tuple[int, int, int, int]) -> float:
    """0 for an open eye, 1 for a closed one."""
    return float(np.clip((0.22 - openness(points, lid_points)) / 0.08, 0, 1))


def _fill(mask: MaskU8, contour: Floats, value: int) -> None:
    cv2.fillPoly(mask, [np.rint(contour * 16).astype(np.int32)], value, cv2.LINE_AA, 4)


def own_features(points: Floats, size_wh: tuple[int, int]) -> MaskU8:
    """How much of the fused face may show, shape ``(h, w)``: 0 over eyeballs and open mouth, else 255.

    Args:
        points: Mesh points in pixels of the region, shape ``(468 or more, 2+)``.
        size_wh: Width and height of the region.
    """
    width = float(np.ptp(points[:, 0]))
    scale = min(1.0, _DRAWN_FACE_PX / max(width, 1.0))
    w, h = max(1, round(size_wh[0] * scale)), max(1, round(size_wh[1] * scale))
    stretch = np.array([w / size_wh[0], h / size_wh[1]], np.float32)
    drawn = (points[:, :2] + 0.5) * stretch - 0.5
    mask = np.full((h, w), 255, np.uint8)
    for eye, lids, lid_points in (
        (EYE_RIGHT, LIDS_RIGHT, LID_POINTS_RIGHT),
        (EYE_LEFT, LIDS_LEFT, LID_POINTS_LEFT),
    ):
        closed = closing(points, lid_points)
        if closed > 0:
            # The source's thin upper lid would be stretched into a black smear over a closed eye.
            _fill(mask, drawn[lids], round(255 * (1 - 0.85 * closed)))
        _fill(mask, drawn[eye], 0)
    if np.hypot(*(points[MOUTH_POINTS[0], :2] - points[MOUTH_POINTS[1], :2])) > _MOUTH_OPEN * width:
        _fill(mask, drawn[LIPS_INNER], 0)
    soft = max(1, round(_SOFT * width * scale))
    mask = cv2.blur(mask, (2 * soft // 2 * 2 + 1, 2 * soft // 2 * 2 + 1))
    return mask if (w, h) == size_wh else cv2.resize(mask, size_wh, interpolation=cv2.INTER_LINEAR)
