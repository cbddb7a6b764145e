"""The face mesh itself: vertices, triangles, texture coordinates and named point sets.

The canonical face is MediaPipe's (Apache-2.0): 468 points, 898 triangles, in centimetres. We add a ring of 36
points outside the face oval: it carries texture beyond the edge, takes alpha 0, and absorbs the warp of the
background. Everything here is constant for the life of a process.
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.models import WEIGHTS_DIR

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]

FACE_POINTS = 468
"""Points that belong to the mesh; the 478-point model adds ten iris points behind them."""

# fmt: off
OVAL = np.array([10, 338, 297, 332, 284, 251, 389, 356, 454, 323, 361, 288, 397, 365, 379, 378, 400, 377,
                 152, 148, 176, 149, 150, 136, 172, 58, 132, 93, 234, 127, 162, 21, 54, 103, 67, 109])
# "right" and "left" are the subject's, so the right eye is at the left of the picture.
EYE_RIGHT = np.array([33, 7, 163, 144, 145, 153, 154, 155, 133, 173, 157, 158, 159, 160, 161, 246])
EYE_LEFT = np.array([263, 249, 390, 373, 374, 380, 381, 382, 362, 398, 384, 385, 386, 387, 388, 466])
LIDS_RIGHT = np.array([247, 30, 29, 27, 28, 56, 190, 243, 112, 26, 22, 23, 24, 110, 25, 130])
LIDS_LEFT = np.array([467, 260, 259, 257, 258, 286, 414, 463, 341, 256, 252, 253, 254, 339, 255, 359])
BROW_RIGHT = np.array([46, 53, 52, 65, 55, 107, 66, 105, 63, 70])
BROW_LEFT = np.array([276, 283, 282, 295, 285, 336, 296, 334, 293, 300])
LIPS_OUTER = np.array([61, 146, 91, 181, 84, 17, 314, 405, 321, 375,
                       291, 409, 270, 269, 267, 0, 37, 39, 40, 185])
LIPS_INNER = np.array([78, 95, 88, 178, 87, 14, 317, 402, 318, 324,
                       308, 415, 310, 311, 312, 13, 82, 81, 80, 191])
# fmt: on
# Upper lid, lower lid, outer corner, inner corner.
LID_POINTS_RIGHT = (159, 145, 33, 133)
LID_POINTS_LEFT = (386, 374, 263, 362)
MOUTH_POINTS = (13, 14, 61, 291)
"""Upper inner lip, lower inner lip, the two corners."""
NOSE_TIP = 1
CHIN = 152

RING_REACH = 1.22
"""How far out the ring lies, as a multiple of the oval point's distance from the centre."""
ATLAS_FILL = 0.98
"""Part of the atlas side that the mesh with its ring takes."""
FACE_WIDTH_CM = 15.5
"""Width of the canonical face; distances in frontal projection are told in this unit."""


@dataclass(frozen=True, slots=True, eq=False)
class FaceMeshTopology:
    """Constant facts of the mesh with its ring.

    Attributes:
        xyz: Canonical points in image sense (y down, z away from the camera), cm, shape ``(468, 3)``.
        uv: Texture coordinates of all points and the ring, 0..1 of the atlas side, shape ``(504, 2)``.
        triangles: Corner indices, shape ``(970, 3)``, the 72 ring triangles last; positive area on screen
            means facing the camera.
        mirror: For each of the 468 points the one on the other side of the face.
        face_triangles: How many triangles belong to the face itself (the ring's follow).
    """

    xyz: Floats
    uv: Floats
    triangles: Ints
    mirror: Ints
    face_triangles: int


def inter_ocular(landmarks: Floats) -> float:
    """Distance of the eye centres, depth included where there is one: a turned head keeps its size.

    Args:
        landmarks: Shape ``(468 or more, 2 or 3)``.
    """
    return float(np.linalg.norm(landmarks[EYE_LEFT].mean(0) - landmarks[EYE_RIGHT].mean(0)))


def with_ring(points: Floats) -> Floats:
    """Append the 36 ring points to the face points.

    Args:
        points: Shape ``(468 or more, d)``, d = 2 or 3; a third coordinate is copied from the oval.

    Returns:
        Shape ``(504, d)``.
    """
    oval = points[OVAL]
    ring = oval.copy()
    centre = oval[:, :2].mean(0)
    ring[:, :2] = centre + RING_REACH * (oval[:, :2] - centre)
    return np.concatenate([points[:FACE_POINTS], ring])


def _ring_triangles() -> Ints:
    n = len(OVAL)
    inner, outer = OVAL, FACE_POINTS + np.arange(n)
    inner_next, outer_next = np.roll(inner, -1), np.roll(outer, -1)
    return np.concatenate(
        [np.stack([inner, outer, outer_next], 1), np.stack([inner, outer_next, inner_next], 1)]
    )


def signed_areas(points: Floats, triangles: Ints) -> Floats:
    """Twice the area of each triangle on screen; positive = facing the camera."""
    a, b, c = (points[triangles[:, k], :2] for k in range(3))
    return (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])


@functools.cache
def topology() -> FaceMeshTopology:
    """The mesh, read once from the package."""
    with np.load(WEIGHTS_DIR / "face_mesh_canonical.npz") as data:
        xyz = data["xyz"] * np.array([1, -1, -1], np.float32)
        uv = data["uv"].astype(np.float32)
        face = data["tri"].astype(np.intp)
    ring = _ring_triangles()
    flat = with_ring(xyz)
    # One winding for all: positive on screen when facing the camera.
    face = np.where((signed_areas(xyz, face) < 0)[:, None], face[:, ::-1], face)
    ring = np.where((signed_areas(flat, ring) < 0)[:, None], ring[:, ::-1], ring)
    mirrored = xyz * np.array([-1, 1, 1], np.float32)
    mirror = np.argmin(((mirrored[:, None] - xyz[None]) ** 2).sum(-1), 1)
    uv = with_ring(uv)
    lower, upper = uv.min(0), uv.max(0)
    uv = (uv - (lower + upper) / 2) * (ATLAS_FILL / (upper - lower).max()) + 0.5
    return FaceMeshTopology(
        xyz=xyz.astype(np.float32),
        uv=uv.astype(np.float32),
        triangles=np.concatenate([face, ring]),
        mirror=mirror,
        face_triangles=len(face),
    )


def vertex_normals(points: Floats) -> Floats:
    """Unit normals of the 468 face points, shape ``(468, 3)``; z < 0 points at the camera (z grows away)."""
    mesh = topology()
    tri = mesh.triangles[: mesh.face_triangles]
    a, b, c = (points[tri[:, k], :3] for k in range(3))
    face = np.cross(b - a, c - a)
    normals = np.zeros((FACE_POINTS, 3), np.float32)
    for k in range(3):
        np.add.at(normals, tri[:, k], face)
    # Positive screen area gives a cross product with positive z, which points away: turn it round.
    return -normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
