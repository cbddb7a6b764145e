"""What is made once of a source person: texture atlas, transparency, shape and the statistics of both.

Prepared from one or several photos. One good frontal photo beats a pile: further ones fill in hidden parts.
"""

import functools
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr, MeshLandmarks
from shared.mesh.shape import HeadPose, head_pose
from shared.mesh.topology import (
    FACE_POINTS,
    NOSE_TIP,
    Floats,
    inter_ocular,
    signed_areas,
    topology,
    vertex_normals,
    with_ring,
)
from shared.mesh.uvgrid import GRID, edge_distance, face_regions, uv_grid

ATLAS = 384
"""Side of the texture atlas, texels; 512 gains nothing in likeness, 256 loses little."""

_PACKED = ("texture", "alpha", "shape", "grid_texture", "grid_valid")

_INTER_OCULAR_UV = 0.42
"""Inter-ocular distance in the atlas, as part of its side."""
BLURS = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6)
"""Sigmas, atlas texels, of the ladder from which the sharpness of a target is matched."""


@dataclass(frozen=True, slots=True, eq=False)
class SourcePhoto:
    """One face of one photo.

    Attributes:
        image: Shape ``(h, w, 3)``, uint8 BGR.
        landmarks: Dense points, shape ``(n, 3)``, pixels of ``image``.
    """

    image: ImageBgr
    landmarks: MeshLandmarks


@dataclass(frozen=True, slots=True, eq=False)
class PreparedSource:
    """A source person, ready to be fused onto any number of targets.

    Attributes:
        texture: Atlas, shape ``(A, A, 3)``, uint8 BGR.
        alpha: How much of it shows, shape ``(A, A)``, uint8.
        shape: Face shape in the canonical frame, cm, shape ``(468, 3)``.
        grid_texture: The texture on the statistics grid, shape ``(64, 64, 3)``, float32 BGR.
        grid_valid: How far each texel is skin that was really seen, shape ``(64, 64)``, 0..1.
        slopes: Sharpness of the texture after each blur, by scale; filled in as it is asked for.
    """

    texture: ImageBgr
    alpha: ImageBgr
    shape: Floats
    grid_texture: Floats
    grid_valid: Floats
    slopes: dict[int, list[float]] = field(default_factory=dict)
    _blurred: dict[int, ImageBgr] = field(default_factory=dict)

    def blurred(self, level: int) -> ImageBgr:
        """The texture after ``BLURS[level]``, kept."""
        if level not in self._blurred:
            sigma = BLURS[level]
            self._blurred[level] = (
                self.texture if sigma == 0 else cv2.GaussianBlur(self.texture, (0, 0), sigma)
            )
        return self._blurred[level]

    def to_bytes(self) -> bytes:
        """Everything that ``prepare_source`` made, about 0.7 MB; what is derived later is left out."""
        buffer = io.BytesIO()
        np.savez(buffer, **{name: getattr(self, name) for name in _PACKED})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "PreparedSource":
        """Back from ``to_bytes``.

        Raises:
            ValueError: If it is something else.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                made = cls(**{name: arrays[name] for name in _PACKED})
        except (OSError, KeyError, EOFError, ValueError, zipfile.BadZipFile) as err:
            raise ValueError("not a prepared source") from err
        if made.texture.shape != (ATLAS, ATLAS, 3) or made.shape.shape != (FACE_POINTS, 3):
            raise ValueError("a prepared source of another size")
        return made


@dataclass(slots=True, eq=False)
class _View:
    """One photo, or its mirror image, in the atlas."""

    texture: Floats
    weight: Floats
    valid: Floats
    quality: float
    pose: HeadPose


@functools.cache
def frontal_alpha() -> Floats:
    """Transparency by distance to the oval seen from the front, shape ``(A, A)``, 0..1."""
    t = np.clip(edge_distance(ATLAS) / 0.08, 0, 1)
    return (t * t * (3 - 2 * t)).astype(np.float32)


def _into_atlas(image: ImageBgr, points: Floats) -> Floats:
    """The photo laid out in the atlas, shape ``(A, A, 3)``, float32."""
    # The photo's detail must not exceed the atlas's, or it turns into noise.
    shrink = ATLAS * _INTER_OCULAR_UV / max(inter_ocular(points), 1e-3)
    if shrink < 0.7:
        image = cv2.resize(image, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
        points = (points + 0.5) * shrink - 0.5
    where = uv_grid(ATLAS, ring=True).interpolate(points[:, :2], outside=-4)
    return cv2.remap(image, where, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE).astype(np.float32)


def _view_weight(points: Floats) -> Floats:
    """How squarely each texel faced the camera, shape ``(A, A)``."""
    towards = -vertex_normals(points)[:, 2]
    weight = np.clip((towards - 0.12) / 0.4, 0.002, 1)
    mesh = topology()
    folded = mesh.triangles[: mesh.face_triangles][
        signed_areas(points, mesh.triangles[: mesh.face_triangles]) <= 0
    ]
    weight[np.unique(folded)] *= 0.05
    spread = uv_grid(ATLAS).interpolate(weight[:, None].astype(np.float32))[..., 0]
    return cv2.GaussianBlur(spread, (0, 0), 0.012 * ATLAS)


def _robust(values: Floats, floor: float) -> tuple[float, float]:
    """Median and a deviation (MAD scaled to a normal's) that is at least ``floor``."""
    median = float(np.median(values))
    return median, max(float(np.median(np.abs(values - median))) * 1.4826, floor)


def _not_skin(texture: Floats) -> Floats:
    """How far each texel departs from the person's own skin; above 1 = hair, background, a frame."""
    smooth = cv2.bilateralFilter(texture.astype(np.uint8), 5, 25, 5)
    lab = cv2.cvtColor(smooth.astype(np.float32) / 255, cv2.COLOR_BGR2Lab)
    sure = face_regions(ATLAS).cheeks > 0
    (l_mid, l_dev), (a_mid, a_dev), (b_mid, b_dev) = (
        _robust(lab[..., k][sure], floor) for k, floor in ((0, 7), (1, 2.5), (2, 2.5))
    )
    z = (lab[..., 0] - l_mid) / l_dev
    chroma = np.hypot((lab[..., 1] - a_mid) / a_dev, (lab[..., 2] - b_mid) / b_dev)
    grey = cv2.cvtColor(texture.astype(np.uint8), cv2.COLOR_BGR2GRAY).astype(np.float32)
    detail = grey - cv2.GaussianBlur(grey, (0, 0), 2.5)
    rms = np.sqrt(cv2.GaussianBlur(detail * detail, (0, 0), 2.5))
    rough = rms / (2 * float(np.median(rms[sure])) + 3.5)
    return np.maximum.reduce([chroma / 3.5, -z / 3.2, z / 4.5, rough])


_LOPSIDED, _LOPSIDED_SIDES = 3.0, 1.8
_LOPSIDED_BROW = 0.08
"""A brow of which more than this part is in shadow is replaced whole."""


def _slope_of_light(lab: Floats, where: npt.NDArray[np.bool_]) -> Floats:
    """A plane through each channel of the surest skin, shape ``(A, A, 3)``: light that falls off evenly."""
    t = np.arange(ATLAS, dtype=np.float32) / ATLAS - 0.5
    plane = np.dstack([np.ones((ATLAS, ATLAS), np.float32), *np.meshgrid(t, t)])
    fit = np.linalg.lstsq(plane[where], lab[where], rcond=None)[0]
    return (plane @ fit).astype(np.float32)


def _lopsided(texture: Floats) -> Floats:
    """1 where one half of the face departs from the other and from the skin: shadow, rim light, hair.

    A smooth side light is no fault: the target's light field takes it away. Patches with an edge stay
    visible.
    """
    regions = face_regions(ATLAS)
    lab = cv2.cvtColor(cv2.GaussianBlur(texture, (0, 0), 3).astype(np.float32) / 255, cv2.COLOR_BGR2Lab)
    patch = lab - _slope_of_light(lab, regions.cheeks > 0)
    difference = patch - patch[:, ::-1]
    sure = regions.cheeks > 0
    spread = np.array(
        [_robust(patch[..., k][sure], f)[1] for k, f in ((0, 5.0), (1, 2.0), (2, 2.0))], np.float32
    )
    uneven = np.sqrt(((difference / spread) ** 2).sum(2) / 3)
    own = np.sqrt(((patch / spread) ** 2).sum(2) / 3)
    # Along the middle a texel and its mirror image are neighbours.
    aside = np.abs(np.arange(ATLAS) + 0.5 - ATLAS / 2) > 0.08 * ATLAS
    checked = (regions.face > 0) & (regions.eyes == 0) & (regions.lips == 0) & aside[None]
    worse = (own > own[:, ::-1]) & checked
    bad = cv2.morphologyEx(((uneven > _LOPSIDED) & worse).astype(np.uint8), cv2.MORPH_OPEN, _ellipse(3))
    brows = cv2.dilate(regions.brows, _ellipse(8)) > 0
    near = cv2.dilate(bad, _ellipse(6)) > 0
    # The sides of the cheeks hold no features: there less is borne.
    sides = (regions.inner == 0) & (regions.forehead == 0) & ~brows
    bad |= cv2.morphologyEx(
        ((uneven > _LOPSIDED_SIDES) & worse & sides).astype(np.uint8), cv2.MORPH_OPEN, _ellipse(3)
    )
    for half in (slice(0, ATLAS // 2), slice(ATLAS // 2, ATLAS)):
        if near[:, half][brows[:, half]].mean() > _LOPSIDED_BROW:
            bad[:, half] |= brows[:, half]
    return bad


def _ellipse(radius: int) -> ImageBgr:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))


def _validity(texture: Floats) -> Floats:
    """1 where the texture is the person's skin, 0 on fringe, temple hair and background, ``(A, A)``."""
    regions = face_regions(ATLAS)
    # In the middle of the face, brows downward, dark and rough parts are features, not faults.
    checked = (regions.inner == 0) & (regions.face > 0)
    bad = ((_not_skin(texture) > 1) & checked).astype(np.uint8)
    bad = cv2.morphologyEx(bad, cv2.MORPH_OPEN, _ellipse(1))
    bad = cv2.morphologyEx(bad, cv2.MORPH_CLOSE, _ellipse(7))
    good = ((bad == 0) & (regions.face > 0)).astype(np.uint8)
    _, labels = cv2.connectedComponents(good)
    nose = np.rint(topology().uv[NOSE_TIP] * ATLAS).astype(int)
    bad = ((labels != labels[nose[1], nose[0]]) & (regions.face > 0)).astype(np.uint8)
    bad = cv2.dilate(bad, _ellipse(5))
    uneven = cv2.dilate(_lopsided(texture), _ellipse(9))
    valid = cv2.GaussianBlur(1 - (bad | uneven).astype(np.float32), (0, 0), 4)
    return valid * _forehead_limit(bad)


def _forehead_limit(bad: ImageBgr) -> Floats:
    """Lets the forehead end softly below the fringe, column by column; brows are always kept.

    Without it the edge of the source's fringe draws a line across the target's forehead.
    """
    regions = face_regions(ATLAS)
    rows = np.arange(ATLAS, dtype=np.float32)[:, None]
    fringe = (bad > 0) & (regions.forehead > 0)
    lowest = np.where(fringe, rows, -1.0).max(0).astype(np.float32)[None]
    lowest = cv2.dilate(lowest, np.ones((1, 81), np.uint8))
    lowest = cv2.blur(lowest, (41, 1), borderType=cv2.BORDER_REPLICATE)
    ramp = np.clip((rows - lowest - 12) / 18, 0, 1)
    keep = cv2.GaussianBlur(cv2.dilate(regions.brows, _ellipse(4)), (0, 0), 2.5)
    ramp = np.where(lowest > 0, ramp, np.float32(1))
    return np.maximum(ramp, np.where(regions.forehead > 0, keep, np.float32(1)))


def _views(photo: SourcePhoto) -> tuple[_View, _View]:
    """The photo and its mirror image (for the side that was turned away)."""
    points = with_ring(photo.landmarks[:, :3])
    pose = head_pose(photo.landmarks)
    texture = _into_atlas(photo.image, points)
    weight = _view_weight(points)
    valid = _validity(texture)
    small = min(1.0, inter_ocular(points) / (_INTER_OCULAR_UV * ATLAS))
    quality = max(np.cos(np.radians(pose.yaw_deg)), 0.05) ** 3 * small
    view = _View(texture, weight, valid, quality, pose)
    mirror = _View(texture[:, ::-1], weight[:, ::-1] * 0.2, valid[:, ::-1], quality, pose)
    return view, mirror


def _lowpass(image: Floats, mask: Floats, sigma: float) -> Floats:
    """Mean of the picture under a mask, local."""
    total = cv2.GaussianBlur(mask, (0, 0), sigma)
    spread = cv2.GaussianBlur(image * mask[..., None], (0, 0), sigma)
    return spread / np.maximum(total, 1e-3)[..., None]


def _blend(views: Sequence[_View]) -> Floats:
    """One texture of all views; each is first brought to the light of the best-seen mixture."""
    weights = [(np.clip(v.weight * v.valid * v.quality**2, 0, 1) + 1e-4) ** 4 for v in views]
    total = np.sum(weights, 0)
    skin = face_regions(ATLAS).skin
    sigma = 0.1 * ATLAS
    lows = [_lowpass(v.texture, skin * (v.valid * v.weight + 1e-3), sigma) for v in views]
    shares = [cv2.GaussianBlur((w / total).astype(np.float32), (0, 0), sigma)[..., None] for w in weights]
    common = np.sum([low * share for low, share in zip(lows, shares, strict=True)], 0) / np.sum(shares, 0)
    out = np.zeros_like(views[0].texture)
    for view, weight, low in zip(views, weights, lows, strict=True):
        out += (weight / total)[..., None] * (view.texture + common - low)
    return np.clip(out, 0, 255)


def prepare_source(photos: Sequence[SourcePhoto]) -> PreparedSource:
    """Make the atlas, the shape and the statistics of one person.

    Args:
        photos: At least one face, all of the same person.
    """
    views = [view for photo in photos for view in _views(photo)]
    texture = _blend(views).astype(np.uint8)
    seen = np.max([v.valid * (v.weight > 0.02) for v in views[::2]], 0)
    filled = np.max([v.valid * (v.weight > 0.004) for v in views], 0)
    valid = np.maximum(seen, filled).astype(np.float32)
    alpha = frontal_alpha() * cv2.GaussianBlur(valid, (0, 0), 2)
    shapes = np.stack([v.pose.canonical for v in views[::2]])
    trust = np.array([v.quality for v in views[::2]], np.float32)[:, None, None]
    shape = (shapes * trust).sum(0) / trust.sum()
    grid_texture = cv2.resize(texture, (GRID, GRID), interpolation=cv2.INTER_AREA).astype(np.float32)
    grid_valid = cv2.resize(valid, (GRID, GRID), interpolation=cv2.INTER_AREA)
    return PreparedSource(
        texture, np.rint(alpha * 255).astype(np.uint8), shape.astype(np.float32), grid_texture, grid_valid
    )
