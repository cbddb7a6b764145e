"""Faces of the packaged photos, found and prepared once for all tests."""

import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.landmarks import FaceMesh, five_points
from edge.stills import read_still
from edge.video import VideoReader
from shared.arrays import Embedding, ImageBgr
from shared.faces import TrackedFace
from shared.frames import Frame
from shared.mesh.source import PreparedSource, SourcePhoto, prepare_source
from shared.ort import SessionPool

SAMPLES = Path(__file__).resolve().parent.parent / "edge" / "samples"


@functools.cache
def image_of(name: str) -> ImageBgr:
    """A packaged photo, shape ``(h, w, 3)``, BGR. Read-only: shared by all tests."""
    image = read_still(SAMPLES / name).frame.image
    image.setflags(write=False)
    return image


@functools.cache
def _analyser() -> FaceAnalyser:
    return FaceAnalyser(SessionPool())


@functools.cache
def faces_of(name: str) -> tuple[TrackedFace, ...]:
    """The faces of a packaged photo, from left to right."""
    faces = _analyser().analyse_still(Frame(0, image_of(name).copy()))
    return tuple(sorted(faces, key=lambda face: float(face.xyxy[0])))


def faces_in(image: ImageBgr) -> tuple[TrackedFace, ...]:
    """The faces of any picture, from left to right."""
    faces = _analyser().analyse_still(Frame(0, image.copy()))
    return tuple(sorted(faces, key=lambda face: float(face.xyxy[0])))


@functools.cache
def prepared(name: str, which: int = 0) -> PreparedSource:
    """The person of a packaged photo as a source."""
    return prepare_source([SourcePhoto(image_of(name), faces_of(name)[which].landmarks)])


@functools.cache
def _embedder() -> MobileFaceNet:
    return MobileFaceNet(SessionPool())


def embedding_of(image: ImageBgr, landmarks: npt.NDArray[np.float32]) -> Embedding:
    """Who the face at the landmarks is, shape ``(192,)``."""
    return _embedder().embed(image, five_points(landmarks))


@functools.cache
def _clip(count: int) -> tuple[ImageBgr, ...]:
    with VideoReader(SAMPLES / "single_face.mp4") as reader:
        frames = []
        for frame in reader:
            frames.append(frame.image.copy())
            if len(frames) == count:
                break
    return tuple(frames)


@functools.cache
def clip_faces(count: int) -> tuple[tuple[ImageBgr, TrackedFace], ...]:
    """The first frames of the packaged clip with the face in each, as one track sees it."""
    images = _clip(count)
    first = faces_in(images[0])[0]
    mesh, landmarks = FaceMesh(SessionPool()), first.landmarks
    out = []
    for number, image in enumerate(images):
        fit = mesh.from_previous(image, landmarks)
        landmarks = fit.landmarks
        out.append((image, TrackedFace(0, landmarks, fit.presence, fit.xyxy, 0.9, number == 0, 0)))
    return tuple(out)
