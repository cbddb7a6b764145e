"""The target's light on the source's skin: contrast and a smooth colour field, on the statistics grid.

atlas colour = k * texture + D, with D = lowpass(target) - k * lowpass(texture). Both low-passes are taken
under one mask: skin that is seen in the target and valid in the source.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from shared.arrays import ImageBgr
from shared.mesh.source import ATLAS, PreparedSource
from shared.mesh.topology import Floats
from shared.mesh.uvgrid import GRID, face_regions

_EMA = 0.3
_CHROMA_TEXELS = 75
"""Blotches up to about this size count as coloured detail; larger ones are the light field's."""
_SHADING_SIGMA = 1.6
"""Texels of the grid; finer detail than this is matched by the contrast."""
_LEAST_SHADING = 0.35
_WIDE = 16
"""Side of the coarse grid that fills in where little skin is seen."""
_SEEN_ENOUGH = 0.15


def _box3(planes: Floats, size: int) -> Floats:
    """Three box blurs: near a Gaussian, and cheap for many planes at once."""
    for _ in range(3):
        planes = cv2.blur(planes, (size, size), borderType=cv2.BORDER_CONSTANT)
    return planes


def _local_mean(blurred: Floats, coarse: Floats) -> Floats:
    """Blurred values over their blurred mask (last plane); ``coarse`` shows through where little was seen."""
    mask = blurred[..., -1:]
    local = np.asarray(blurred[..., :-1] / np.maximum(mask, 1e-4), np.float32)
    return np.asarray(coarse + np.clip(mask / _SEEN_ENOUGH, 0, 1) * (local - coarse), np.float32)


def masked_lowpass(planes: Floats, mask: Floats) -> Floats:
    """Local mean under a mask; far from the mask it fades to a wider mean, then to the mean of all.

    Args:
        planes: Shape ``(64, 64, k)``.
        mask: Shape ``(64, 64)``, 0..1.

    Returns:
        Shape ``(64, 64, k)``.
    """
    weighted = np.dstack([planes * mask[..., None], mask])
    overall = weighted[..., :-1].sum((0, 1)) / np.float32(max(float(mask.sum()), 1e-3))
    small = _box3(cv2.resize(weighted, (_WIDE, _WIDE), interpolation=cv2.INTER_AREA), 9)
    wide = cv2.resize(_local_mean(small, overall), (GRID, GRID), interpolation=cv2.INTER_LINEAR)
    # OpenCV drops the last axis of a single plane.
    return _local_mean(_box3(weighted, 13), wide.reshape(planes.shape))


@dataclass(slots=True, eq=False)
class LightState:
    """How the source's texture is coloured now.

    Attributes:
        gain: Contrast per channel, shape ``(3,)``.
        field: Added colour D, shape ``(64, 64, 3)``, grey levels.
        chroma: How much of the texture's fine colour is kept, 0.25..1 (make-up, flush stains).
    """

    gain: Floats
    field: Floats
    chroma: float


def _contrast(target: Floats, source: Floats, t_low: Floats, s_low: Floats, weight: Floats) -> Floats:
    """Contrast of the target's detail over the source's, per channel."""
    total = max(float(weight.sum()), 1e-3)

    def rms(values: Floats) -> Floats:
        return np.sqrt((values**2 * weight[..., None]).sum((0, 1)) / total) + 1e-3

    def mean(values: Floats) -> Floats:
        return (values * weight[..., None]).sum((0, 1)) / total + 1.0

    detail = np.clip(rms(target - t_low) / rms(source - s_low), 0.4, 1.6)
    level = np.clip(mean(target) / mean(source), 0.3, 2)
    return np.clip(np.sqrt(detail * level), 0.45, 1.3).astype(np.float32)


def _band(detail: Floats) -> Floats:
    """Light and dark of the detail, without its finest part, shape ``(64, 64, 1)``."""
    return cv2.GaussianBlur(detail.mean(2), (0, 0), _SHADING_SIGMA)[..., None]


def _strength(band: Floats, weight: Floats) -> float:
    """How far the band usually swings; a strand of hair or a nostril does not count."""
    swings = np.abs(band[..., 0][weight > 0.5])
    return float(np.percentile(swings, 70)) if swings.size > 20 else 0.0


def _chroma_rms(detail: Floats, weight: Floats) -> float:
    colour = detail - detail.mean(2, keepdims=True)
    return float(np.sqrt(((colour**2).sum(2) * weight).sum() / max(float(weight.sum()), 1e-3)))


class LightField:
    """Follows the target's light on one track.

    Args:
        source: The person to be lit.
    """

    def __init__(self, source: PreparedSource) -> None:
        self._source = source
        whole = face_regions().skin * source.grid_valid
        self._shading = _band(source.grid_texture - masked_lowpass(source.grid_texture, whole))
        self._state: LightState | None = None

    def update(self, target: Floats, visible: Floats) -> LightState:
        """Take in the target's face.

        Args:
            target: Its unwrapped picture, shape ``(64, 64, 3)``, float32 BGR.
            visible: Where it is the face's own surface, unhidden, shape ``(64, 64)``, 0..1.

        Returns:
            The smoothed state.
        """
        regions = face_regions()
        source = self._source.grid_texture
        mask = regions.skin * visible * self._source.grid_valid
        low = masked_lowpass(np.dstack([target, source]), mask)
        t_low, s_low = low[..., :3], low[..., 3:]
        inner = regions.inner * visible * self._source.grid_valid
        gain = _contrast(target, source, t_low, s_low, inner)
        field = t_low - gain * s_low - self._folds(target - t_low, gain, regions.cheeks * mask)
        if self._state is None:
            self._state = LightState(gain, field, self._chroma(target - t_low, source - s_low, gain, mask))
        else:
            self._state.gain += np.float32(_EMA) * (gain - self._state.gain)
            self._state.field += np.float32(_EMA) * (field - self._state.field)
        return self._state

    def _folds(self, detail: Floats, gain: Floats, weight: Floats) -> Floats:
        """How much of the source's own shading is too much for the target, shape ``(64, 64, 1)``.

        Folds of a smile and lamp-lit cheeks lie between the light field and fine detail. Where the target
        shows less of that band, the source's is brought down to it.
        """
        own = _band(detail)
        share = _strength(own, weight) / max(_strength(self._shading, weight) * float(gain.mean()), 1e-3)
        return (1 - min(max(share, _LEAST_SHADING), 1.0)) * gain.mean() * self._shading

    @staticmethod
    def _chroma(target_detail: Floats, source_detail: Floats, gain: Floats, mask: Floats) -> float:
        source = _chroma_rms(source_detail, mask) * float(gain.mean())
        return float(np.clip(_chroma_rms(target_detail, mask) / max(source, 1e-3), 0.25, 1))


def soften_chroma(texture: ImageBgr, keep: float) -> ImageBgr:
    """Keep the texture's light and dark detail, and a part of its coloured detail.

    Args:
        texture: Atlas, shape ``(A, A, 3)``, uint8.
        keep: 1 changes nothing, 0 leaves fine detail grey.
    """
    if keep > 0.98:
        return texture
    # Coloured detail = what a blur takes from the two colour planes; luma stays, and so do the lips.
    ycc = cv2.cvtColor(texture, cv2.COLOR_BGR2YCrCb)
    low = cv2.blur(ycc, (_CHROMA_TEXELS, _CHROMA_TEXELS), borderType=cv2.BORDER_REPLICATE)
    mixed = cv2.addWeighted(ycc, keep, low, 1 - keep, 0)
    mixed[..., 0] = ycc[..., 0]
    soft = cv2.cvtColor(mixed, cv2.COLOR_YCrCb2BGR)
    lips = cv2.GaussianBlur(face_regions(ATLAS).lips, (0, 0), 4)
    return cv2.blendLinear(texture, soft, lips, 1 - lips)


def lit_atlas(texture: ImageBgr, alpha: ImageBgr, light: LightState, out: ImageBgr) -> ImageBgr:
    """Texture under the target's light, with its transparency as fourth channel.

    Args:
        texture: Shape ``(A, A, 3)``, uint8.
        alpha: Shape ``(A, A)``, uint8.
        light: The field and the gains.
        out: Result, shape ``(A, A, 4)``, uint8, written in place.
    """
    # The field goes through uint8 with an offset of 128, so that the whole sum is one fused 8-bit pass.
    offset = np.clip(light.field + 128.5, 0, 255).astype(np.uint8)
    offset = cv2.resize(offset, (ATLAS, ATLAS), interpolation=cv2.INTER_LINEAR)
    planes = [
        cv2.addWeighted(t, float(k), o, 1.0, -128.0)
        for t, k, o in zip(cv2.split(texture), light.gain, cv2.split(offset), strict=True)
    ]
    return cv2.merge([*planes, alpha], out)
