"""What the pipeline asks of a fusion engine, whichever it is and wherever it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from shared.arrays import ImageBgr
from shared.faces import TrackedFace
from shared.frames import Patch
from shared.mesh.source import SourcePhoto

PreparedT = TypeVar("PreparedT")


@dataclass(frozen=True, slots=True)
class EngineCard:
    """What an engine declares about itself.

    Attributes:
        name: As users name it.
        version: Changes whenever the same input gives another picture; part of cache keys.
        works_on: ``frame`` (renders straight into the frame) or ``crop`` (an aligned crop in and out).
        source_needs: What of the source must be at hand: ``photos`` or ``embedding``.
        precision: Arithmetic of the heavy part.
        licence: SPDX identifier of its weights or data.
    """

    name: str
    version: str
    works_on: Literal["frame", "crop"]
    source_needs: Literal["photos", "embedding"]
    precision: Literal["uint8", "fp32", "fp16", "int8"]
    licence: str


class FusionTrack(Protocol):
    """Fuses one source onto one track of a stream; owns what must last from frame to frame."""

    def fuse(self, image: ImageBgr, face: TrackedFace) -> Patch | None:
        """The fused part of one frame, or None where this face cannot be fused now.

        Args:
            image: The frame, shape ``(h, w, 3)``, uint8 BGR; read only.
            face: The track's face in it.
        """


class Engine(Protocol[PreparedT]):
    """Makes prepared sources and tracks."""

    @property
    def card(self) -> EngineCard:
        """What it is."""

    def prepare(self, photos: Sequence[SourcePhoto]) -> PreparedT:
        """Everything that is constant for a source person."""

    def pack(self, source: PreparedT) -> bytes:
        """A prepared source as bytes, to be kept; good for this engine and version only."""

    def unpack(self, data: bytes) -> PreparedT:
        """Back from ``pack``.

        Raises:
            ValueError: If it is something else.
        """

    def open_track(self, source: PreparedT) -> FusionTrack:
        """Begin a track; the first frame must be marked ``restarted``."""
