"""Who was seen in a job: one entry for each person, whatever the number of files they are in."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edge.identity import face_quality
from shared.arrays import Embedding, ImageBgr
from shared.counters import CacheCounters
from shared.faces import TrackedFace
from shared.mesh.shape import head_pose
from shared.mesh.topology import inter_ocular

if TYPE_CHECKING:
    from edge.memory import FaceMemory, Known

_SAME_PERSON = 0.5


@dataclass(frozen=True, slots=True)
class FaceView:
    """Where and how a face was seen.

    Attributes:
        source: The file, for rules that go by it.
        box: The face as shares of the picture, ``x_min, y_min, x_max, y_max``, for rules that go by it.
        quality: How good the view is, 0..1.
        yaw_deg: Turn to the side.
        pitch_deg: Nod.
    """

    source: str = ""
    box: tuple[float, float, float, float] | None = None
    quality: float = 1.0
    yaw_deg: float | None = None
    pitch_deg: float | None = None


def view_of(face: TrackedFace, image: ImageBgr, source: str) -> FaceView:
    """The view that a frame gives of a face.

    Args:
        face: The face.
        image: The frame, shape ``(h, w, 3)``.
        source: The file it comes from.
    """
    pose = head_pose(face.landmarks)
    quality = face_quality(inter_ocular(face.landmarks), face.presence, pose.yaw_deg)
    height, width = image.shape[:2]
    x0, y0, x1, y1 = (float(v) for v in face.xyxy / np.array([width, height, width, height], np.float32))
    return FaceView(source, (x0, y0, x1, y1), min(max(quality, 0.0), 1.0), pose.yaw_deg, pose.pitch_deg)


class PeopleIndex:
    """The people of a job; those whom the face memory knows are recognised across jobs.

    Args:
        counters: Counts the level ``identity``: a hit is somebody who was seen or known before.
        memory: The face memory, if there is one.
    """

    def __init__(self, counters: CacheCounters, memory: "FaceMemory | None" = None) -> None:
        self._counters = counters
        self._memory = memory
        self._strangers: list[Embedding] = []
        self._stranger_numbers: list[int] = []
        self._known_numbers: dict[bytes, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def remembered(self) -> int:
        """How many of them the face memory knows."""
        return len(self._known_numbers)

    def see(self, embedding: Embedding, view: FaceView | None = None) -> int:
        """Note a person.

        Args:
            embedding: Of the face, L2-normalised.
            view: Where and how the face was seen, for the memory.

        Returns:
            The person's number in this job, from 0.
        """
        known = self._recognised(embedding, view or FaceView())
        if known is not None:
            self._counters.hit("identity")
            if known.person_id not in self._known_numbers:
                self._known_numbers[known.person_id] = self._next_number()
            return self._known_numbers[known.person_id]
        return self._see_stranger(embedding)

    def forget(self, person_ids: Collection[bytes]) -> set[int]:
        """Drop people whom the memory has forgotten; gives the numbers they had."""
        gone = [self._known_numbers.pop(who, None) for who in person_ids]
        return {number for number in gone if number is not None}

    def _next_number(self) -> int:
        self._count += 1
        return self._count - 1

    def _recognised(self, embedding: Embedding, view: FaceView) -> "Known | None":
        if self._memory is None:
            return None
        known = self._memory.recognise(
            embedding,
            quality=view.quality,
            source=view.source,
            box=view.box,
            yaw_deg=view.yaw_deg,
            pitch_deg=view.pitch_deg,
        )
        if known is not None:
            self._memory.touch(known.person_id)
        return known

    def _see_stranger(self, embedding: Embedding) -> int:
        if self._strangers:
            alike = np.stack(self._strangers) @ embedding
            best = int(alike.argmax())
            if alike[best] >= _SAME_PERSON:
                self._counters.hit("identity")
                return self._stranger_numbers[best]
        self._counters.miss("identity")
        self._stranger_numbers.append(self._next_number())
        self._strangers.append(embedding)
        return self._stranger_numbers[-1]
