"""Fits and transforms of points and boxes, in numpy alone."""

import numpy as np
import numpy.typing as npt

from shared.arrays import Affine, BoxesXyxy, BoxXyxy, Points

# Five points on a crop of 112 pixels: the template ArcFace-like recognisers were trained on.
ARCFACE_112 = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]],
    np.float32,
)
# Five points on dlib's 150-pixel chip, calibrated on dlib's own chips.
DLIB_150 = np.array(
    [[47.3, 44.4], [100.6, 44.4], [73.8, 79.0], [52.2, 100.3], [96.4, 100.3]],
    np.float32,
)


def fit_similarity(source: Points, target: Points) -> Affine:
    """Least-squares rotation, scale and shift from ``source`` to ``target`` (Umeyama 1991, no reflection).

    Args:
        source: Points, shape ``(n, 2)``, n >= 2.
        target: The same points in the other space, shape ``(n, 2)``.

    Returns:
        Affine ``(2, 3)``; maps all of ``source`` to the mean of ``target`` where ``source`` is one point.
    """
    mean_s, mean_t = source.mean(0), target.mean(0)
    a, b = source - mean_s, target - mean_t
    # In 2-D the best rotation has a closed form: complex least squares of b on a.
    norm = float((a * a).sum())
    if norm < 1e-12:
        return np.array([[0, 0, mean_t[0]], [0, 0, mean_t[1]]], np.float32)
    re = float((a * b).sum()) / norm
    im = float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()) / norm
    linear = np.array([[re, -im], [im, re]])
    return np.hstack([linear, (mean_t - linear @ mean_s)[:, None]]).astype(np.float32)


def fit_rigid_3d(
    source: npt.NDArray[np.float32], target: npt.NDArray[np.float32]
) -> tuple[float, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Least-squares scale, rotation and shift in 3-D (Umeyama 1991).

    Args:
        source: Shape ``(n, 3)``.
        target: Shape ``(n, 3)``.

    Returns:
        ``scale``, ``rotation`` (3, 3), ``shift`` (3,) with ``target ~ scale * source @ rotation.T + shift``.
    """
    mean_s, mean_t = source.mean(0, dtype=np.float64), target.mean(0, dtype=np.float64)
    a, b = source - mean_s, target - mean_t
    u, d, vt = np.linalg.svd(b.T @ a / len(source))
    flip = np.ones(3)
    flip[2] = np.sign(np.linalg.det(u) * np.linalg.det(vt))
    rotation = (u * flip) @ vt
    scale = float((d * flip).sum() / max((a * a).sum() / len(source), 1e-12))
    return scale, rotation, mean_t - scale * rotation @ mean_s


def invert_affine(affine: Affine) -> Affine:
    """The way back of a ``(2, 3)`` map."""
    linear = np.linalg.inv(affine[:, :2].astype(np.float64))
    return np.hstack([linear, -linear @ affine[:, 2:].astype(np.float64)]).astype(np.float32)


def transform_points(affine: Affine, points: Points) -> Points:
    """Apply a ``(2, 3)`` map to points of shape ``(..., 2)``."""
    return (points @ affine[:, :2].T + affine[:, 2]).astype(np.float32)


def affine_scale(affine: Affine) -> float:
    """Length of one source pixel in target pixels, for a similarity."""
    return float(np.hypot(affine[0, 0], affine[1, 0]))


def box_of_points(points: Points) -> BoxXyxy:
    """Smallest box round points of shape ``(n, 2+)``."""
    return np.concatenate([points[:, :2].min(0), points[:, :2].max(0)]).astype(np.float32)


def box_iou(a: BoxesXyxy, b: BoxesXyxy) -> npt.NDArray[np.float32]:
    """Overlap of every box of ``a`` ``(n, 4)`` with every box of ``b`` ``(m, 4)``: shape ``(n, m)``."""
    lower = np.maximum(a[:, None, :2], b[None, :, :2])
    upper = np.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = np.clip(upper - lower, 0, None).prod(-1)
    area_a = np.clip(a[:, 2:] - a[:, :2], 0, None).prod(-1)
    area_b = np.clip(b[:, 2:] - b[:, :2], 0, None).prod(-1)
    union = area_a[:, None] + area_b[None] - inter
    return np.where(union > 0, inter / np.maximum(union, 1e-9), 0).astype(np.float32)


def non_maximum_suppression(
    xyxy: BoxesXyxy, confidence: npt.NDArray[np.float32], max_iou: float
) -> npt.NDArray[np.intp]:
    """Indices of the boxes to keep, best first: none overlaps a better one by more than ``max_iou``."""
    order = np.argsort(-confidence, kind="stable")
    keep: list[int] = []
    while len(order):
        best, rest = order[0], order[1:]
        keep.append(int(best))
        order = rest[box_iou(xyxy[best : best + 1], xyxy[rest])[0] <= max_iou]
    return np.asarray(keep, np.intp)
