"""Reads photos for the memory: whose faces they show, how turned, how well. The pictures end here."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge.analyser import AnalyserConfig, FaceAnalyser
from edge.detector import DetectorConfig
from edge.embedder import MobileFaceNet
from edge.identity import face_quality
from edge.landmarks import five_points
from edge.media import list_inputs, probe_kind
from edge.memory.clusters import cluster_faces
from edge.memory.people import View
from edge.source import BACKGROUND_FACE, SAME_PERSON, SourceReader, judge
from edge.stills import read_still
from shared.arrays import Embedding
from shared.errors import InputError, SourceError
from shared.mesh.shape import head_pose
from shared.mesh.source import SourcePhoto
from shared.mesh.topology import inter_ocular
from shared.ort import RuntimeConfig, SessionPool

_MOST_SOURCES = 3
"""One good frontal photo beats a pile: so many are kept of a person for fusing."""
_FRONT_DEG, _LEVEL_DEG = 15.0, 12.0


@dataclass(frozen=True, slots=True, eq=False)
class PhotoFace:
    """What the memory may know of a face in a photo; no pixel of it.

    Attributes:
        path: The photo.
        number: Which of its faces, from the left, from 1.
        embedding: Identity vector of length 1.
        yaw_deg: Turn to the side, positive where the nose points to the right of the picture.
        pitch_deg: Nod, positive where the nose points up.
        quality: How well it shows who it is, 0..1.
        refusal: Why it cannot serve to know somebody by, or None.
    """

    path: Path
    number: int
    embedding: Embedding
    yaw_deg: float
    pitch_deg: float
    quality: float
    refusal: str | None

    @property
    def view(self) -> View:
        """As the memory takes it."""
        return View(self.embedding, self.yaw_deg, self.pitch_deg, self.quality)

    @property
    def frontality(self) -> float:
        """How good a first impression it makes: level, frontal and clear faces first."""
        turned = max(abs(self.yaw_deg) / _FRONT_DEG, abs(self.pitch_deg) / _LEVEL_DEG, 1.0)
        return self.quality / turned


class PhotoReader:
    """Finds the faces of photos. Not for several threads at once.

    Args:
        runtime: How networks are run.
        detection: What counts as a face.
    """

    def __init__(self, runtime: RuntimeConfig | None = None, detection: DetectorConfig | None = None) -> None:
        sessions = SessionPool(runtime or RuntimeConfig())
        self._finder = FaceAnalyser(sessions, AnalyserConfig(detector=detection or DetectorConfig()))
        self._embedder = MobileFaceNet(sessions)

    def faces(self, path: Path) -> list[PhotoFace]:
        """All faces of a photo but passers-by, from left to right.

        Raises:
            InputError: If it cannot be read.
        """
        frame = read_still(path).frame
        found = sorted(self._finder.analyse_still(frame), key=lambda f: float(f.xyxy[0] + f.xyxy[2]))
        largest = max((float(f.xyxy[2] - f.xyxy[0]) for f in found), default=0.0)
        faces = []
        for number, face in enumerate(found, start=1):
            if float(face.xyxy[2] - face.xyxy[0]) < BACKGROUND_FACE * largest:
                continue
            pose = head_pose(face.landmarks)
            embedding = self._embedder.embed(frame.image, five_points(face.landmarks))
            quality = face_quality(inter_ocular(face.landmarks), face.presence, pose.yaw_deg)
            refusal = judge(frame.image, face).refusal
            faces.append(PhotoFace(path, number, embedding, pose.yaw_deg, pose.pitch_deg, quality, refusal))
        return faces

    def source_photos(self, faces: Sequence[PhotoFace]) -> list[SourcePhoto]:
        """The best of the photos once more, with their pixels, as a fusion engine takes them.

        Args:
            faces: All of one person, as this reader found them.

        Raises:
            SourceError: If a photo can no longer be read as it was.
        """
        best = sorted(faces, key=lambda face: -face.frontality)[:_MOST_SOURCES]
        reader = SourceReader(self._finder, self._embedder)
        again = [reader.read(face.path, face.number) for face in best]
        return [SourcePhoto(each.image, each.face.landmarks) for each in again]

    def face(self, path: Path, number: int | None = None) -> PhotoFace:
        """The one face of a photo.

        Args:
            path: The photo.
            number: Which, from the left, from 1, where it shows several.

        Raises:
            SourceError: If there is none, several and no choice, or one that cannot serve.
        """
        try:
            faces = self.faces(path)
        except InputError as err:
            raise SourceError(f"photo {path}: {err.reason}", path=path) from err
        if not faces:
            raise SourceError(f"photo {path}: no face found; choose one that shows a face clearly", path=path)
        if number is not None:
            faces = [face for face in faces if face.number == number]
            if not faces:
                raise SourceError(f"photo {path}: --face {number}, but there is no such face", path=path)
        if len(faces) > 1:
            raise SourceError(
                f"photo {path}: shows {len(faces)} faces; say which with --face N, counted from the left, "
                "or crop the photo",
                path=path,
            )
        if faces[0].refusal is not None:
            raise SourceError(f"photo {path}: {faces[0].refusal}", path=path)
        return faces[0]

    def one_person(self, paths: Sequence[Path], number: int | None = None) -> list[PhotoFace]:
        """The faces of several photos of one person, the best first impression first.

        Raises:
            SourceError: If a photo cannot serve or they show different people.
        """
        faces = sorted((self.face(path, number) for path in paths), key=lambda f: -f.frontality)
        for face in faces[1:]:
            if float(face.embedding @ faces[0].embedding) < SAME_PERSON:
                raise SourceError(
                    f"photo {face.path}: shows another person than {faces[0].path}; one at a time",
                    path=face.path,
                )
        return faces


@dataclass(frozen=True, slots=True, eq=False)
class FoundPerson:
    """Somebody whom the photos of a folder show.

    Attributes:
        faces: Their faces, best first impression first.
        proposal: The folder all of their photos lie in, if it is a folder of their own; else None.
    """

    faces: tuple[PhotoFace, ...]
    proposal: str | None

    @property
    def photos(self) -> tuple[Path, ...]:
        """The photos they are on."""
        return tuple(dict.fromkeys(face.path for face in self.faces))


@dataclass(frozen=True, slots=True, eq=False)
class FoundPeople:
    """What the photos of a folder show.

    Attributes:
        people: Whoever is on them; the one with most faces first.
        unreadable: Photos that could not be read, with the reason.
        photos: How many photos were read.
    """

    people: tuple[FoundPerson, ...]
    unreadable: tuple[tuple[Path, str], ...]
    photos: int


def find_people(folder: Path, reader: PhotoReader) -> FoundPeople:
    """Group the faces of all photos of a folder by person.

    Raises:
        InputError: If the folder cannot be read or holds no picture.
    """
    faces: list[PhotoFace] = []
    photos: list[int] = []
    unreadable: list[tuple[Path, str]] = []
    read = 0
    for number, path in enumerate(list_inputs([folder])):
        try:
            if probe_kind(path) != "still":
                continue
            found = [face for face in reader.faces(path) if face.refusal is None]
        except InputError as err:
            unreadable.append((path, err.reason))
            continue
        read += 1
        faces += found
        photos += [number] * len(found)
    groups = cluster_faces([f.embedding for f in faces], photos, [f.quality for f in faces])
    people = tuple(_person([faces[i] for i in group], folder) for group in groups)
    return FoundPeople(people, tuple(unreadable), read)


def _person(faces: list[PhotoFace], folder: Path) -> FoundPerson:
    folders = {face.path.parent for face in faces}
    own = folders.pop() if len(folders) == 1 else folder
    return FoundPerson(tuple(sorted(faces, key=lambda f: -f.frontality)), own.name if own != folder else None)
