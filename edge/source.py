"""Source photos: finding the one face, saying what is wrong with it, and making of it what an engine needs.

The best lever on the quality of a fusion is the source photo, so every photo is judged, the user is told what
would make a better one, and of several the best leads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import cv2
import numpy as np

from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.landmarks import five_points
from edge.progress import EventSink, SourcePrepared
from edge.stills import read_still
from shared.arrays import Embedding, ImageBgr
from shared.counters import CacheCounters
from shared.engines import Engine
from shared.errors import InputError, SourceError
from shared.faces import TrackedFace
from shared.mesh.features import closing, mouth_openness
from shared.mesh.glasses import GlassesModel
from shared.mesh.shape import head_pose
from shared.mesh.source import SourcePhoto
from shared.mesh.topology import FACE_POINTS, LID_POINTS_LEFT, LID_POINTS_RIGHT, inter_ocular, with_ring
from shared.mesh.uvgrid import GRID, face_regions, unwrap, uv_grid

PreparedT = TypeVar("PreparedT")
Role = Literal["source", "reference"]

_BACKGROUND_FACE = 0.25
"""Faces narrower than this part of the largest are passers-by, no choice to ask for."""
_TURNED_DEG, _TOO_TURNED_DEG = 25.0, 50.0
_NODDING_DEG = 25.0
_SMALL_PX, _TOO_SMALL_PX = 60.0, 18.0
"""Inter-ocular distance."""
_DARK, _BRIGHT = 55.0, 225.0
_LOPSIDED = 0.30
"""Difference of the two cheeks' lightness over their mean."""
_OPEN_MOUTH = 0.25
_SAME_PERSON = 0.30
"""Two photos less alike than this (cosine) show two people: same-person pairs were never below 0.5."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How good a source a photo is.

    Attributes:
        score: 0..1, for ranking the photos of one person.
        advice: What would make a better photo; empty where it is good.
        refusal: Why it cannot serve at all, or None.
    """

    score: float
    advice: tuple[str, ...]
    refusal: str | None = None


def judge(image: ImageBgr, face: TrackedFace) -> Judgement:
    """Look at pose, size, light, expression and spectacles of a source face."""
    pose = head_pose(face.landmarks)
    eyes_px = inter_ocular(face.landmarks)
    yaw, pitch = abs(pose.yaw_deg), abs(pose.pitch_deg)
    if eyes_px < _TOO_SMALL_PX:
        return Judgement(
            0, (), f"the face is too small ({eyes_px:.0f} pixels between the eyes; 60 or more is good)"
        )
    if yaw > _TOO_TURNED_DEG:
        return Judgement(
            0, (), f"the face is turned too far to the side ({yaw:.0f} degrees; below 25 is good)"
        )
    advice = []
    if yaw > _TURNED_DEG:
        advice.append(f"the face is turned by {yaw:.0f} degrees: a frontal photo is better")
    if pitch > _NODDING_DEG:
        advice.append(f"the face looks up or down by {pitch:.0f} degrees: a level photo is better")
    if eyes_px < _SMALL_PX:
        advice.append(f"the face is small ({eyes_px:.0f} pixels between the eyes): 60 or more is better")
    light, light_advice = _judge_light(image, face)
    calm, calm_advice = _judge_expression(image, face)
    score = float(np.cos(np.radians(min(yaw + pitch / 2, 89))) ** 3 * min(1.0, eyes_px / 100) * light * calm)
    return Judgement(score, (*advice, *light_advice, *calm_advice))


def _judge_light(image: ImageBgr, face: TrackedFace) -> tuple[float, list[str]]:
    points = with_ring(face.landmarks)
    width = float(np.ptp(points[:FACE_POINTS, 0]))
    seen = unwrap(image, points, uv_grid(GRID), step=max(1, int(width / 100)))
    light = cv2.cvtColor(seen, cv2.COLOR_BGR2GRAY).astype(np.float32)
    cheeks = face_regions().cheeks > 0
    left, right = (
        float(np.median(light[:, half][cheeks[:, half]])) for half in (slice(0, 32), slice(32, 64))
    )
    mean = max((left + right) / 2, 1.0)
    if mean < _DARK:
        return 0.6, ["the face is very dark: more light is better"]
    if mean > _BRIGHT:
        return 0.6, ["the face is overexposed: less light is better"]
    if abs(left - right) / mean > _LOPSIDED:
        return 0.7, ["the light comes from one side: even light is better"]
    return 1.0, []


def _judge_expression(image: ImageBgr, face: TrackedFace) -> tuple[float, list[str]]:
    advice, score = [], 1.0
    if mouth_openness(face.landmarks) > _OPEN_MOUTH:
        advice.append("the mouth is open: a calm face is better")
        score *= 0.8
    if min(closing(face.landmarks, lids) for lids in (LID_POINTS_LEFT, LID_POINTS_RIGHT)) > 0.8:
        advice.append("the eyes are closed: open ones are better")
        score *= 0.8
    width = float(np.ptp(face.landmarks[:FACE_POINTS, 0]))
    if GlassesModel().update(image, with_ring(face.landmarks), width) is not None:
        advice.append("spectacles would be carried over with the face: a photo without them is better")
        score *= 0.7
    return score, advice


@dataclass(frozen=True, slots=True, eq=False)
class SourceFace:
    """The chosen face of one photo.

    Attributes:
        path: The photo.
        image: Its pixels, upright.
        face: The face.
        embedding: Of the face.
        judgement: How good it is.
    """

    path: Path
    image: ImageBgr
    face: TrackedFace
    embedding: Embedding
    judgement: Judgement


class SourceReader:
    """Finds the face of a photo.

    Args:
        analyser: Finds faces in stills.
        embedder: Tells people apart.
    """

    def __init__(self, analyser: FaceAnalyser, embedder: MobileFaceNet) -> None:
        self._analyser = analyser
        self._embedder = embedder

    def read(self, path: Path, which: int | None = None, *, role: Role = "source") -> SourceFace:
        """The one face of a photo.

        Args:
            path: The photo.
            which: Number of the face from the left, from 1, where there are several.
            role: What the photo is for.

        Raises:
            SourceError: If there is no face, or several and no choice.
        """
        try:
            frame = read_still(path).frame
        except InputError as err:
            raise SourceError(f"{role} {path}: {err.reason}", path=path) from err
        faces = self._analyser.analyse_still(frame)
        face = _choose(path, faces, which, role)
        embedding = self._embedder.embed(frame.image, five_points(face.landmarks))
        return SourceFace(path, frame.image, face, embedding, judge(frame.image, face))

    def read_all(self, paths: Sequence[Path], which: int | None = None) -> list[SourceFace]:
        """The faces of several photos of one person, best photo first; those that cannot serve are left out.

        Raises:
            SourceError: If a photo has no face, none can serve, or they show different people.
        """
        faces = sorted((self.read(path, which) for path in paths), key=lambda f: -f.judgement.score)
        usable = [face for face in faces if face.judgement.refusal is None]
        if not usable:
            raise SourceError(f"source {faces[0].path}: {faces[0].judgement.refusal}", path=faces[0].path)
        for face in usable[1:]:
            if float(face.embedding @ usable[0].embedding) < _SAME_PERSON:
                raise SourceError(
                    f"source {face.path}: shows another person than {usable[0].path}; the photos of one "
                    "--source list must be of one person (use --map for several)",
                    path=face.path,
                )
        return usable


def _choose(path: Path, faces: Sequence[TrackedFace], which: int | None, role: Role) -> TrackedFace:
    if not faces:
        raise SourceError(
            f"{role} {path}: no face found; choose a photo that shows one face clearly", path=path
        )
    from_left = sorted(faces, key=lambda f: float(f.xyxy[0] + f.xyxy[2]))
    if which is not None:
        if not 1 <= which <= len(faces):
            raise SourceError(
                f"source {path}: --source-face {which}, but it shows {len(faces)}, counted from 1", path=path
            )
        return from_left[which - 1]
    largest = max(float(f.xyxy[2] - f.xyxy[0]) for f in faces)
    near = [f for f in faces if float(f.xyxy[2] - f.xyxy[0]) >= _BACKGROUND_FACE * largest]
    if len(near) > 1:
        raise SourceError(
            f"{role} {path}: shows {len(near)} faces; "
            + (
                "say which with --source-face N, counted from the left, or crop"
                if role == "source"
                else "crop"
            )
            + " the photo",
            path=path,
        )
    return near[0]


class SourceStore(Generic[PreparedT]):
    """Prepared sources of one job: each person is prepared once, whatever the number of inputs.

    Args:
        reader: Finds the faces.
        engine: Prepares them.
        counters: Counts the level ``artefacts``.
        events: Told about every photo.
        caches: False prepares anew for every input.
    """

    def __init__(
        self,
        reader: SourceReader,
        engine: Engine[PreparedT],
        counters: CacheCounters,
        events: EventSink,
        *,
        caches: bool = True,
    ) -> None:
        self._reader = reader
        self._engine = engine
        self._counters = counters
        self._events = events
        self._caches = caches
        self._prepared: dict[tuple[tuple[Path, ...], int | None], PreparedT] = {}
        self._told: set[Path] = set()

    def prepared(self, photos: tuple[Path, ...], which: int | None = None) -> PreparedT:
        """A person, ready to be fused.

        Args:
            photos: All of one person.
            which: Number of the face from the left, where a photo shows several.

        Raises:
            SourceError: If they cannot serve.
        """
        key = (photos, which)
        if self._caches and key in self._prepared:
            self._counters.hit("artefacts")
            return self._prepared[key]
        self._counters.miss("artefacts")
        faces = self._reader.read_all(photos, which)
        made = self._engine.prepare([SourcePhoto(f.image, f.face.landmarks) for f in faces])
        for face in faces:
            if face.path not in self._told:
                self._told.add(face.path)
                self._events(SourcePrepared(face.path, face.judgement.advice))
        self._prepared[key] = made
        return made
