"""Spectacles on the target: what belongs to them stays the target's own.

Half a frame looks worse than none. A frame is a thin line, darker or brighter than the skin, that crosses
the bridge of the nose and runs round the eyes out to the temples; a sunglass is a dark patch that swallows
the eye. Both are looked for in a finer grid than the other statistics, once in a while, and only kept where
the whole pattern is there.
"""

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr, MaskU8
from shared.mesh.topology import BROW_RIGHT, EYE_RIGHT, OVAL, Floats, topology
from shared.mesh.uvgrid import face_regions, unwrap, uv_grid

Mask = npt.NDArray[np.bool_]

SIDE = 192
"""Side of the grid, texels."""
_EVERY = 12
_RATE = 0.4
_LINE_TEXELS = 9
"""Widest line that still counts as a thin frame."""
_LINE = 0.09
"""How far a line stands out from the skin beside it, as part of the skin's lightness."""
_DARK = 0.62
"""Thick frames and tinted glass: darker than this part of the skin's lightness."""
# Over 43 faces, 5 of them with spectacles: bridges 0.10..0.36 with, up to 0.11 without; temples 0.11..0.7
# with, and where a wrinkle crosses the bridge, at most 0.06 without.
_BRIDGE = 0.095
_TEMPLE = 0.11
_NOSE_WIDTH = 0.2
_SMALLEST_FACE_PX = 110
_SMALLEST_PIECE = 40
_SUNGLASS = 0.7


def _square(side: int) -> MaskU8:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))


def _line_across(light: Floats) -> float:
    """Strength of the strongest horizontal line in a patch, grey levels."""
    profile = light.mean(1, dtype=np.float32).reshape(-1, 1)
    kernel = np.ones((_LINE_TEXELS, 1), np.uint8)
    dark = cv2.morphologyEx(profile, cv2.MORPH_BLACKHAT, kernel)
    bright = cv2.morphologyEx(profile, cv2.MORPH_TOPHAT, kernel)
    return float(np.maximum(dark, bright)[2:-2].max())


class GlassesModel:
    """Follows the spectacles of one track."""

    def __init__(self) -> None:
        uv = topology().uv * SIDE
        regions = face_regions(SIDE)
        self._band = regions.band > 0
        self._skin = regions.cheeks > 0
        self._eyes = regions.eyes > 0
        brows = cv2.dilate(regions.brows.astype(np.uint8), _square(5)) > 0
        self._not_frame = self._eyes | brows
        self._nose = self._below_bridge(uv)
        self._rows = slice(int(uv[BROW_RIGHT, 1].min()) - 2, int(uv[EYE_RIGHT, 1].max()) + 12)
        self._bridge = slice(SIDE // 2 - 5, SIDE // 2 + 4)
        edge = float(uv[OVAL, 0].min()) + 14
        outer = float(uv[EYE_RIGHT, 0].min()) - 6
        self._temples = (slice(int(edge), int(outer)), slice(int(SIDE - outer), int(SIDE - edge)))
        self._kept: Floats | None = None
        self._frames = 0

    @staticmethod
    def _below_bridge(uv: Floats) -> Mask:
        """The nose below the eyes: thin lines there are its own shadows."""
        rows = np.arange(SIDE)[:, None] > uv[EYE_RIGHT, 1].max()
        columns = np.abs(np.arange(SIDE) + 0.5 - SIDE / 2)[None] < _NOSE_WIDTH / 2 * SIDE
        return rows & columns

    def update(self, image: ImageBgr, points: Floats, face_width_px: float) -> MaskU8 | None:
        """Look again if it is time.

        Args:
            image: Picture around the face, shape ``(h, w, 3)``.
            points: Mesh points in its pixels, shape ``(504, 2+)``.
            face_width_px: Width of the face; frames of small faces cannot be told.

        Returns:
            How far the fused face may show, shape ``(192, 192)``, uint8, or None where nothing is in its way.
        """
        if self._frames % _EVERY == 0:
            found = self._find(image, points, face_width_px)
            self._blend(found)
        self._frames += 1
        if self._kept is None or float(self._kept.max()) < 0.02:
            return None
        return (255 - 255 * self._kept).astype(np.uint8)

    def _blend(self, found: Floats | None) -> None:
        if self._kept is None:
            self._kept = found
            return
        goal = np.zeros((SIDE, SIDE), np.float32) if found is None else found
        self._kept += np.float32(_RATE) * (goal - self._kept)

    def _find(self, image: ImageBgr, points: Floats, face_width_px: float) -> Floats | None:
        step = max(1, round(face_width_px / (SIDE * 0.8)))
        seen = unwrap(image, points, uv_grid(SIDE), step=step)
        light = cv2.cvtColor(seen, cv2.COLOR_BGR2Lab)[..., 0]
        skin = max(float(np.median(light[self._skin])), 1.0)
        dark = (light < _DARK * skin) & self._band
        tinted = self._tinted(dark)
        if not tinted and not (face_width_px >= _SMALLEST_FACE_PX and self._framed(light, skin)):
            return None
        frame = ((self._lines(light, skin) & ~self._nose) | dark) & (~self._not_frame | tinted)
        piece = cv2.morphologyEx(frame.astype(np.uint8), cv2.MORPH_CLOSE, _square(11 if tinted else 5))
        piece = cv2.dilate(self._without_specks(piece), _square(9 if tinted else 5))
        return cv2.GaussianBlur(piece.astype(np.float32), (0, 0), 1.2)

    def _framed(self, light: MaskU8, skin: float) -> bool:
        """Whether a line crosses the bridge and another a temple."""
        smooth = cv2.GaussianBlur(light, (0, 0), 0.8)[self._rows].astype(np.float32)
        if _line_across(smooth[:, self._bridge]) < _BRIDGE * skin:
            return False
        return max(_line_across(smooth[:, part]) for part in self._temples) >= _TEMPLE * skin

    def _lines(self, light: MaskU8, skin: float) -> Mask:
        kernel = _square(_LINE_TEXELS)
        dark = cv2.morphologyEx(light, cv2.MORPH_BLACKHAT, kernel)
        bright = cv2.morphologyEx(light, cv2.MORPH_TOPHAT, kernel)
        return (np.maximum(dark, bright) > _LINE * skin) & self._band

    @staticmethod
    def _without_specks(mask: MaskU8) -> MaskU8:
        _, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
        keep = stats[:, cv2.CC_STAT_AREA] >= _SMALLEST_PIECE
        keep[0] = False
        return keep[labels].astype(np.uint8)

    def _tinted(self, dark: Mask) -> bool:
        """Whether dark glass covers both eyes and what is around them."""
        around = self._band & (cv2.dilate(self._eyes.astype(np.uint8), _square(9)) > 0)
        half = SIDE // 2
        shares = [dark[:, part][around[:, part]].mean() for part in (slice(0, half), slice(half, SIDE))]
        return min(shares) > _SUNGLASS
