"""The built-in engine: source skin and shape on the target's face, drawn straight into the frame.

Work on each frame, in order: pose -> shape -> map -> unwrap -> occlusion -> light -> atlas -> draw -> own
features -> blend. See ``docs/mesh_engine.md`` for why each step is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from shared.arrays import ImageBgr, MaskU8
from shared.counters import CacheCounters
from shared.engines import EngineCard
from shared.faces import TrackedFace
from shared.frames import Patch
from shared.mesh.features import own_features
from shared.mesh.glasses import GlassesModel
from shared.mesh.light import LightField, LightState, lit_atlas, soften_chroma
from shared.mesh.occlusion import OcclusionModel
from shared.mesh.shape import ShapeTransfer, head_pose
from shared.mesh.sharpness import sharpness_level
from shared.mesh.source import ATLAS, PreparedSource, SourcePhoto, prepare_source
from shared.mesh.topology import FACE_POINTS, Floats, topology, with_ring
from shared.mesh.uvgrid import GRID, unwrap, uv_grid
from shared.mesh.warp import FaceWarp, box_around, clipped

Tier = Literal["quality", "balanced", "fast"]

_LIGHT_EVERY = 2
_PRESENCE_FADE = (2.0, 3.0)
"""Presence logit where the fusion begins to show, and over how much it comes in; no face scores higher."""
_YAW_FULL_DEG, _YAW_GONE_DEG = 47.0, 62.0
_UNWRAP_PX = 102.0
"""The face is read for statistics at about this width."""


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """How the mesh engine fuses.

    Attributes:
        tier: ``quality`` (478 points), ``balanced`` (468 points, half the time), ``fast`` (468, shape off).
        shape_strength: How far the target takes on the source's face shape, 0..1.25.
    """

    tier: Tier = "quality"
    shape_strength: float = 1.15

    def __post_init__(self) -> None:
        if self.tier not in ("quality", "balanced", "fast"):
            raise ValueError(f"tier must be quality, balanced or fast, not {self.tier!r}")
        if not 0 <= self.shape_strength <= 1.25:
            raise ValueError(f"shape_strength must be within 0 and 1.25, not {self.shape_strength}")

    @property
    def points(self) -> Literal[478, 468]:
        """Which landmark model the tier uses."""
        return 478 if self.tier == "quality" else 468

    @property
    def shape(self) -> float:
        """Shape strength that is in force."""
        return 0.0 if self.tier == "fast" else self.shape_strength


class MeshEngine:
    """The ``mesh`` engine.

    Args:
        config: How to fuse.
        counters: Where hits of the reuse level are counted.
        caches: False renders everything anew on every frame.
    """

    card = EngineCard("mesh", "1", "frame", "photos", "uint8", "Apache-2.0")

    def __init__(
        self,
        config: MeshConfig | None = None,
        *,
        counters: CacheCounters | None = None,
        caches: bool = True,
    ) -> None:
        self.config = config or MeshConfig()
        self._counters = counters or CacheCounters()
        self._caches = caches

    def prepare(self, photos: Sequence[SourcePhoto]) -> PreparedSource:
        """Atlas, shape and statistics of one person; about 0.2 s a photo."""
        return prepare_source(photos)

    def pack(self, source: PreparedSource) -> bytes:
        """A prepared source as bytes, to be kept."""
        return source.to_bytes()

    def unpack(self, data: bytes) -> PreparedSource:
        """Back from ``pack``; ``ValueError`` if it is something else."""
        return PreparedSource.from_bytes(data)

    def open_track(self, source: PreparedSource) -> "MeshTrack":
        """Begin a track."""
        return MeshTrack(source, self.config.shape, self._counters, caches=self._caches)


def _triangle_visibility(points: Floats) -> Floats:
    """How squarely each face triangle looks at the camera: 0 at the silhouette, 1 soon after."""
    mesh = topology()
    a, b, c = (points[mesh.triangles[: mesh.face_triangles, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    towards = normal[:, 2] / np.maximum(np.sqrt((normal**2).sum(1)), 1e-6)
    return np.clip((towards - 0.02) / 0.28, 0, 1).astype(np.float32)


@dataclass(slots=True, eq=False)
class _Look:
    """How the target's face looks in one frame.

    Attributes:
        visible: How much of each texel may be covered, shape ``(64, 64)``, 0..1.
        bare: How free of spectacles it is, shape ``(192, 192)``, uint8, or None.
        light: Its light.
        texture: The source's atlas, as sharp as the target, shape ``(A, A, 3)``.
    """

    visible: Floats
    bare: MaskU8 | None
    light: LightState
    texture: ImageBgr


class MeshTrack:
    """One source on one track.

    Args:
        source: The person to show.
        shape_strength: 0..1.25.
        counters: Where reuse is counted.
        caches: False renders everything anew on every frame.
    """

    def __init__(
        self, source: PreparedSource, shape_strength: float, counters: CacheCounters, *, caches: bool = True
    ) -> None:
        self._source = source
        self._shape_strength = shape_strength
        self._counters = counters
        self._caches = caches
        self._example = source.grid_texture.astype(np.uint8)
        self._atlas = np.zeros((ATLAS, ATLAS, 4), np.uint8)
        self._begin()

    def _begin(self) -> None:
        """Know nothing of the target: somebody else may be here now."""
        self._shape = ShapeTransfer(self._source.shape, self._shape_strength)
        self._warp = FaceWarp(self._counters, reuse=self._caches)
        self._field = LightField(self._source)
        self._occlusion = OcclusionModel(self._example)
        self._glasses = GlassesModel()
        self._look: _Look | None = None
        self._texture_width = 0.0
        self._frames = 0

    def fuse(self, image: ImageBgr, face: TrackedFace) -> Patch | None:
        """See ``FusionTrack.fuse``."""
        if face.restarted:
            self._begin()
        points = with_ring(face.landmarks)
        pose = head_pose(face.landmarks)
        fade = _fade(face.presence, pose.yaw_deg)
        moved = self._shape.moved(pose) * np.float32(fade)
        if fade <= 0:
            return None
        placed = points.copy()
        placed[:FACE_POINTS, :2] += moved
        if not self._warp.place(placed, points, image.shape[1], image.shape[0]):
            return None
        look = self._look_at(image, points, face.presence)
        look.visible = look.visible * np.float32(fade)
        self._look = look
        self._frames += 1
        return self._draw(image, lit_atlas(look.texture, self._alpha(look), look.light, self._atlas), placed)

    def _look_at(self, image: ImageBgr, points: Floats, presence: float) -> _Look:
        """Read the target's face: what hides it, how it is lit, how sharp it is."""
        x0, y0, x1, y1 = clipped(box_around(points), image.shape[1], image.shape[0])
        crop = image[y0:y1, x0:x1]
        local = points[:, :2] - np.array([x0, y0], np.float32)
        width = float(np.ptp(points[:FACE_POINTS, 0]))
        seen = unwrap(crop, local, uv_grid(GRID), step=max(1, int(width / _UNWRAP_PX)))
        facing = uv_grid(GRID).interpolate_triangles(_triangle_visibility(points))
        facing = cv2.blur(facing, (3, 3))
        visible = facing * self._occlusion.update(seen, facing, presence)
        bare = self._glasses.update(crop, local, width)
        last = self._look if self._caches else None
        due = self._frames % _LIGHT_EVERY == 0
        light = self._field.update(seen.astype(np.float32), visible) if due or last is None else last.light
        # Sharpness is searched where the track begins and when the face has changed its size.
        if last is not None and 0.75 < width / self._texture_width < 1.33:
            return _Look(visible, bare, light, last.texture)
        level = sharpness_level(self._source, crop, local, visible)
        self._texture_width = width
        return _Look(visible, bare, light, soften_chroma(self._source.blurred(level), light.chroma))

    def _alpha(self, look: _Look) -> MaskU8:
        """Transparency of the atlas on this frame, shape ``(A, A)``."""
        alpha = self._source.alpha
        for share in ((look.visible * 255).astype(np.uint8), look.bare):
            if share is not None:
                large = cv2.resize(share, (ATLAS, ATLAS), interpolation=cv2.INTER_LINEAR)
                alpha = cv2.multiply(alpha, large, scale=1 / 255)
        return alpha

    def _draw(self, image: ImageBgr, atlas: ImageBgr, placed: Floats) -> Patch:
        x0, y0, x1, y1 = self._warp.region
        target, moved = self._warp.move_target(image[y0:y1, x0:x1])
        drawn, alpha = self._warp.draw(atlas)
        local = placed[:FACE_POINTS] - np.array([x0, y0, 0], np.float32)
        alpha = cv2.multiply(alpha, own_features(local, (x1 - x0, y1 - y0)), scale=1 / 255)
        blended = cv2.cvtColor(blend(target, drawn, alpha), cv2.COLOR_BGRA2BGR)
        return Patch(x0, y0, blended, cv2.bitwise_or(alpha, moved))


def _fade(presence: float, yaw_deg: float) -> float:
    """How much of the fusion shows: less where the face is doubtful or turned far to the side."""
    low, span = _PRESENCE_FADE
    sure = float(np.clip((presence - low) / span, 0, 1))
    turned = (_YAW_GONE_DEG - abs(yaw_deg)) / (_YAW_GONE_DEG - _YAW_FULL_DEG)
    return sure * float(np.clip(turned, 0, 1))


def blend(below: ImageBgr, above: ImageBgr, alpha: MaskU8) -> ImageBgr:
    """``above`` over ``below`` in 8-bit arithmetic, off by one grey level at most.

    Args:
        below: Shape ``(h, w, 4)``.
        above: Shape ``(h, w, 4)``.
        alpha: How much of it shows, shape ``(h, w)``.
    """
    share = cv2.merge([alpha, alpha, alpha, alpha])
    over = cv2.multiply(above, share, scale=1 / 255)
    cv2.bitwise_not(share, share)
    return cv2.add(over, cv2.multiply(below, share, scale=1 / 255))
