"""The map between the frame, the moved mesh and the atlas, and its reuse from frame to frame.

The mesh is rasterised on a grid of at most about 150 pixels, and one affine warp brings the grid's values
to the pixels of the region. While the face only shifts, turns in the picture or grows, the grid stays
valid: the warp takes the similarity along, and nothing is rasterised.
"""

import cv2
import numpy as np

from shared.arrays import Affine, ImageBgr, MaskU8
from shared.counters import CacheCounters
from shared.geometry import affine_scale, fit_similarity, invert_affine, transform_points
from shared.mesh.raster import painter_order, pixel_grid, rasterise
from shared.mesh.source import ATLAS
from shared.mesh.topology import FACE_POINTS, Floats, topology

_GRID_SIDE = 150
_REUSE_RESIDUAL = 0.0035
"""Largest departure of a point from the old grid's similarity, as part of the face's width."""
_REUSE_MAX_AGE = 6
_REUSE_MAX_TURN = 0.03
_STILL_PX = 1 / 64
"""Displacements below this are nothing: such pixels are kept as they are."""


def source_box(points: Floats, width: int, height: int) -> tuple[int, int, int, int]:
    """Pixels that hold all points, clipped to the frame: ``x0, y0, x1, y1``."""
    lower = np.floor(points[:, :2].min(0)).astype(int) - 2
    upper = np.ceil(points[:, :2].max(0)).astype(int) + 3
    x0, y0 = np.clip(lower, 0, (width, height)).tolist()
    x1, y1 = np.clip(upper, 0, (width, height)).tolist()
    return x0, y0, x1, y1


class FaceWarp:
    """Where everything of one face goes in one frame.

    Args:
        counters: Where reuse is counted.
        reuse: False rasterises on every frame.

    Attributes:
        region: The part of the frame that changes, ``x0, y0, x1, y1``; set by ``place``.
    """

    region: tuple[int, int, int, int]

    def __init__(self, counters: CacheCounters, *, reuse: bool) -> None:
        self._counters = counters
        self._reuse = reuse
        mesh = topology()
        self._uv = mesh.uv * ATLAS - 0.5
        self._placed: Floats | None = None
        self._age = 0

    def place(self, placed: Floats, points: Floats, width: int, height: int) -> bool:
        """Take the frame's mesh.

        Args:
            placed: Where the points shall be, frame pixels, shape ``(504, 3)``.
            points: Where they are in the target, same shape.
            width: Of the frame.
            height: Of the frame.

        Returns:
            Whether any of it is inside of the frame.
        """
        both = np.concatenate([placed, points])
        x0, y0, x1, y1 = source_box(both, width, height)
        if x1 - x0 < 8 or y1 - y0 < 8:
            self._placed = None
            return False
        self.region = (x0, y0, x1, y1)
        since = self._since_last(placed)
        if since is None:
            self._rasterise(placed, points)
            since = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
        self._to_grid = self._region_to_grid(since)
        size = (x1 - x0, y1 - y0)
        self._map = self._spread(self._uv_grid, size, border=-10.0)
        covered = cv2.warpAffine(
            self._covered, self._to_grid, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        )
        self._whole = cv2.compare(covered, 254, cv2.CMP_GT)
        return True

    def _since_last(self, placed: Floats) -> Affine | None:
        """Similarity from the rasterised mesh to this one, or None if the grid cannot serve."""
        if not self._reuse or self._placed is None or self._age >= _REUSE_MAX_AGE:
            self._counters.miss("reuse")
            return None
        similarity = fit_similarity(self._placed[:, :2], placed[:, :2])
        rest = transform_points(similarity, self._placed[:, :2]) - placed[:, :2]
        width = float(np.ptp(placed[:FACE_POINTS, 0]))
        turned = abs(similarity[1, 0]) + abs(affine_scale(similarity) - 1)
        if np.abs(rest).max() > _REUSE_RESIDUAL * width or turned > _REUSE_MAX_TURN:
            self._counters.miss("reuse")
            return None
        self._counters.hit("reuse")
        self._age += 1
        return similarity

    def _rasterise(self, placed: Floats, points: Floats) -> None:
        mesh = topology()
        lower = placed[:, :2].min(0) - 1
        extent = placed[:, :2].max(0) + 1 - lower
        self._origin = lower
        self._step = max(1.0, float(extent.max()) / _GRID_SIDE)
        size = np.ceil(extent / self._step).astype(int) + 1
        on_grid = placed.copy()
        on_grid[:, :2] = (placed[:, :2] - lower) / self._step
        order = painter_order(on_grid, mesh.triangles, mesh.face_triangles)
        attributes = np.concatenate([self._uv, points[:, :2] - placed[:, :2]], 1)
        values, self._covered = rasterise(
            on_grid, mesh.triangles[order], attributes, (int(size[0]), int(size[1]))
        )
        self._uv_grid = np.ascontiguousarray(values[..., :2])
        self._shift_grid = self._fill_outside(np.ascontiguousarray(values[..., 2:]))
        self._placed = placed
        self._age = 0

    def _fill_outside(self, shift: Floats) -> Floats:
        """Let the displacement die out softly beyond the mesh, or dots appear along a turned-away cheek."""
        mask = self._covered.astype(np.float32) * np.float32(1 / 255)
        packed = np.dstack([shift, mask])
        for _ in range(2):
            packed = cv2.blur(packed, (9, 9), borderType=cv2.BORDER_CONSTANT)
        near = packed[..., :2] / np.maximum(packed[..., 2:], 1e-3) * np.clip(packed[..., 2:] * 2, 0, 1)
        return np.where(self._covered[..., None] > 0, shift, near)

    def _region_to_grid(self, since: Affine) -> Affine:
        """Map of region pixels to grid pixels, through the frame the grid was made for."""
        back = invert_affine(since)
        x0, y0 = self.region[:2]
        linear = back[:, :2] / self._step
        shift = (back[:, :2] @ np.array([x0, y0], np.float32) + back[:, 2] - self._origin) / self._step
        return np.hstack([linear, shift[:, None]]).astype(np.float32)

    def _spread(self, grid: Floats, size: tuple[int, int], *, border: float = 0.0) -> Floats:
        return cv2.warpAffine(
            grid,
            self._to_grid,
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=(border, border),
        )

    def draw(self, atlas: ImageBgr) -> ImageBgr:
        """The atlas on the region, shape ``(h, w, 4)``; alpha is 0 where the mesh is not wholly there."""
        drawn = cv2.remap(atlas, self._map, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
        alpha = cv2.bitwise_and(cv2.extractChannel(drawn, 3), self._whole)
        cv2.insertChannel(alpha, drawn, 3)
        return drawn

    def move_target(self, region: ImageBgr) -> tuple[ImageBgr, MaskU8]:
        """The target's own picture of the region, moved with the mesh.

        Args:
            region: The frame's pixels of ``self.region``, shape ``(h, w, 3)``.

        Returns:
            The moved picture, and where it differs from the frame: 255, else 0, shape ``(h, w)``.
        """
        size = (region.shape[1], region.shape[0])
        shift = self._spread(self._shift_grid, size)
        where = cv2.add(shift, pixel_grid(*size))
        moved = cv2.remap(region, where, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        far = cv2.absdiff(shift, np.zeros_like(shift))
        return moved, cv2.compare(cv2.max(far[..., 0], far[..., 1]), _STILL_PX, cv2.CMP_GT)
