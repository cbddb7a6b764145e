"""Where a scene ends: a sudden change of everything in the picture.

Each frame is reduced to 64x36 points. A cut has happened when, against the last frame, neither the layout
can be recognised, even shifted, nor the palette. A camera that pans shifts the layout; one that shakes or a
hand before the lens keeps the palette; a flash and a fade keep the layout, because brightness and contrast
are taken out first. A frame that is nearly one colour (the height of a flash, the black of a fade) shows
nothing: it is passed over and the next one is held against the frame before.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr

_COLUMNS, _ROWS = 64, 36
# Below this standard deviation (grey levels) a frame shows nothing.
_FLAT = 6.0
# From this grey level a point is burnt out.
_WHITE = 250.0
# A layout that correlates better than this is the same one, perhaps shifted.
_SAME_LAYOUT = 0.62
# Else palettes (half of the sum of differences, in [0, 1]) further apart than this are of different scenes,
# the more so the less the layouts have in common. Set on all pairs of scenes of the test media, pans of up to
# a quarter of the width a frame, gestures and flashes.
_LEAST_PALETTE = 0.1
_PALETTE_PER_LAYOUT = 0.4
# When the share of burnt-out points jumps by this much it may be a flash: wait so many frames for its end.
_FLASH = 0.2
_FLASH_FRAMES = 2


def _high_pass() -> npt.NDArray[np.float32]:
    """Weights of frequencies: coarse brightness is alike in any two pictures and tells nothing."""
    across = np.fft.rfftfreq(_COLUMNS)[None] * _COLUMNS
    down = np.fft.fftfreq(_ROWS)[:, None] * _ROWS
    radius = np.hypot(across, down)
    return (radius / (radius + 4)).astype(np.float32)


_HIGH_PASS = _high_pass()
# A real transform keeps half of the columns: all but the first and the last stand for two.
_TWICE = np.array([1, *[2] * (_COLUMNS // 2 - 1), 1], np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """What is kept of a frame.

    Attributes:
        spectrum: Fourier transform of the grey points, coarse parts taken out, of length 1.
        palette: Shares of colours and of relative brightness, sums to 1.
        burnt: Share of points that are nearly white.
    """

    spectrum: npt.NDArray[np.complex64]
    palette: npt.NDArray[np.float32]
    burnt: float


class CutDetector:
    """Tells the first frame of a new scene. One for each stream."""

    def __init__(self) -> None:
        self._last: _Look | None = None
        self._shape: tuple[int, ...] = ()
        self._waited = 0

    def is_cut(self, image_bgr: ImageBgr) -> bool:
        """Whether the scene changed between the last frame and this one; false for the first.

        Args:
            image_bgr: Shape ``(h, w, 3)``, uint8.
        """
        look = _look(image_bgr)
        if look is None:
            return False
        last, resized = self._last, image_bgr.shape != self._shape
        if last is not None and self._flashes(last, look):
            return False
        self._last, self._shape, self._waited = look, image_bgr.shape, 0
        return last is not None and (resized or _differ(last, look))

    def _flashes(self, last: _Look, look: _Look) -> bool:
        self._waited += 1
        return look.burnt - last.burnt > _FLASH and self._waited <= _FLASH_FRAMES


def _differ(a: _Look, b: _Look) -> bool:
    layout = _best_correlation(a, b)
    if layout >= _SAME_LAYOUT:
        return False
    palette = float(np.abs(a.palette - b.palette).sum()) / 2
    return palette > _LEAST_PALETTE + _PALETTE_PER_LAYOUT * layout


def _best_correlation(a: _Look, b: _Look) -> float:
    """Correlation of two layouts at the shift that suits them best."""
    return float(np.fft.irfft2(a.spectrum * b.spectrum.conj(), (_ROWS, _COLUMNS)).max())


def _look(image_bgr: ImageBgr) -> _Look | None:
    """What is kept of a frame; None for one that is nearly one colour."""
    points = _sample(image_bgr)
    total = points[..., 0] + points[..., 1] + points[..., 2]
    mean = float(total.mean())
    grey = total - np.float32(mean)
    deviation = math.sqrt(float(np.vdot(grey, grey)) / grey.size)
    if deviation < 3 * _FLAT:
        return None
    spectrum = np.fft.rfft2(grey).astype(np.complex64)
    spectrum *= _HIGH_PASS
    power = np.einsum("rc,rc,c->", spectrum, spectrum.conj(), _TWICE).real
    spectrum *= np.float32(1 / math.sqrt(float(power) / grey.size))
    burnt = float(np.count_nonzero(total > 3 * _WHITE)) / grey.size
    return _Look(spectrum, _palette(points, total, mean, deviation), burnt)


def _sample(image_bgr: ImageBgr) -> npt.NDArray[np.float32]:
    """The picture at 64x36 points, each the mean of two pixels: shape ``(36, 64, 3)``."""
    h, w = image_bgr.shape[:2]
    if h < 2 * _ROWS or w < _COLUMNS:
        rows, columns = np.arange(2 * _ROWS) * h // (2 * _ROWS), np.arange(_COLUMNS) * w // _COLUMNS
        fine = image_bgr[rows[:, None], columns]
    else:
        # Plain strides touch few pixels and leave at most a border out.
        fine = image_bgr[:: h // (2 * _ROWS), :: w // _COLUMNS][: 2 * _ROWS, :_COLUMNS]
    points = fine[::2].astype(np.float32)
    points += fine[1::2]
    points *= np.float32(0.5)
    return points


def _palette(
    points: npt.NDArray[np.float32], total: npt.NDArray[np.float32], mean: float, deviation: float
) -> npt.NDArray[np.float32]:
    """Histogram over chroma (8x8, independent of gain) and relative brightness (4 levels)."""
    # Dark points have no reliable chroma: a little grey pulls them to neutral.
    part = np.float32(20) / (total + np.float32(24))
    chroma = (points[..., ::2] + np.float32(8)) * part[..., None] - np.float32(2.7)
    bins = np.clip(chroma, 0, 7).astype(np.uint8)
    level = np.clip((total - np.float32(mean - 2 * deviation)) * np.float32(1 / deviation), 0, 3)
    keys = (bins[..., 0] << 5) | (bins[..., 1] << 2) | level.astype(np.uint8)
    return np.bincount(keys.ravel(), minlength=256).astype(np.float32) * np.float32(1 / keys.size)
