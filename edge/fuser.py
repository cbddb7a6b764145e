"""Fusing all chosen faces of a frame: one engine track for each face and source."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from shared.engines import Engine, FusionTrack
from shared.faces import TrackedFace
from shared.frames import Frame, FusedFrame, Patch
from shared.timing import StageClock

PreparedT = TypeVar("PreparedT")

_FORGET_AFTER_S = 10.0
"""A track not fused for so long takes its caches with it."""


class FrameFuser(Generic[PreparedT]):
    """Fuses the faces of one stream.

    Args:
        engine: Does the work.
        sources: Prepared sources, in the order of ``TrackedFace.pair``.
        clock: Times the stage ``fuse``.
    """

    def __init__(self, engine: Engine[PreparedT], sources: Sequence[PreparedT], clock: StageClock) -> None:
        self._engine = engine
        self._sources = tuple(sources)
        self._clock = clock
        self._tracks: dict[tuple[int, int], FusionTrack] = {}
        self._last_seen_s: dict[tuple[int, int], float] = {}

    def fuse(self, frame: Frame, faces: Sequence[TrackedFace]) -> FusedFrame:
        """Write the fused faces into the frame's working copy."""
        self._forget(frame.time_s, faces)
        chosen = [face for face in faces if face.pair is not None]
        if not chosen:
            return FusedFrame(frame)
        with self._clock.stage("fuse", frame.index):
            # A nearer face is larger and hides the others: it comes last.
            chosen.sort(key=lambda face: float(face.xyxy[2] - face.xyxy[0]))
            patches = [patch for face in chosen if (patch := self._fuse_one(frame, face)) is not None]
        return FusedFrame(frame, tuple(patches))

    def _fuse_one(self, frame: Frame, face: TrackedFace) -> Patch | None:
        assert face.pair is not None
        key = (face.track_id, face.pair)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = self._engine.open_track(self._sources[face.pair])
        self._last_seen_s[key] = frame.time_s
        patch = track.fuse(frame.image, face)
        if patch is not None:
            height, width = patch.image.shape[:2]
            frame.image[patch.y : patch.y + height, patch.x : patch.x + width] = patch.image
        return patch

    def _forget(self, now_s: float, faces: Sequence[TrackedFace]) -> None:
        """Drop what is known of tracks that begin anew, chosen or not, and of those not fused for long."""
        anew = {face.track_id for face in faces if face.restarted}
        gone = [
            key
            for key, seen_s in self._last_seen_s.items()
            if key[0] in anew or now_s - seen_s > _FORGET_AFTER_S
        ]
        for key in gone:
            del self._tracks[key], self._last_seen_s[key]
