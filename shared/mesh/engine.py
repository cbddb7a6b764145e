"""The built-in engine: source skin and shape on the target's face, drawn straight into the frame.

Work on each frame, in order: pose -> shape -> map -> unwrap -> occlusion -> light -> atlas -> draw -> own features
-> blend. See ``docs/mesh_engine.md`` for why each step is there.
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
from shared.mesh.light import LightField, lit_atlas, soften_chroma
from shared.mesh.occlusion import OcclusionModel
from shared.mesh.sharpness import SharpnessTable
from shared.mesh.shape import ShapeTransfer, head_pose
from shared.mesh.source import ATLAS, PreparedSource, SourcePhoto, prepare_source
from shared.mesh.topology import FACE_POINTS, Floats, topology, with_ring
from shared.mesh.uvgrid import GRID, unwrap, uv_grid
from shared.mesh.warp import FaceWarp

Tier = Literal["quality", "balanced", "fast"]

_LIGHT_EVERY = 2
_PRESENCE_FADE = (2.0, 3.0)
"""Presence logit where the fusion begins to show, and over how much it comes in; no face scores higher."""
_YAW_FULL_DEG, _YAW_GONE_DEG = 47.0, 62.0
_UNWRAP_STEP_PX = 102.0
"""The face is read for statistics at about this width."""


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """How the mesh engine fuses.

    Attributes:
        tier: ``quality`` (478 points), ``balanced`` (468 points, half the time), ``fast`` (468, shape off).
        shape_strength: How far the target takes on the source's face shape; 0..1.25, 1 is natural.
    """

    tier: Tier = "quality"
    shape_strength: float = 1.0

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

    def open_track(self, source: PreparedSource) -> "MeshTrack":
        """Begin a track."""
        return MeshTrack(source, self.config.shape, self._counters, caches=self._caches)


def _triangle_visibility(points: Floats) -> Floats:
    """How squarely each face triangle looks at the camera: 0 at the silhouette, 1 from about 17 degrees on."""
    mesh = topology()
    a, b, c = (points[mesh.triangles[: mesh.face_triangles, k]] for k in range(3))
    normal = np.cross(b - a, c - a)
    towards = normal[:, 2] / np.maximum(np.sqrt((normal**2).sum(1)), 1e-6)
    return np.clip((towards - 0.02) / 0.28, 0, 1).astype(np.float32)


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
        self._caches = caches
        self._shape = ShapeTransfer(source.shape, shape_strength)
        self._warp = FaceWarp(counters, reuse=caches)
        self._light = LightField(source)
        self._occlusion = OcclusionModel(source.grid_texture.astype(np.uint8))
        self._glasses = GlassesModel()
        self._sharpness = SharpnessTable(source)
        self._atlas = np.zeros((ATLAS, ATLAS, 4), np.uint8)
        self._bare: MaskU8 | None = None
        self._texture: ImageBgr | None = None
        self._texture_width = 0.0
        self._frames = 0

    def _restart(self) -> None:
        self._shape.reset()
        self._warp.reset()
        self._light.reset()
        self._occlusion.reset()
        self._glasses.reset()
        self._texture = None
        self._frames = 0

    def fuse(self, image: ImageBgr, face: TrackedFace) -> Patch | None:
        """See ``FusionTrack.fuse``."""
        if face.restarted:
            self._restart()
        points = with_ring(face.landmarks)
        pose = head_pose(face.landmarks)
        low, span = _PRESENCE_FADE
        fade = float(np.clip((face.presence - low) / span, 0, 1))
        turned = (_YAW_GONE_DEG - abs(pose.yaw_deg)) / (_YAW_GONE_DEG - _YAW_FULL_DEG)
        fade *= float(np.clip(turned, 0, 1))
        moved = self._shape.moved(pose) * np.float32(fade)
        if fade <= 0:
            return None
        placed = points.copy()
        placed[:FACE_POINTS, :2] += moved
        region = self._warp.place(placed, points, image.shape[1], image.shape[0])
        if region is None:
            return None
        visible = self._look(image, points, face, fade)
        atlas = lit_atlas(self._texture, self._atlas_alpha(visible), self._light.state, self._atlas)
        patch = self._draw(image, atlas, placed)
        self._frames += 1
        return patch

    def _look(self, image: ImageBgr, points: Floats, face: TrackedFace, fade: float) -> Floats:
        """Read the target's face: what hides it, how it is lit, how sharp it is. Gives the visible share."""
        x0, y0, x1, y1 = self._warp.source_box(points, image.shape[1], image.shape[0])
        crop = image[y0:y1, x0:x1]
        local = points[:, :2] - np.array([x0, y0], np.float32)
        width = float(np.ptp(points[:FACE_POINTS, 0]))
        seen = unwrap(crop, local, uv_grid(GRID), step=max(1, int(width / _UNWRAP_STEP_PX)))
        facing = uv_grid(GRID).interpolate_triangles(_triangle_visibility(points))
        facing = cv2.blur(facing, (3, 3))
        free = self._occlusion.update(seen, facing, face.presence)
        unhidden = facing * free
        if self._light.state is None or not self._caches or self._frames % _LIGHT_EVERY == 0:
            self._light.update(seen.astype(np.float32), unhidden)
        # Sharpness is searched where the track begins and when the face has changed its size.
        if self._texture is None or not self._caches or not 0.75 < width / self._texture_width < 1.33:
            level = self._sharpness.level_for(crop, local, unhidden)
            self._texture = soften_chroma(self._source.blurred(level), self._light.state.chroma)
            self._texture_width = width
        self._bare = self._glasses.update(crop, local, width)
        return unhidden * np.float32(fade)

    def _atlas_alpha(self, visible: Floats) -> MaskU8:
        """Transparency of the atlas on this frame, shape ``(A, A)``."""
        alpha = self._source.alpha
        for share in ((visible * 255).astype(np.uint8), self._bare):
            if share is not None:
                large = cv2.resize(share, (ATLAS, ATLAS), interpolation=cv2.INTER_LINEAR)
                alpha = cv2.multiply(alpha, large, scale=1 / 255)
        return alpha

    def _draw(self, image: ImageBgr, atlas: ImageBgr, placed: Floats) -> Patch:
        warp = self._warp
        x0, y0, x1, y1 = warp.region
        target = warp.move_target(image[y0:y1, x0:x1])
        drawn = warp.draw(atlas)
        alpha = cv2.extractChannel(drawn, 3)
        local = placed[:FACE_POINTS] - np.array([x0, y0, 0], np.float32)
        own = own_features(local, (x1 - x0, y1 - y0))
        alpha = cv2.multiply(alpha, own, scale=1 / 255)
        blended = blend(target, cv2.cvtColor(drawn, cv2.COLOR_BGRA2BGR), alpha)
        return Patch(x0, y0, blended, cv2.bitwise_or(alpha, warp.moved_mask()))


def blend(below: ImageBgr, above: ImageBgr, alpha: MaskU8) -> ImageBgr:
    """``above`` over ``below`` in 8-bit arithmetic, off by one grey level at most."""
    alpha3 = cv2.merge([alpha, alpha, alpha])
    over = cv2.multiply(above, alpha3, scale=1 / 255)
    cv2.bitwise_not(alpha3, alpha3)
    return cv2.add(over, cv2.multiply(below, alpha3, scale=1 / 255))
