"""The map between the frame, the moved mesh and the atlas, and its reuse from frame to frame.

The mesh is rasterised on a grid of at most about 150 pixels, which a plain enlargement brings to the pixels
of the region. While the face only shifts, turns in the picture or grows, the grid stays valid: it is carried
along by a similarity, and nothing is rasterised.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

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
_OUTSIDE = (-10.0, -10.0, 0.0, 0.0)
"""Values of the grid beyond the mesh: no texture, no displacement."""

Box = tuple[int, int, int, int]
"""``x0, y0, x1, y1`` in frame pixels, the last two not included."""


def box_around(points: Floats) -> Box:
    """Pixels that hold all points, some of them perhaps outside of the frame."""
    x0, y0 = (np.floor(points[:, :2].min(0)).astype(int) - 2).tolist()
    x1, y1 = (np.ceil(points[:, :2].max(0)).astype(int) + 3).tolist()
    return x0, y0, x1, y1


def clipped(box: Box, width: int, height: int) -> Box:
    """The part of a box inside of a frame of that width and height."""
    x0, x1 = (min(max(x, 0), width) for x in box[::2])
    y0, y1 = (min(max(y, 0), height) for y in box[1::2])
    return x0, y0, x1, y1


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """A rasterised mesh.

    Attributes:
        region: The pixels it stands for, some of them perhaps outside of the frame.
        values: Atlas position (texels) and displacement (frame pixels), shape ``(h, w, 4)``.
        covered: 255 where the mesh is, shape ``(h, w)``.
    """

    region: Box
    values: Floats
    covered: MaskU8

    @property
    def scale(self) -> Floats:
        """Grid pixels per frame pixel, x and y."""
        return _grid_scale(self.region, (self.covered.shape[1], self.covered.shape[0]))


def _grid_size(region: Box) -> tuple[int, int]:
    """Width and height of the grid for a region."""
    width, height = region[2] - region[0], region[3] - region[1]
    step = max(1.0, max(width, height) / _GRID_SIDE)
    return max(2, round(width / step)), max(2, round(height / step))


def _grid_scale(region: Box, size_wh: tuple[int, int]) -> Floats:
    """Grid pixels per frame pixel, x and y."""
    x0, y0, x1, y1 = region
    return np.array([size_wh[0] / (x1 - x0), size_wh[1] / (y1 - y0)], np.float32)


class FaceWarp:
    """Where everything of one face goes in one frame.

    Args:
        counters: Where reuse is counted.
        reuse: False rasterises on every frame.

    Attributes:
        region: The part of the frame that changes; set by ``place``.
    """

    region: Box

    def __init__(self, counters: CacheCounters, *, reuse: bool) -> None:
        self._counters = counters
        self._reuse = reuse
        self._uv = topology().uv * ATLAS - 0.5
        self._made: _Grid | None = None
        self._made_for: Floats | None = None
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
        box = box_around(both)
        x0, y0, x1, y1 = self.region = clipped(box, width, height)
        if x1 - x0 < 8 or y1 - y0 < 8:
            self._made = None
            return False
        self._grid = self._carried(placed, box) or self._rasterised(placed, points, box)
        return True

    def _carried(self, placed: Floats, box: Box) -> _Grid | None:
        """The last grid brought along by a similarity, or None if it cannot serve."""
        since = self._since_last(placed)
        if since is None or self._made is None:
            self._counters.miss("reuse")
            return None
        self._counters.hit("reuse")
        self._age += 1
        size = _grid_size(box)
        back = self._to_made(since, box, size)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        values = cv2.warpAffine(
            self._made.values, back, size, flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=_OUTSIDE
        )
        covered = cv2.warpAffine(self._made.covered, back, size, flags=flags)
        return _Grid(box, values, covered)

    def _since_last(self, placed: Floats) -> Affine | None:
        """Similarity from the rasterised mesh to this one, if it says all."""
        made = self._made
        if not self._reuse or made is None or self._made_for is None or self._age >= _REUSE_MAX_AGE:
            return None
        similarity = fit_similarity(self._made_for[:, :2], placed[:, :2])
        rest = transform_points(similarity, self._made_for[:, :2]) - placed[:, :2]
        width = float(np.ptp(placed[:FACE_POINTS, 0]))
        turned = abs(similarity[1, 0]) + abs(affine_scale(similarity) - 1)
        if np.abs(rest).max() > _REUSE_RESIDUAL * width or turned > _REUSE_MAX_TURN:
            return None
        return similarity

    def _to_made(self, since: Affine, box: Box, size: tuple[int, int]) -> Affine:
        """Map of pixels of this frame's grid to pixels of the rasterised one."""
        assert self._made is not None
        back = invert_affine(since)
        from_grid = 1 / _grid_scale(box, size)
        here = np.array(box[:2], np.float32) - 0.5 + 0.5 * from_grid
        there = np.array(self._made.region[:2], np.float32) - 0.5
        linear = self._made.scale[:, None] * back[:, :2] * from_grid
        shift = self._made.scale * (back[:, :2] @ here + back[:, 2] - there) - 0.5
        return np.hstack([linear, shift[:, None]]).astype(np.float32)

    def _rasterised(self, placed: Floats, points: Floats, box: Box) -> _Grid:
        mesh = topology()
        size = _grid_size(box)
        scale = _grid_scale(box, size)
        on_grid = placed.copy()
        # The centre of pixel p lies at (p + 0.5) * scale - 0.5: just how an enlargement reads it back.
        on_grid[:, :2] = (placed[:, :2] - np.array(box[:2], np.float32) + 0.5) * scale - 0.5
        order = painter_order(on_grid, mesh.triangles, mesh.face_triangles)
        attributes = np.concatenate([self._uv, points[:, :2] - placed[:, :2]], 1)
        values, covered = rasterise(on_grid, mesh.triangles[order], attributes, size)
        _fill_outside(values, covered)
        self._made = _Grid(box, values, covered)
        self._made_for = placed
        self._age = 0
        return self._made

    def _enlarged(self, plane: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values of the grid for each pixel of the region."""
        bx0, by0, bx1, by1 = self._grid.region
        x0, y0, x1, y1 = self.region
        large = cv2.resize(plane, (bx1 - bx0, by1 - by0), interpolation=cv2.INTER_LINEAR)
        return large[y0 - by0 : y1 - by0, x0 - bx0 : x1 - bx0]

    def draw(self, atlas: ImageBgr) -> tuple[ImageBgr, MaskU8]:
        """The atlas on the region.

        Args:
            atlas: Shape ``(A, A, 4)``, the last channel how much of it shows.

        Returns:
            The picture, shape ``(h, w, 4)``, and how much of it shows, shape ``(h, w)``; 0 where the mesh is
            not wholly there.
        """
        where = self._enlarged(np.ascontiguousarray(self._grid.values[..., :2]))
        drawn = cv2.remap(atlas, where, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)
        covered = self._enlarged(self._grid.covered)
        alpha = cv2.bitwise_and(cv2.extractChannel(drawn, 3), cv2.compare(covered, 254, cv2.CMP_GT))
        return drawn, alpha

    def move_target(self, region: ImageBgr) -> tuple[ImageBgr, MaskU8]:
        """The target's own picture of the region, moved with the mesh.

        Args:
            region: The frame's pixels of ``self.region``, shape ``(h, w, 3)``.

        Returns:
            The moved picture with an empty fourth channel, shape ``(h, w, 4)``, and where it differs from the
            frame: 255, else 0, shape ``(h, w)``.
        """
        shift = np.ascontiguousarray(self._grid.values[..., 2:])
        far = (np.abs(shift).max(2) > _STILL_PX).astype(np.uint8) * np.uint8(255)
        # Four channels, because reading three at fractional positions is more than twice as slow.
        four = cv2.cvtColor(region, cv2.COLOR_BGR2BGRA)
        if not far.any():
            return four, np.zeros(region.shape[:2], np.uint8)
        where = self._enlarged(shift)
        cv2.add(where, pixel_grid(region.shape[1], region.shape[0]), dst=where)
        moved = cv2.remap(four, where, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        changed = cv2.compare(self._enlarged(far), 0, cv2.CMP_GT)
        # A displacement too small to count still moves some pixels by a grey level: those stay the frame's.
        return cv2.copyTo(four, cv2.bitwise_not(changed), moved), changed


def _fill_outside(values: Floats, covered: MaskU8) -> None:
    """Give the grid its values beyond the mesh, in place.

    The displacement goes on as it is at the mesh's rim and dies out from there. At the ring that is nothing;
    at the far cheek of a turned face, where the ring is hidden, dots would appear without it.
    """
    bare = covered == 0
    within = cv2.erode(covered, np.ones((3, 3), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0)
    rim = (covered != within).astype(np.float32)
    packed = np.dstack([values[..., 2:] * rim[..., None], rim])
    for _ in range(2):
        packed = cv2.blur(packed, (9, 9), borderType=cv2.BORDER_CONSTANT)
    # Beside a straight rim, one cell wide, the blurred rim is a ninth.
    near = packed[..., :2] / np.maximum(packed[..., 2:], 1e-3) * np.clip(packed[..., 2:] * 9, 0, 1)
    values[..., 2:][bare] = near[bare]
    values[..., :2][bare] = _OUTSIDE[0]
