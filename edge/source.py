"""Source photos: finding the one face, saying what is wrong with it, and making of it what an engine needs.

The best lever on the quality of a fusion is the source photo, so every photo is judged, the user is told what
would make a better one, and of several the best leads.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import cv2
import numpy as np

from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.landmarks import five_points
from edge.progress import EventSink, SourcePrepared
from edge.stills import read_still
from shared.arrays import Embedding, ImageBgr
from shared.counters import CacheCounters
from shared.engines import Engine, EngineCard
from shared.errors import InputError, SourceError
from shared.faces import TrackedFace
from shared.mesh.features import closing, mouth_openness
from shared.mesh.glasses import GlassesModel
from shared.mesh.shape import head_pose
from shared.mesh.source import SourcePhoto
from shared.mesh.topology import FACE_POINTS, LID_POINTS_LEFT, LID_POINTS_RIGHT, inter_ocular, with_ring
from shared.mesh.uvgrid import GRID, face_regions, unwrap, uv_grid

if TYPE_CHECKING:
    from edge.memory import FaceMemory

PreparedT = TypeVar("PreparedT")
Role = Literal["source", "reference"]

BACKGROUND_FACE = 0.25
"""Faces narrower than this part of the largest are passers-by, no choice to ask for."""
_TURNED_DEG, _TOO_TURNED_DEG = 25.0, 50.0
_NODDING_DEG = 25.0
_SMALL_PX, _TOO_SMALL_PX = 60.0, 18.0
"""Inter-ocular distance."""
_DARK, _BRIGHT = 55.0, 225.0
_LOPSIDED = 0.30
"""Difference of the two cheeks' lightness over their mean."""
_OPEN_MOUTH = 0.25
SAME_PERSON = 0.30
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
            if float(face.embedding @ usable[0].embedding) < SAME_PERSON:
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
    near = [f for f in faces if float(f.xyxy[2] - f.xyxy[0]) >= BACKGROUND_FACE * largest]
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


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Who is fused.

    Attributes:
        photos: Photos of one person; empty if the face memory knows them.
        which: Number of the face from the left, where a photo shows several.
        person: Name or id in the face memory, instead of photos.
        remember_as: Name to enrol the person under, or None.
    """

    photos: tuple[Path, ...]
    which: int | None = None
    person: str | None = None
    remember_as: str | None = None


def key_of_person(card: EngineCard, person_id: bytes) -> str:
    """Under which a source is kept that is asked for by the person's name."""
    return f"fuse/{card.name}@{card.version}/{person_id.hex()}/any/default"


class SourceStore(Generic[PreparedT]):
    """Prepared sources of one job: each person is prepared once, whatever the number of inputs.

    With a face memory, what was prepared of people it may keep is found again by later jobs.

    Args:
        reader: Finds the faces.
        engine: Prepares them.
        counters: Counts the level ``artefacts``.
        events: Told about every photo.
        caches: False prepares anew for every input, and leaves the memory alone.
        memory: The face memory, if there is one.
    """

    def __init__(
        self,
        reader: SourceReader,
        engine: Engine[PreparedT],
        counters: CacheCounters,
        events: EventSink,
        *,
        caches: bool = True,
        memory: "FaceMemory | None" = None,
    ) -> None:
        self._memory = memory if caches else None
        self._reader = reader
        self._engine = engine
        self._counters = counters
        self._events = events
        self._caches = caches
        self._prepared: dict[SourceRequest, PreparedT] = {}
        self._told: set[Path] = set()
        self._owners: dict[SourceRequest, bytes] = {}

    def forget(self, person_ids: Collection[bytes]) -> bool:
        """Drop people whom the memory has forgotten; says whether one of them is a source of this job."""
        gone = [request for request, owner in self._owners.items() if owner in person_ids]
        for request in gone:
            del self._owners[request]
            self._prepared.pop(request, None)
        return bool(gone)

    def prepared(self, choice: SourceRequest) -> PreparedT:
        """A person, ready to be fused.

        Raises:
            SourceError: If they cannot serve.
            PolicyError: If they shall be remembered and a rule forbids it.
        """
        if self._caches and choice in self._prepared:
            self._counters.hit("artefacts")
            return self._prepared[choice]
        key = None if choice.person or self._memory is None else self._key(choice)
        made = self._recalled(choice, key)
        if made is None:
            self._counters.miss("artefacts")
            made = self._made(choice, key)
        else:
            self._counters.hit("artefacts")
        self._prepared[choice] = made
        return made

    def _key(self, choice: SourceRequest) -> str:
        """Under which the person's artefact is kept: the engine and the very bytes of the photos."""
        card = self._engine.card
        digest = hashlib.sha256(f"{choice.which}".encode())
        for photo in choice.photos:
            try:
                digest.update(hashlib.sha256(photo.read_bytes()).digest())
            except OSError as err:
                raise SourceError(f"source {photo}: cannot be read ({err.strerror})", path=photo) from err
        return f"fuse/{card.name}@{card.version}/{digest.hexdigest()}/any/default"

    def _recalled(self, choice: SourceRequest, key: str | None) -> PreparedT | None:
        """What the memory kept of the person."""
        if self._memory is None:
            if choice.person:
                raise SourceError(f"source @{choice.person}: the face memory is switched off for this job")
            return None
        if choice.person is not None:
            key = self._key_of_person(choice)
        kept = self._memory.get_artefact(key) if key is not None and not choice.remember_as else None
        if kept is None:
            if choice.person is not None:
                raise SourceError(
                    f"source @{choice.person}: is known, but no source was kept of them; "
                    "use a photo and --remember once"
                )
            return None
        return self._engine.unpack(kept)

    def _key_of_person(self, choice: SourceRequest) -> str:
        assert self._memory is not None
        assert choice.person is not None
        person = self._memory.person(choice.person)
        if person is None:
            raise SourceError(
                f"source @{choice.person}: nobody of that name is remembered; see `lethe memory list`"
            )
        self._owners[choice] = person.person_id
        return key_of_person(self._engine.card, person.person_id)

    def _made(self, choice: SourceRequest, key: str | None) -> PreparedT:
        faces = self._reader.read_all(choice.photos, choice.which)
        made = self._engine.prepare([SourcePhoto(f.image, f.face.landmarks) for f in faces])
        for face in faces:
            if face.path not in self._told:
                self._told.add(face.path)
                self._events(SourcePrepared(face.path, face.judgement.advice))
        if self._memory is not None and key is not None:
            self._keep(self._memory, choice, faces, key, made)
        return made

    def _keep(
        self,
        memory: "FaceMemory",
        choice: SourceRequest,
        faces: Sequence[SourceFace],
        key: str,
        made: PreparedT,
    ) -> None:
        """Enrol the person if asked to, and keep what was prepared of people the memory knows."""
        best = faces[0]
        source = str(best.path)
        if choice.remember_as is not None:
            for face in faces:
                pose = head_pose(face.face.landmarks)
                person = memory.remember(
                    choice.remember_as,
                    face.embedding,
                    yaw_deg=pose.yaw_deg,
                    pitch_deg=pose.pitch_deg,
                    quality=face.judgement.score,
                    source=source,
                )
        else:
            known = memory.recognise(best.embedding, quality=best.judgement.score, source=source)
            if known is None:
                return
            person = known.person_id
        packed = self._engine.pack(made)
        memory.put_artefact(key, [person], packed, source=source)
        if choice.remember_as is not None:
            memory.put_artefact(key_of_person(self._engine.card, person), [person], packed, source=source)
