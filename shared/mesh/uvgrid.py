"""A small square grid in texture space, fixed to the face, that carries all statistics.

A texel is the same place of every face at every pose, so values can be smoothed in time without lagging
behind the head, and their cost does not depend on the size of the face.
"""

import functools
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr
from shared.mesh.raster import rasterise
from shared.mesh.topology import (
    BROW_LEFT,
    BROW_RIGHT,
    FACE_WIDTH_CM,
    LIDS_LEFT,
    LIDS_RIGHT,
    LIPS_OUTER,
    OVAL,
    Floats,
    Ints,
    topology,
    with_ring,
)

GRID = 64
"""Side of the statistics grid, texels."""


@dataclass(frozen=True, slots=True, eq=False)
class UvGrid:
    """Where each texel of a square of side ``size`` lies on the mesh.

    Attributes:
        size: Side in texels.
        inside: Flat indices of the texels on the face (ring included where ``ring``), shape ``(m,)``.
        corners: The three points of the triangle each of them lies in, shape ``(m, 3)``.
        weights: Their barycentric weights, shape ``(m, 3, 1)``.
        triangle: That triangle, shape ``(m,)``.
    """

    size: int
    inside: Ints
    corners: Ints
    weights: Floats
    triangle: Ints

    def interpolate(self, values: Floats, outside: float = 0.0) -> Floats:
        """Spread values of the points, shape ``(v, k)``, over the grid: ``(size, size, k)``."""
        out = np.full((self.size * self.size, values.shape[1]), outside, np.float32)
        out[self.inside] = (values[self.corners] * self.weights).sum(1)
        return out.reshape(self.size, self.size, -1)

    def interpolate_triangles(self, values: Floats) -> Floats:
        """Spread one value a triangle, shape ``(t,)``, over the grid: ``(size, size)``; 0 outside."""
        out = np.zeros(self.size * self.size, np.float32)
        out[self.inside] = values[self.triangle]
        return out.reshape(self.size, self.size)


@functools.cache
def uv_grid(size: int, *, ring: bool = False) -> UvGrid:
    """The grid of a side, computed once."""
    mesh = topology()
    triangles = mesh.triangles if ring else mesh.triangles[: mesh.face_triangles]
    # Draw the triangle numbers and the barycentrics of the mesh laid flat in texture space.
    count = len(triangles)
    corner_points = (mesh.uv * size - 0.5)[triangles].reshape(-1, 2)
    separate = np.arange(3 * count).reshape(count, 3)
    attributes = np.column_stack([np.tile(np.eye(3), (count, 1)), np.repeat(np.arange(count), 3)])
    order = np.r_[mesh.face_triangles : count, : mesh.face_triangles] if ring else np.arange(count)
    values, covered = rasterise(corner_points, separate[order], attributes.astype(np.float32), (size, size))
    inside = np.flatnonzero(covered)
    values = values.reshape(-1, 4)[inside]
    triangle = np.rint(values[:, 3]).astype(np.intp)
    weights = np.clip(values[:, :3], 0, 1)
    weights /= weights.sum(1, keepdims=True)
    return UvGrid(size, inside, triangles[triangle], weights[:, :, None].astype(np.float32), triangle)


def _filled(size: int, *contours: Ints, grow: int = 0) -> npt.NDArray[np.float32]:
    """1 inside of the contours, 0 outside, shape ``(size, size)``."""
    mask = np.zeros((size, size), np.uint8)
    points = topology().uv * size - 0.5
    for contour in contours:
        cv2.fillPoly(mask, [np.rint(points[contour] * 16).astype(np.int32)], 255, cv2.LINE_8, 4)
    if grow > 0:
        mask = cv2.dilate(mask, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * grow + 1, 2 * grow + 1)))
    return (mask > 0).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class FaceRegions:
    """Named parts of the face on a grid, each ``(size, size)`` float32 in 0..1.

    Attributes:
        face: Inside of the oval.
        eyes: Eyes with their lids.
        brows: Both brows.
        lips: Mouth with its lips.
        skin: The face without eyes, brows and lips.
        inner: Middle of the face, eyes and brows included: free of hair and far from the edge.
        cheeks: Inner skin below the brows, the surest skin there is.
        forehead: Above the brows.
        band: Where glasses sit: round the eyes, brows included, across to the temples.
    """

    face: Floats
    eyes: Floats
    brows: Floats
    lips: Floats
    skin: Floats
    inner: Floats
    cheeks: Floats
    forehead: Floats
    band: Floats


def _brow_line(size: int) -> Floats:
    """For each column, the row (texels) of the upper edge of the brows."""
    uv = topology().uv * size
    brows = np.concatenate([BROW_RIGHT, BROW_LEFT])
    upper = uv[brows][np.argsort(uv[brows, 0])]
    columns = np.arange(size, dtype=np.float32)
    # The brows' own upper edge, flattened across nose and temples by taking the highest point nearby.
    line = np.interp(columns, upper[:, 0], upper[:, 1])
    kernel = np.ones((1, max(3, size // 6 | 1)), np.uint8)
    return cv2.erode(line[None].astype(np.float32), kernel)[0]


@functools.cache
def face_regions(size: int = GRID) -> FaceRegions:
    """The named parts on a grid of a side, computed once."""
    texel = size / GRID
    face = _filled(size, OVAL)
    eyes = _filled(size, LIDS_RIGHT, LIDS_LEFT, grow=round(0.6 * texel))
    brows = _filled(size, BROW_RIGHT, BROW_LEFT, grow=round(1.2 * texel))
    lips = _filled(size, LIPS_OUTER, grow=round(0.8 * texel))
    u = (np.arange(size, dtype=np.float32) + 0.5) / size
    rows = np.arange(size, dtype=np.float32)[:, None]
    brow_line = _brow_line(size)[None]
    middle = (np.abs(u - 0.5) < 0.24)[None].astype(np.float32) * np.ones((size, 1), np.float32)
    skin = face * (1 - np.maximum(np.maximum(eyes, brows), lips))
    forehead = face * (rows < brow_line)
    inner = face * middle * (1 - forehead)
    uv = topology().uv * size
    lower = uv[np.concatenate([LIDS_RIGHT, LIDS_LEFT]), 1].max() + 7 * texel
    band = face * (rows > brow_line - 1.5 * texel) * (rows < lower)
    return FaceRegions(
        face=face,
        eyes=eyes * face,
        brows=brows * face,
        lips=lips * face,
        skin=skin,
        inner=inner,
        cheeks=skin * inner,
        forehead=forehead.astype(np.float32),
        band=band.astype(np.float32),
    )


@functools.cache
def edge_distance(size: int) -> Floats:
    """Distance of each texel to the oval seen from the front, in face widths, shape ``(size, size)``.

    A ramp made in texture space would be hard at the cheeks, which the texture stretches.
    """
    per_cm = 24.0
    flat = with_ring(topology().xyz)[:, :2] * per_cm
    origin = flat.min(0) - 4
    width, height = (np.ceil(flat.max(0) - origin).astype(int) + 4).tolist()
    front = np.zeros((height, width), np.uint8)
    cv2.fillPoly(front, [np.rint((flat[OVAL] - origin) * 16).astype(np.int32)], 255, cv2.LINE_8, 4)
    distance = cv2.distanceTransform(front, cv2.DIST_L2, 5) / (per_cm * FACE_WIDTH_CM)
    where = uv_grid(size).interpolate(flat - origin, outside=-10)
    return cv2.remap(distance.astype(np.float32), where, None, cv2.INTER_LINEAR, borderValue=(0,))


def unwrap(
    image: ImageBgr, points: Floats, grid: UvGrid, out: ImageBgr | None = None, *, step: int = 1
) -> ImageBgr:
    """Picture of the face laid out on a grid.

    Args:
        image: Shape ``(h, w, 3)``.
        points: Mesh points in pixels of ``image``, shape ``(504, 2+)``.
        grid: Where to.
        out: Reused result.
        step: Read only every so many pixels (a strided view is cheaper than a resize and, with the bilinear
            read, good enough for statistics).

    Returns:
        Shape ``(size, size, 3)``; outside of the mesh, the image's border.
    """
    where = grid.interpolate(points[:, :2], outside=-4.0)
    if step > 1:
        image = np.ascontiguousarray(image[step // 2 :: step, step // 2 :: step])
        where = (where - np.float32(step // 2)) * np.float32(1 / step)
    return cv2.remap(image, where, None, cv2.INTER_LINEAR, dst=out, borderMode=cv2.BORDER_REPLICATE)
