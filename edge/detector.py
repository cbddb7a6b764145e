"""Where the faces are: YuNet on a letterboxed copy of the picture.

The network takes any size that is a multiple of 32, so a 16:9 picture costs 320x192 and not 320x320.
It has one anchor for each cell of three grids (strides 8, 16 and 32); a face's score is the geometric mean
of its class and its objectness.
"""

from dataclasses import dataclass, field

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr
from shared.faces import Detections
from shared.geometry import non_maximum_suppression
from shared.ort import SessionPool

_STRIDES = (8, 16, 32)
_PARTS = ("cls", "obj", "bbox", "kps")


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """What counts as a face.

    Attributes:
        min_confidence: Detections below are dropped, in ``[0, 1]``.
        max_iou: Of two boxes that overlap more, the weaker is dropped, in ``[0, 1]``.
        max_nested: Of two boxes one of which lies inside the other by more than this share of its area, the
            weaker is dropped, in ``[0, 1]``; used where several sizes are searched.
        large_picture_px: Longest side from which a photo is also searched at 1280 pixels.
    """

    min_confidence: float = 0.6
    max_iou: float = 0.4
    max_nested: float = 0.7
    large_picture_px: int = 800

    def __post_init__(self) -> None:
        for name in ("min_confidence", "max_iou", "max_nested"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value}")


@dataclass(frozen=True, slots=True, eq=False)
class Letterbox:
    """How a picture lies, top-left, in the network's input.

    Attributes:
        input_wh: Size of the input, multiples of 32.
        content_wh: Size of the shrunk picture inside it.
        scale_xy: Input pixels for each picture pixel; the axes differ by rounding.
    """

    input_wh: tuple[int, int]
    content_wh: tuple[int, int]
    scale_xy: tuple[float, float]


def letterbox(picture_wh: tuple[int, int], input_px: int) -> Letterbox:
    """Fit a picture's longest side to ``input_px`` and round the input up to multiples of 32."""
    w, h = picture_wh
    scale = input_px / max(w, h)
    content = (max(1, round(w * scale)), max(1, round(h * scale)))
    return Letterbox(
        (-(-content[0] // 32) * 32, -(-content[1] // 32) * 32),
        content,
        (content[0] / w, content[1] / h),
    )


@dataclass(slots=True, eq=False)
class _Buffer:
    """The input of one size, reused for every picture of that size; the border stays black."""

    box: Letterbox
    canvas: ImageBgr = field(init=False)
    tensor: npt.NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        w, h = self.box.input_wh
        self.canvas = np.zeros((h, w, 3), np.uint8)
        self.tensor = np.zeros((1, 3, h, w), np.float32)

    def fill(self, image_bgr: ImageBgr) -> npt.NDArray[np.float32]:
        w, h = self.box.content_wh
        shrinks = w < image_bgr.shape[1]
        mode = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        self.canvas[:h, :w] = cv2.resize(image_bgr, (w, h), interpolation=mode)
        for channel, plane in enumerate(cv2.split(self.canvas)):
            self.tensor[0, channel] = plane
        return self.tensor


class FaceDetector:
    """Finds faces. Keeps its input buffers, so each thread needs its own detector.

    Args:
        sessions: Where the network comes from.
        config: What counts as a face.
    """

    # A stream has one size, a batch of photos many: the oldest buffer goes when there are this many.
    _MAX_BUFFERS = 8
    # Upright faces score 0.92 and more, turned ones, whose landmarks are then wrong, up to 0.89.
    _SURELY_UPRIGHT = 0.9

    def __init__(self, sessions: SessionPool, config: DetectorConfig | None = None) -> None:
        self.config = config or DetectorConfig()
        self._session = sessions.get("yunet")
        self._outputs = {
            stride: [self._session.output_index(f"{part}_{stride}") for part in _PARTS] for stride in _STRIDES
        }
        self._buffers: dict[tuple[int, int, int], _Buffer] = {}

    def detect(self, image_bgr: ImageBgr, *, input_px: int = 320) -> Detections:
        """Faces of an upright picture, best first.

        Args:
            image_bgr: Shape ``(h, w, 3)``, uint8.
            input_px: Longest side of the network's input. At 320 faces from about 1/25 of the longest side
                are found.
        """
        if 0 in image_bgr.shape:
            return Detections.empty()
        buffer = self._buffer(image_bgr.shape[1], image_bgr.shape[0], input_px)
        outputs = self._session.run(buffer.fill(image_bgr))
        found = self._decode(outputs, buffer.box)
        return _take(found, non_maximum_suppression(found.xyxy, found.confidence, self.config.max_iou))

    def detect_still(self, image_bgr: ImageBgr) -> Detections:
        """Faces of a photo, thoroughly: large and small ones, turned ones where upright gives none for sure.

        Args:
            image_bgr: Shape ``(h, w, 3)``, uint8.

        Returns:
            Detections in the picture's own coordinates. A face found upside down keeps the order of its
            landmarks as seen with the head upright, so that the eye line tells the roll.
        """
        found = self._detect_sizes(image_bgr)
        if len(found) and found.confidence[0] >= self._SURELY_UPRIGHT:
            return found
        turned = self.detect_turned(image_bgr)
        return turned if turned.confidence.sum() > found.confidence.sum() else found

    def detect_turned(self, image_bgr: ImageBgr, *, input_px: int | None = None) -> Detections:
        """Faces lying on their side or standing on their head: the quarter turn that shows most of them.

        Args:
            image_bgr: Shape ``(h, w, 3)``, uint8.
            input_px: Longest side of the network's input; None searches all sizes of a photo.
        """
        best = Detections.empty()
        for quarters in (1, 2, 3):  # clockwise
            turned = np.ascontiguousarray(np.rot90(image_bgr, -quarters))
            found = self._detect_sizes(turned) if input_px is None else self.detect(turned, input_px=input_px)
            if found.confidence.sum() > best.confidence.sum():
                best = _turn_back(found, quarters, (image_bgr.shape[1], image_bgr.shape[0]))
        return best

    def _detect_sizes(self, image_bgr: ImageBgr) -> Detections:
        """Search at several sizes: a face that fills the picture shows at 320, one of a crowd at 1280."""
        large = max(image_bgr.shape[:2]) >= self.config.large_picture_px
        parts = [self.detect(image_bgr, input_px=px) for px in ((320, 640, 1280) if large else (320, 640))]
        merged = Detections(
            np.concatenate([p.xyxy for p in parts]),
            np.concatenate([p.confidence for p in parts]),
            np.concatenate([p.landmarks for p in parts]),
        )
        keep = non_maximum_suppression(merged.xyxy, merged.confidence, self.config.max_iou)
        return _drop_nested(_take(merged, keep), self.config.max_nested)

    def _buffer(self, width: int, height: int, input_px: int) -> _Buffer:
        key = (width, height, input_px)
        buffer = self._buffers.get(key)
        if buffer is None:
            if len(self._buffers) >= self._MAX_BUFFERS:
                del self._buffers[next(iter(self._buffers))]
            buffer = self._buffers[key] = _Buffer(letterbox((width, height), input_px))
        return buffer

    def _decode(self, outputs: list[npt.NDArray[np.float32]], box: Letterbox) -> Detections:
        """Raw grids to detections in picture pixels, not yet free of doubles."""
        xyxy, confidence, landmarks = [], [], []
        for stride in _STRIDES:
            cls, obj, bbox, kps = (outputs[i][0] for i in self._outputs[stride])
            product = np.clip(cls[:, 0], 0, 1) * np.clip(obj[:, 0], 0, 1)
            cells = np.flatnonzero(product >= self.config.min_confidence**2)
            row, col = np.divmod(cells, box.input_wh[0] // stride)
            corner = np.stack([col, row], 1).astype(np.float32)
            centre = (corner + bbox[cells, :2]) * stride
            half = np.exp(bbox[cells, 2:]) * (stride / 2)
            xyxy.append(np.concatenate([centre - half, centre + half], 1))
            confidence.append(np.sqrt(product[cells]))
            landmarks.append((corner[:, None] + kps[cells].reshape(-1, 5, 2)) * stride)
        scale = np.asarray(box.scale_xy, np.float32)
        return Detections(
            (np.concatenate(xyxy) / np.tile(scale, 2)).astype(np.float32),
            np.concatenate(confidence),
            (np.concatenate(landmarks) / scale).astype(np.float32),
        )


def _take(found: Detections, keep: npt.NDArray[np.intp]) -> Detections:
    return Detections(found.xyxy[keep], found.confidence[keep], found.landmarks[keep])


def _drop_nested(found: Detections, max_nested: float) -> Detections:
    """Drop boxes that lie inside a better one, or hold a better one (``found`` is sorted best first)."""
    lower = np.maximum(found.xyxy[:, None, :2], found.xyxy[None, :, :2])
    upper = np.minimum(found.xyxy[:, None, 2:], found.xyxy[None, :, 2:])
    inter = np.clip(upper - lower, 0, None).prod(-1)
    area = np.clip(found.xyxy[:, 2:] - found.xyxy[:, :2], 1e-3, None).prod(-1)
    nested = inter > max_nested * np.minimum(area[:, None], area[None])
    keep: list[int] = []
    for i in range(len(found)):
        if not nested[i, keep].any():
            keep.append(i)
    return _take(found, np.asarray(keep, np.intp))


def _turn_back(found: Detections, quarters: int, picture_wh: tuple[int, int]) -> Detections:
    """Coordinates of a picture turned clockwise by ``quarters`` to those of the picture itself."""
    w, h = picture_wh

    def back(points: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        x, y = points[..., 0], points[..., 1]
        turned = {1: (y, h - x), 2: (w - x, h - y), 3: (w - y, x)}[quarters]
        return np.stack(turned, -1).astype(np.float32)

    a, b = back(found.xyxy[:, :2]), back(found.xyxy[:, 2:])
    xyxy = np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)
    return Detections(xyxy, found.confidence, back(found.landmarks))
