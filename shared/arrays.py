"""One alias for each kind of array: what is in it, its shape and its unit."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

ImageBgr: TypeAlias = npt.NDArray[np.uint8]
"""Picture, shape ``(h, w, 3)``, channels blue, green, red, values 0..255."""

MaskU8: TypeAlias = npt.NDArray[np.uint8]
"""Weights, shape ``(h, w)``, 0 = the target shows, 255 = the fused face shows."""

BoxesXyxy: TypeAlias = npt.NDArray[np.float32]
"""Boxes, shape ``(n, 4)``, ``x_min, y_min, x_max, y_max`` in frame pixels."""

BoxXyxy: TypeAlias = npt.NDArray[np.float32]
"""One box, shape ``(4,)``, ``x_min, y_min, x_max, y_max`` in frame pixels."""

Landmarks5: TypeAlias = npt.NDArray[np.float32]
"""Five points, shape ``(5, 2)``, frame pixels: the eye at the left of the picture, the eye at its right,
nose tip, the mouth corner at the left of the picture, the one at its right."""

MeshLandmarks: TypeAlias = npt.NDArray[np.float32]
"""Dense face points, shape ``(n, 3)``, n = 468 or 478 in MediaPipe's order. x and y in frame pixels,
z in the same scale, smaller = nearer to the camera."""

Embedding: TypeAlias = npt.NDArray[np.float32]
"""Identity vector, shape ``(d,)``; L2-normalised unless its recogniser says otherwise."""

Affine: TypeAlias = npt.NDArray[np.float32]
"""Map of points, shape ``(2, 3)``: ``y = a[:, :2] @ x + a[:, 2]``."""

Points: TypeAlias = npt.NDArray[np.float32]
"""Points, shape ``(n, 2)`` or ``(n, 3)``; the docstring that uses it says in what space."""
