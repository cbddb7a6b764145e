"""From a mesh on screen to a value for each pixel: barycentric interpolation, all triangles at once in numpy.

Only a coarse grid is rasterised; the caller brings it up to the size of the face with one affine warp. The
map is smooth inside a triangle, so little is lost (0.2 texels on average), and the cost does not depend on
the size.
"""

import numpy as np
import numpy.typing as npt

from shared.mesh.topology import Floats, Ints, signed_areas

# Corners may lie this far outside of a triangle, so that no seam opens between neighbours.
_SLACK = 1e-3


def painter_order(points: Floats, triangles: Ints, ring_from: int) -> Ints:
    """Indices of the triangles that face the camera, in drawing order: ring first, then far to near.

    Args:
        points: Shape ``(v, 3)``, z grows away from the camera.
        triangles: Shape ``(t, 3)``.
        ring_from: Index of the first ring triangle.
    """
    facing = np.flatnonzero(signed_areas(points, triangles) > 1e-4)
    depth = points[triangles[facing], 2].mean(1)
    depth[facing >= ring_from] = np.inf
    return facing[np.argsort(-depth, kind="stable")]


def rasterise(
    points: Floats, triangles: Ints, attributes: Floats, size_wh: tuple[int, int]
) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """Draw triangles in the order given, later ones over earlier ones.

    Args:
        points: Grid positions, shape ``(v, 2+)``.
        triangles: Those that face the camera, far to near, shape ``(t, 3)``.
        attributes: Value of each point, shape ``(v, k)``.
        size_wh: Width and height of the grid.

    Returns:
        Values, shape ``(h, w, k)``, zero where nothing is drawn, and the coverage ``(h, w)``, 0 or 255.
    """
    width, height = size_wh
    values = np.zeros((height * width, attributes.shape[1]), np.float32)
    covered = np.zeros(height * width, np.uint8)
    pixel, tri, l1, l2 = _fragments(points, triangles, width, height)
    corner0 = attributes[triangles[:, 0]]
    edge1 = attributes[triangles[:, 1]] - corner0
    edge2 = attributes[triangles[:, 2]] - corner0
    drawn = corner0.take(tri, 0)
    drawn += l1[:, None] * edge1.take(tri, 0)
    drawn += l2[:, None] * edge2.take(tri, 0)
    # Fancy assignment keeps the last value for a pixel: the painter's algorithm for free.
    values[pixel] = drawn
    covered[pixel] = 255
    return values.reshape(height, width, -1), covered.reshape(height, width)


def _fragments(
    points: Floats, triangles: Ints, width: int, height: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats, Floats]:
    """Every (pixel, triangle) pair where the pixel lies inside, in drawing order, with two barycentrics.

    The box of each triangle is laid out row by row in one long array; within it both barycentrics are affine,
    so they are the value at the box's first pixel plus steps along the column and the row.
    """
    x, y = points[:, 0].take(triangles), points[:, 1].take(triangles)
    left = np.clip(np.ceil(x.min(1) - _SLACK), 0, width - 1)
    top = np.clip(np.ceil(y.min(1) - _SLACK), 0, height - 1)
    across = np.maximum(np.clip(np.floor(x.max(1) + _SLACK), -1, width - 1) - left + 1, 0)
    down = np.maximum(np.clip(np.floor(y.max(1) + _SLACK), -1, height - 1) - top + 1, 0)
    count = (across * down).astype(np.intp)

    ax, ay = x[:, 1] - x[:, 0], y[:, 1] - y[:, 0]
    bx, by = x[:, 2] - x[:, 0], y[:, 2] - y[:, 0]
    inverse = 1.0 / (ax * by - ay * bx)
    step1 = np.stack([by * inverse, -bx * inverse])
    step2 = np.stack([-ay * inverse, ax * inverse])
    start = np.stack([left - x[:, 0], top - y[:, 0]])

    def spread(values: Floats) -> Floats:
        return np.repeat(values.astype(np.float32), count)

    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    offset = np.arange(total, dtype=np.float32) - spread(ends - count)
    columns = spread(across)
    # Half a step keeps the truncation right in spite of rounding: boxes are far below 2^20 pixels.
    row = ((offset + 0.5) / columns).astype(np.int32).astype(np.float32)
    column = offset - row * columns
    l1 = spread((step1 * start).sum(0)) + spread(step1[0]) * column + spread(step1[1]) * row
    l2 = spread((step2 * start).sum(0)) + spread(step2[0]) * column + spread(step2[1]) * row
    # The smallest of the three weights decides.
    kept = np.flatnonzero(np.minimum(np.minimum(l1, l2), 1 - l1 - l2) >= -_SLACK)
    tri = np.repeat(np.arange(len(triangles), dtype=np.int32), count)[kept]
    first_pixel = (top * width + left).astype(np.int32)
    pixel = first_pixel.take(tri) + (row[kept] * width + column[kept]).astype(np.int32)
    return pixel, tri, l1[kept], l2[kept]


_coordinates = np.zeros((0, 0, 2), np.float32)


def pixel_grid(width: int, height: int) -> Floats:
    """Coordinates of every pixel, shape ``(height, width, 2)``, x then y. Read-only.

    One array serves all sizes.
    """
    global _coordinates
    grid = _coordinates
    if grid.shape[0] < height or grid.shape[1] < width:
        # Grown in steps, so that a face coming nearer does not allocate on every frame.
        rows, columns = max(grid.shape[0], height + 128), max(grid.shape[1], width + 128)
        grid = np.empty((rows, columns, 2), np.float32)
        grid[..., 0] = np.arange(columns, dtype=np.float32)
        grid[..., 1] = np.arange(rows, dtype=np.float32)[:, None]
        grid.setflags(write=False)
        _coordinates = grid
    return grid[:height, :width]
