from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from edge.detector import FaceDetector
from edge.embedder import DlibResNet, Embedder, MobileFaceNet
from edge.landmarks import FaceMesh, five_points
from shared.arrays import Embedding, ImageBgr, Landmarks5
from shared.geometry import ARCFACE_112, DLIB_150, fit_similarity
from shared.ort import SessionPool

POOL = SessionPool()
SAME = {"mobilefacenet192": 0.45, "dlib_resnet": 0.4}


@pytest.fixture(scope="module", params=[MobileFaceNet, DlibResNet])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    made: Embedder = request.param(POOL)
    return made


@pytest.fixture(scope="module")
def detector() -> FaceDetector:
    return FaceDetector(POOL)


def embed_all(embedder: Embedder, detector: FaceDetector, image: ImageBgr) -> list[Embedding]:
    return [embedder.embed(image, points) for points in detector.detect_still(image).landmarks]


def photo(path: Path) -> ImageBgr:
    return np.asarray(cv2.imread(str(path)), np.uint8)


def clip(path: Path, every: int) -> list[ImageBgr]:
    with av.open(str(path)) as container:
        frames = container.decode(video=0)
        return [
            np.asarray(f.to_ndarray(format="bgr24"), np.uint8) for i, f in enumerate(frames) if i % every == 0
        ]


def test_vectors_have_the_shape_their_card_says(
    embedder: Embedder, detector: FaceDetector, samples: Path
) -> None:
    (vector,) = embed_all(embedder, detector, photo(samples / "astronaut.png"))
    assert vector.shape == ((192,) if embedder.name == "mobilefacenet192" else (128,))
    assert vector.dtype == np.float32
    if embedder.name == "mobilefacenet192":
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert embedder.similarity(vector, vector) == pytest.approx(1, abs=1e-5)


def test_people_on_the_packaged_photos_are_told_apart(
    embedder: Embedder, detector: FaceDetector, samples: Path
) -> None:
    names = ("single_face.jpg", "multi_face.jpg", "astronaut.png", "grace_hopper.jpg")
    people = [e for name in names for e in embed_all(embedder, detector, photo(samples / name))]
    assert len(people) == 8
    alike = sorted(embedder.similarity(a, b) for i, a in enumerate(people) for b in people[:i])
    # Both recognisers take two of the friends on the group photo for one person: a look-alike pair.
    assert alike[-2] < SAME[embedder.name] < alike[-1]


def test_one_person_stays_one_over_a_clip(embedder: Embedder, detector: FaceDetector, samples: Path) -> None:
    frames = clip(samples / "single_face.mp4", 12)
    vectors = [embed_all(embedder, detector, frame)[0] for frame in frames]
    assert min(embedder.similarity(vectors[0], v) for v in vectors) > SAME[embedder.name] + 0.1


def test_the_network_sees_what_its_card_asks_for(detector: FaceDetector, samples: Path) -> None:
    image = photo(samples / "astronaut.png")
    points = detector.detect_still(image).landmarks[0]

    def rgb(template: Landmarks5, size: int) -> npt.NDArray[np.float32]:
        crop = cv2.warpAffine(image, fit_similarity(points, template), (size, size))
        return np.asarray(crop[:, :, ::-1], np.float32)

    (mobile,) = POOL.get("mobilefacenet192").run((rgb(ARCFACE_112, 112)[None] - 127.5) / 128)
    (dlib,) = POOL.get("dlib_resnet").run(np.ascontiguousarray(rgb(DLIB_150, 150).transpose(2, 0, 1)[None]))
    expected = mobile[0] / np.linalg.norm(mobile[0])
    np.testing.assert_allclose(MobileFaceNet(POOL).embed(image, points), expected, atol=1e-4)
    np.testing.assert_allclose(DlibResNet(POOL).embed(image, points), dlib[0], atol=1e-4)


def test_an_embedding_is_not_a_view_of_a_buffer(
    embedder: Embedder, detector: FaceDetector, samples: Path
) -> None:
    image = photo(samples / "multi_face.jpg")
    points = detector.detect_still(image).landmarks
    first = embedder.embed(image, points[0])
    kept = first.copy()
    embedder.embed(image, points[1])
    np.testing.assert_array_equal(first, kept)


def test_points_of_the_mesh_align_as_well_as_the_detectors(detector: FaceDetector, samples: Path) -> None:
    embedder, mesh = MobileFaceNet(POOL), FaceMesh(POOL)
    image = photo(samples / "multi_face.jpg")
    found = detector.detect_still(image)
    for xyxy, points in zip(found.xyxy, found.landmarks, strict=True):
        by_mesh = five_points(mesh.from_detection(image, points, xyxy).landmarks)
        alike = embedder.similarity(embedder.embed(image, points), embedder.embed(image, by_mesh))
        assert alike > 0.8


def test_a_brighter_smaller_mirrored_picture_shows_the_same_person(
    embedder: Embedder, detector: FaceDetector, samples: Path
) -> None:
    image = photo(samples / "astronaut.png")
    small = cv2.resize(image[:, ::-1], None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA)
    changed = np.clip(small.astype(np.float32) * 1.2 + 10, 0, 255).astype(np.uint8)
    (a,), (b,) = (embed_all(embedder, detector, picture) for picture in (image, changed))
    assert embedder.similarity(a, b) > SAME[embedder.name] + 0.15
