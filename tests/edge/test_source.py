import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.progress import Event, SourcePrepared
from edge.source import SourceReader, SourceRequest, SourceStore, judge
from shared.arrays import ImageBgr
from shared.counters import CacheCounters
from shared.engines import EngineCard
from shared.errors import SourceError
from shared.faces import TrackedFace
from shared.mesh.source import SourcePhoto
from shared.mesh.topology import EYE_LEFT, EYE_RIGHT, LID_POINTS_LEFT, LID_POINTS_RIGHT
from shared.ort import SessionPool
from tests.real_faces import faces_of, image_of


@pytest.fixture(scope="module")
def reader() -> SourceReader:
    sessions = SessionPool()
    return SourceReader(FaceAnalyser(sessions), MobileFaceNet(sessions))


def good() -> tuple[ImageBgr, TrackedFace]:
    """A frontal, calm, well lit, large face with open eyes."""
    image, face = image_of("astronaut.png"), faces_of("astronaut.png")[0]
    return _scaled(image, face, 3.0)


def _scaled(image: ImageBgr, face: TrackedFace, factor: float) -> tuple[ImageBgr, TrackedFace]:
    large = cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    landmarks = face.landmarks * np.float32(factor)
    return large, dataclasses.replace(face, landmarks=landmarks, xyxy=face.xyxy * np.float32(factor))


def _turned(face: TrackedFace, yaw_deg: float = 0, pitch_deg: float = 0) -> TrackedFace:
    y, p = np.radians([yaw_deg, pitch_deg])
    about_y = np.array([[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]])
    about_x = np.array([[1, 0, 0], [0, np.cos(p), -np.sin(p)], [0, np.sin(p), np.cos(p)]])
    middle = face.landmarks.mean(0)
    landmarks = ((face.landmarks - middle) @ (about_x @ about_y).T + middle).astype(np.float32)
    return dataclasses.replace(face, landmarks=landmarks)


# Judging


@pytest.mark.parametrize(("factor", "word"), [(0.2, "too small"), (0.6, "is small"), (3.0, None)])
def test_the_size_of_a_source_face_is_judged(factor: float, word: str | None) -> None:
    image, face = _scaled(image_of("astronaut.png"), faces_of("astronaut.png")[0], factor)
    found = judge(image, face)
    said = " ".join((*found.advice, found.refusal or ""))
    assert (word in said) if word else ("small" not in said)
    assert (found.refusal is not None) == (factor == 0.2)


@pytest.mark.parametrize(
    ("yaw", "pitch", "word", "refused"),
    [
        (35, 0, "turned by", False),
        (-35, 0, "turned by", False),
        (60, 0, "turned too far", True),
        (0, 35, "up or down", False),
    ],
)
def test_the_pose_of_a_source_face_is_judged(yaw: float, pitch: float, word: str, refused: bool) -> None:
    image, face = good()
    found = judge(image, _turned(face, yaw, pitch))
    assert word in " ".join((*found.advice, found.refusal or ""))
    assert (found.refusal is not None) == refused


def dark(image: ImageBgr, _face: TrackedFace) -> ImageBgr:
    return (image * 0.2).astype(np.uint8)


def bright(image: ImageBgr, _face: TrackedFace) -> ImageBgr:
    return np.maximum(image, 240)


def one_sided(image: ImageBgr, face: TrackedFace) -> ImageBgr:
    x = (np.arange(image.shape[1]) - face.landmarks[:, 0].mean()) / np.ptp(face.landmarks[:, 0])
    return (image * np.clip(1 + 1.6 * x, 0.1, 1.9)[None, :, None]).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("change", "word"), [(dark, "very dark"), (bright, "overexposed"), (one_sided, "from one side")]
)
def test_the_light_on_a_source_face_is_judged(
    change: Callable[[ImageBgr, TrackedFace], ImageBgr], word: str
) -> None:
    image, face = good()
    before, after = judge(image, face), judge(change(image, face), face)
    assert word not in " ".join(before.advice)
    assert word in " ".join(after.advice)
    assert after.score < before.score


def test_closed_eyes_and_spectacles_cost_a_source_its_rank() -> None:
    image, face = good()
    landmarks = face.landmarks.copy()
    for eye, lids in ((EYE_LEFT, LID_POINTS_LEFT), (EYE_RIGHT, LID_POINTS_RIGHT)):
        landmarks[eye, 1] = landmarks[list(lids), 1].mean()
    closed = judge(image, dataclasses.replace(face, landmarks=landmarks))
    assert "eyes are closed" in " ".join(closed.advice)
    assert closed.score < judge(image, face).score
    with_glasses = judge(image_of("grace_hopper.jpg"), faces_of("grace_hopper.jpg")[0])
    assert "spectacles" in " ".join(with_glasses.advice)


def test_a_score_is_a_share_of_one() -> None:
    for name in ("single_face.jpg", "astronaut.png", "grace_hopper.jpg", "multi_face.jpg"):
        for face in faces_of(name):
            assert 0 <= judge(image_of(name), face).score <= 1


# Reading


def test_a_photo_of_one_face_is_read(reader: SourceReader, samples: Path) -> None:
    source = reader.read(samples / "single_face.jpg")
    assert source.path == samples / "single_face.jpg"
    np.testing.assert_array_equal(source.image, image_of("single_face.jpg"))
    np.testing.assert_allclose(source.face.landmarks, faces_of("single_face.jpg")[0].landmarks, atol=0.01)
    assert source.judgement.refusal is None


def test_a_photo_of_several_faces_needs_a_choice(reader: SourceReader, samples: Path) -> None:
    with pytest.raises(SourceError, match=r"multi_face\.jpg: shows 5 faces; .*--source-face N") as caught:
        reader.read(samples / "multi_face.jpg")
    assert caught.value.path == samples / "multi_face.jpg"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("which", [1, 2, 3, 4, 5])
def test_faces_are_counted_from_the_left(reader: SourceReader, samples: Path, which: int) -> None:
    found = reader.read(samples / "multi_face.jpg", which).face
    np.testing.assert_allclose(found.xyxy, faces_of("multi_face.jpg")[which - 1].xyxy, atol=0.5)


@pytest.mark.parametrize("which", [0, -1, 6])
def test_a_number_that_no_face_has_is_refused(reader: SourceReader, samples: Path, which: int) -> None:
    with pytest.raises(SourceError, match=f"--source-face {which}, but it shows 5"):
        reader.read(samples / "multi_face.jpg", which)


def test_somebody_far_behind_is_no_choice_to_ask_for(reader: SourceReader, tmp_path: Path) -> None:
    large, _ = _scaled(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], 2.0)
    x0, y0, x1, y1 = faces_of("astronaut.png")[0].xyxy.astype(int)
    head = image_of("astronaut.png")[max(y0 - 40, 0) : y1 + 30, x0 - 40 : x1 + 40]
    small = cv2.resize(head, None, fx=0.75, fy=0.75, interpolation=cv2.INTER_AREA)
    large[: small.shape[0], : small.shape[1]] = small
    Image.fromarray(large[..., ::-1]).save(tmp_path / "two.png")
    found = reader.read(tmp_path / "two.png")
    assert float(np.ptp(found.face.xyxy[::2])) > 250


@pytest.mark.parametrize("content", [b"", b"this is no picture"])
def test_a_source_that_is_no_picture_is_named(reader: SourceReader, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "me.jpg"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"source .*me\.jpg: ") as caught:
        reader.read(path)
    assert "\n" not in str(caught.value)


def test_a_source_that_is_not_there_or_has_no_face_is_named(reader: SourceReader, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"source .*none\.jpg: "):
        reader.read(tmp_path / "none.jpg")
    Image.new("RGB", (320, 240), (90, 120, 90)).save(tmp_path / "lawn.png")
    with pytest.raises(SourceError, match=r"lawn\.png: no face found; choose a photo"):
        reader.read(tmp_path / "lawn.png")


def test_the_best_photo_leads(reader: SourceReader, samples: Path, tmp_path: Path) -> None:
    small, _ = _scaled(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], 0.5)
    Image.fromarray(small[..., ::-1]).save(tmp_path / "small.png")
    found = reader.read_all([tmp_path / "small.png", samples / "single_face.jpg"])
    assert [face.path.name for face in found] == ["single_face.jpg", "small.png"]


def test_photos_of_two_people_are_refused(reader: SourceReader, samples: Path) -> None:
    with pytest.raises(SourceError, match=r"shows another person than .*use --map") as caught:
        reader.read_all([samples / "single_face.jpg", samples / "astronaut.png"])
    assert "\n" not in str(caught.value)


def test_a_photo_that_cannot_serve_is_left_out_beside_one_that_can(
    reader: SourceReader, samples: Path, tmp_path: Path
) -> None:
    tiny, _ = _scaled(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], 0.16)
    Image.fromarray(tiny[..., ::-1]).save(tmp_path / "tiny.png")
    assert reader.read(tmp_path / "tiny.png").judgement.refusal is not None
    found = reader.read_all([tmp_path / "tiny.png", samples / "single_face.jpg"])
    assert [face.path.name for face in found] == ["single_face.jpg"]
    with pytest.raises(SourceError, match=r"tiny\.png: the face is too small"):
        reader.read_all([tmp_path / "tiny.png"])


# Keeping


class Counting:
    """An engine that only counts what it is asked to prepare."""

    card = EngineCard("counting", "1", "frame", "photos", "uint8", "MIT")

    def __init__(self) -> None:
        self.prepared: list[int] = []

    def prepare(self, photos: Sequence[SourcePhoto]) -> str:
        self.prepared.append(len(photos))
        return f"person {len(self.prepared)}"

    def open_track(self, source: str) -> Any:
        raise NotImplementedError


def store(
    reader: SourceReader, *, caches: bool = True
) -> tuple[SourceStore[str], Counting, CacheCounters, list[Event]]:
    engine, counters, events = Counting(), CacheCounters(), list[Event]()
    return SourceStore(reader, engine, counters, events.append, caches=caches), engine, counters, events


def test_a_person_is_prepared_once_and_told_of_once(reader: SourceReader, samples: Path) -> None:
    kept, engine, counters, events = store(reader)
    photos = (samples / "single_face.jpg",)
    assert {kept.prepared(SourceRequest(photos)) for _ in range(4)} == {"person 1"}
    assert engine.prepared == [1]
    assert counters.summary()["artefacts"] == {"hits": 3, "misses": 1, "rate": 0.75}
    assert [type(event) for event in events] == [SourcePrepared]


def test_another_face_of_the_same_photo_is_another_person(reader: SourceReader, samples: Path) -> None:
    kept, engine, _, _ = store(reader)
    photos = (samples / "multi_face.jpg",)
    assert kept.prepared(SourceRequest(photos, 2)) != kept.prepared(SourceRequest(photos, 3))
    assert len(engine.prepared) == 2


def test_without_caches_everybody_is_prepared_anew(reader: SourceReader, samples: Path) -> None:
    kept, engine, counters, events = store(reader, caches=False)
    photos = (samples / "single_face.jpg",)
    assert [kept.prepared(SourceRequest(photos)) for _ in range(2)] == ["person 1", "person 2"]
    assert engine.prepared == [1, 1]
    assert counters.summary()["artefacts"]["hits"] == 0
    assert len(events) == 1


def test_all_usable_photos_reach_the_engine_with_their_advice(
    reader: SourceReader, samples: Path, tmp_path: Path
) -> None:
    small, _ = _scaled(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], 0.5)
    Image.fromarray(small[..., ::-1]).save(tmp_path / "small.png")
    kept, engine, _, events = store(reader)
    kept.prepared(SourceRequest((tmp_path / "small.png", samples / "single_face.jpg")))
    assert engine.prepared == [2]
    told = {event.path.name: event.advice for event in events if isinstance(event, SourcePrepared)}
    assert set(told) == {"small.png", "single_face.jpg"}
    assert any("small" in text for text in told["small.png"])


def test_a_source_that_cannot_serve_is_not_kept(reader: SourceReader, samples: Path) -> None:
    kept, engine, _, events = store(reader)
    for _ in range(2):
        with pytest.raises(SourceError):
            kept.prepared(SourceRequest((samples / "multi_face.jpg",)))
    assert engine.prepared == []
    assert events == []
