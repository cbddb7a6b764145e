from pathlib import Path

import cv2
import numpy as np
import pytest

from edge.detector import DetectorConfig, FaceDetector, _drop_nested, letterbox
from shared.arrays import ImageBgr
from shared.faces import Detections
from shared.ort import SessionPool


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return FaceDetector(SessionPool())


def read(path: Path) -> ImageBgr:
    return np.asarray(cv2.imread(str(path)), np.uint8)


@pytest.mark.parametrize(
    ("picture_wh", "input_px", "input_wh", "content_wh"),
    [
        ((1920, 1080), 320, (320, 192), (320, 180)),
        ((1080, 1920), 320, (192, 320), (180, 320)),
        ((640, 480), 320, (320, 256), (320, 240)),
        ((512, 512), 640, (640, 640), (640, 640)),
        ((5000, 3), 320, (320, 32), (320, 1)),
        ((1, 1), 320, (320, 320), (320, 320)),
    ],
)
def test_a_picture_keeps_its_aspect_in_the_input(
    picture_wh: tuple[int, int],
    input_px: int,
    input_wh: tuple[int, int],
    content_wh: tuple[int, int],
) -> None:
    box = letterbox(picture_wh, input_px)
    assert box.input_wh == input_wh
    assert box.content_wh == content_wh


@pytest.mark.parametrize("shape", [(0, 10, 3), (10, 0, 3)])
def test_a_picture_without_pixels_has_no_face(detector: FaceDetector, shape: tuple[int, int, int]) -> None:
    assert len(detector.detect(np.zeros(shape, np.uint8))) == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 400), (90, 120)])
def test_a_plain_picture_has_no_face(detector: FaceDetector, shape: tuple[int, int]) -> None:
    assert len(detector.detect_still(np.full((*shape, 3), 90, np.uint8))) == 0


@pytest.mark.parametrize(
    ("name", "count"),
    [("single_face.jpg", 1), ("multi_face.jpg", 5), ("astronaut.png", 1), ("grace_hopper.jpg", 1)],
)
def test_all_faces_of_a_photo_are_found(detector: FaceDetector, samples: Path, name: str, count: int) -> None:
    image = read(samples / name)
    found = detector.detect_still(image)
    assert len(found) == count
    assert len(detector.detect(image)) == count
    assert (np.diff(found.confidence) <= 0).all()
    # Eyes, nose and mouth lie inside the box, eyes above the mouth, left of the picture first.
    assert (found.landmarks >= found.xyxy[:, None, :2]).all()
    assert (found.landmarks <= found.xyxy[:, None, 2:]).all()
    assert (found.landmarks[:, :2, 1].max(1) < found.landmarks[:, 3:, 1].min(1)).all()
    assert (found.landmarks[:, 0, 0] < found.landmarks[:, 1, 0]).all()


def test_boxes_are_in_the_coordinates_of_the_picture(detector: FaceDetector, samples: Path) -> None:
    image = read(samples / "single_face.jpg")
    large = cv2.resize(image, None, fx=2, fy=2)
    shifted = np.zeros((image.shape[0] + 300, image.shape[1] + 200, 3), np.uint8)
    shifted[300:, 200:] = image
    one = detector.detect(image, input_px=640)
    two = detector.detect(np.asarray(large, np.uint8), input_px=640)
    three = detector.detect(shifted, input_px=640)
    width = float(one.xyxy[0, 2] - one.xyxy[0, 0])
    np.testing.assert_allclose(two.xyxy / 2, one.xyxy, atol=0.03 * width)
    np.testing.assert_allclose(three.xyxy - [200, 300, 200, 300], one.xyxy, atol=0.1 * width)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_turned_photo_gives_the_same_face_in_its_own_coordinates(
    detector: FaceDetector, samples: Path, quarters: int
) -> None:
    image = read(samples / "grace_hopper.jpg")
    upright = detector.detect_still(image)
    found = detector.detect_still(np.ascontiguousarray(np.rot90(image, -quarters)))
    h, w = image.shape[:2]
    x, y = upright.landmarks[0, :, 0], upright.landmarks[0, :, 1]
    expected = {1: (h - y, x), 2: (w - x, h - y), 3: (y, w - x)}[quarters]
    assert len(found) == 1
    np.testing.assert_allclose(found.landmarks[0], np.stack(expected, 1), atol=4)


def test_faces_too_small_for_a_stream_are_found_in_a_photo(detector: FaceDetector, samples: Path) -> None:
    image = read(samples / "multi_face.jpg")
    crowd = np.zeros((1200, 1800, 3), np.uint8)
    small = cv2.resize(image, (450, 300), interpolation=cv2.INTER_AREA)
    for row in range(4):
        for column in range(4):
            crowd[row * 300 : row * 300 + 300, column * 450 : column * 450 + 450] = small
    assert len(detector.detect(crowd)) < 80
    # All of them; a curl or a pattern that also passes for a face is for the landmarks to refuse.
    assert 80 <= len(detector.detect_still(crowd)) <= 84


def test_the_smallest_faces_need_the_largest_search(samples: Path) -> None:
    small = cv2.resize(read(samples / "multi_face.jpg"), (270, 180), interpolation=cv2.INTER_AREA)
    crowd = np.zeros((1440, 2160, 3), np.uint8)
    crowd[720:1080, 810:1350] = np.tile(small, (2, 2, 1))
    counts = [
        len(FaceDetector(SessionPool(), DetectorConfig(large_picture_px=px)).detect_still(crowd))
        for px in (800, 10_000)
    ]
    assert counts[0] >= 19 > counts[1]


def test_of_boxes_one_inside_the_other_the_surer_one_stays() -> None:
    xyxy = np.array([[0, 0, 100, 100], [30, 30, 60, 60], [90, 90, 190, 190], [0, 0, 400, 400]], np.float32)
    found = Detections(xyxy, np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.zeros((4, 5, 2), np.float32))
    np.testing.assert_array_equal(_drop_nested(found, 0.7).xyxy, xyxy[[0, 2]])
    assert len(_drop_nested(Detections.empty(), 0.7)) == 0


def test_many_sizes_do_not_pile_up_buffers(detector: FaceDetector) -> None:
    for width in range(40, 60):
        detector.detect(np.zeros((40, width, 3), np.uint8))
    assert len(detector._buffers) <= detector._MAX_BUFFERS


def test_small_faces_of_a_large_group_are_found(detector: FaceDetector, shared_media: Path) -> None:
    assert len(detector.detect_still(read(shared_media / "group" / "solvay_1927.png"))) >= 28


def test_a_threshold_outside_of_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="min_confidence must lie between 0 and 1, not 2"):
        DetectorConfig(min_confidence=2)
