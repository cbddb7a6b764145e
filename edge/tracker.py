"""Which face of this frame is which face of the last one. Plain numbers in and out.

Every track has a Kalman filter with constant velocity on the centre and the size of its box. Association is
one-to-one and optimal over the overlap of boxes, first for confident detections, then, for what is left of
the tracks, for doubtful ones (ByteTrack, Zhang 2022). A track that is not seen is lost, not gone: for three
seconds its place is predicted and a face that looks like it gets its id back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from shared.arrays import BoxesXyxy, BoxXyxy
from shared.geometry import box_iou

Likeness = Callable[[int, int], float | None]
"""Cosine between a track (by id) and a detection (by index); None where one has no identity yet."""


@dataclass(frozen=True, slots=True)
class TrackerConfig:
    """How tracks are kept.

    Attributes:
        high_confidence: From here a detection is associated first and may begin a track, in ``[0, 1]``.
        low_confidence: From here a detection may continue a track, in ``[0, 1]``.
        min_iou: Least overlap with a track's predicted box.
        lost_s: How long a lost track waits to be found again, seconds.
        same_cosine: From this likeness a new detection is a lost track's face, wherever it is.
        other_cosine: Below this likeness a detection is not a lost track's face, even in its place.
    """

    high_confidence: float = 0.7
    low_confidence: float = 0.5
    min_iou: float = 0.2
    lost_s: float = 3.0
    same_cosine: float = 0.5
    other_cosine: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.low_confidence <= self.high_confidence <= 1:
            raise ValueError(
                "low_confidence and high_confidence must lie between 0 and 1 in this order, not "
                f"{self.low_confidence} and {self.high_confidence}"
            )
        if self.lost_s < 0:
            raise ValueError(f"lost_s must not be negative, not {self.lost_s}")


class Link(Enum):
    """How a detection came by its track."""

    FOLLOWED = "followed"
    FOUND_AGAIN = "found again"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Association:
    """The track of one detection.

    Attributes:
        track_id: Unique, never used again.
        link: How the detection came by it.
    """

    track_id: int
    link: Link


class _Motion:
    """Constant-velocity Kalman filter on ``(x, y, w, h)``.

    All four have the same noise when it is counted in face sizes, so one 2x2 covariance serves them all.
    """

    # In face sizes: how well a box is measured, and how hard a head accelerates (per second squared).
    _MEASURED = 0.04
    _ACCELERATION = 8.0
    # What is not seen slows down: else a lost track flies out of the picture.
    _LOST_DECAY_S = 0.4

    def __init__(self, box: BoxXyxy) -> None:
        self.position = _centre_size(box)
        self.velocity = np.zeros(4)
        self._p = np.array([[self._MEASURED**2, 0], [0, 2.0**2]])

    def advance(self, step_s: float, *, lost: bool) -> None:
        self.position = self.position + self.velocity * step_s
        self.position[2:] = np.maximum(self.position[2:], 1.0)
        if lost:
            self.velocity = self.velocity * np.exp(-step_s / self._LOST_DECAY_S)
        f = np.array([[1, step_s], [0, 1]])
        g = np.array([step_s**2 / 2, step_s]) * self._ACCELERATION
        self._p = f @ self._p @ f.T + np.outer(g, g)

    def correct(self, box: BoxXyxy) -> None:
        gain = self._p[:, 0] / (self._p[0, 0] + self._MEASURED**2)
        error = _centre_size(box) - self.position
        self.position = self.position + gain[0] * error
        self.velocity = self.velocity + gain[1] * error
        self._p = self._p - np.outer(gain, self._p[0])

    def box(self) -> BoxXyxy:
        centre, half = self.position[:2], self.position[2:] / 2
        return np.concatenate([centre - half, centre + half]).astype(np.float32)


def _centre_size(box: BoxXyxy) -> npt.NDArray[np.float64]:
    lower, upper = box[:2].astype(np.float64), box[2:].astype(np.float64)
    return np.concatenate([(lower + upper) / 2, np.maximum(upper - lower, 1.0)])


class Track:
    """One face followed over frames.

    Attributes:
        track_id: Unique, never used again.
        confidence: Score of the detection that last confirmed it.
        seen_s: When it was last seen.
        lost: It is not seen at present.
        placed: Its predicted place means something; false after a cut.
    """

    def __init__(self, track_id: int, box: BoxXyxy, confidence: float, time_s: float) -> None:
        self.track_id = track_id
        self.confidence = confidence
        self.seen_s = time_s
        self.lost = False
        self.placed = True
        self._motion = _Motion(box)

    @property
    def xyxy(self) -> BoxXyxy:
        """Where it is, or is thought to be: shape ``(4,)``, frame pixels."""
        return self._motion.box()

    def advance(self, step_s: float) -> None:
        """Predict its place ``step_s`` later."""
        self._motion.advance(step_s, lost=self.lost)

    def see(self, box: BoxXyxy, time_s: float) -> None:
        """It was measured at ``box``; one that was lost starts with a motion of its own."""
        if self.lost:
            self._motion = _Motion(box)
        else:
            self._motion.correct(box)
        self.seen_s, self.lost, self.placed = time_s, False, True


class Tracker:
    """All tracks of one stream.

    For each frame call ``advance``, then ``observe`` for the tracks whose landmarks were followed, then
    ``associate`` if the detector ran.

    Args:
        config: How tracks are kept.
    """

    def __init__(self, config: TrackerConfig | None = None) -> None:
        self.config = config or TrackerConfig()
        self._tracks: dict[int, Track] = {}
        self._next_id = 0
        self._time_s: float | None = None

    @property
    def active(self) -> tuple[Track, ...]:
        """Tracks that are seen, oldest first."""
        return tuple(t for t in self._tracks.values() if not t.lost)

    @property
    def lost(self) -> tuple[Track, ...]:
        """Tracks that wait to be found again, oldest first."""
        return tuple(t for t in self._tracks.values() if t.lost)

    def advance(self, time_s: float) -> tuple[int, ...]:
        """Go on to the frame at ``time_s``.

        Args:
            time_s: Presentation time, seconds. Where it does not rise, tracks stay where they are.

        Returns:
            Ids of lost tracks that were now given up.
        """
        step_s = 0.0 if self._time_s is None else max(0.0, time_s - self._time_s)
        if self._time_s is not None and time_s < self._time_s:
            # A seek backwards: what was seen later must not count as long gone, or for ever fresh.
            for track in self._tracks.values():
                track.seen_s = min(track.seen_s, time_s)
        self._time_s = time_s
        for track in self._tracks.values():
            track.advance(step_s)
        given_up = tuple(t.track_id for t in self.lost if time_s - t.seen_s > self.config.lost_s)
        for track_id in given_up:
            del self._tracks[track_id]
        return given_up

    def observe(self, track_id: int, box: BoxXyxy) -> None:
        """A track was measured at ``box`` in this frame."""
        self._tracks[track_id].see(box, self._now)

    def lose(self, track_id: int) -> None:
        """A track is no longer seen."""
        self._tracks[track_id].lost = True

    def displace(self, track_id: int) -> None:
        """A track has slipped onto another face: it is lost, and where it was thought to be means nothing."""
        track = self._tracks[track_id]
        track.lost, track.placed = True, False

    def forget(self, track_id: int) -> None:
        """A track was no face, or is one with another."""
        del self._tracks[track_id]

    def cut(self) -> None:
        """The scene changed: every track is lost and its place means nothing."""
        for track_id in self._tracks:
            self.displace(track_id)

    def associate(
        self, xyxy: BoxesXyxy, confidence: npt.NDArray[np.float32], likeness: Likeness
    ) -> tuple[Association | None, ...]:
        """Give detections their tracks; tracks not seen in this frame by anyone become lost.

        Args:
            xyxy: Boxes, shape ``(n, 4)``, frame pixels.
            confidence: Shape ``(n,)``, in ``[0, 1]``.
            likeness: Asked only where place alone does not decide.

        Returns:
            For each detection its association; None for one too doubtful to begin a track.
        """
        found: dict[int, Association] = {}
        for least, most in ((self.config.high_confidence, np.inf), (self.config.low_confidence, None)):
            upper = self.config.high_confidence if most is None else most
            rows = [i for i, c in enumerate(confidence) if least <= c < upper and i not in found]
            self._match_by_place(xyxy, confidence, rows, found, likeness)
        sure = [i for i, c in enumerate(confidence) if c >= self.config.high_confidence]
        self._match_by_likeness(xyxy, confidence, [i for i in sure if i not in found], found, likeness)
        for i in sure:
            if i not in found:
                found[i] = self._begin(xyxy[i], float(confidence[i]))
        for track in self._tracks.values():
            track.lost = track.lost or track.seen_s < self._now
        return tuple(found.get(i) for i in range(len(xyxy)))

    @property
    def _now(self) -> float:
        if self._time_s is None:
            raise ValueError("advance() must come before the first observation")
        return self._time_s

    def _match_by_place(
        self,
        xyxy: BoxesXyxy,
        confidence: npt.NDArray[np.float32],
        rows: Sequence[int],
        found: dict[int, Association],
        likeness: Likeness,
    ) -> None:
        taken = {a.track_id for a in found.values()}
        tracks = [t for t in self._tracks.values() if t.placed and t.track_id not in taken]
        if not rows or not tracks:
            return
        overlap = box_iou(xyxy[list(rows)], np.stack([t.xyxy for t in tracks]))
        overlap[overlap < self.config.min_iou] = 0
        for r, c in zip(*np.nonzero(overlap), strict=True):
            if tracks[c].lost and not self._may_be(likeness(tracks[c].track_id, rows[r])):
                overlap[r, c] = 0
        for r, c in best_assignment(overlap):
            self._link(tracks[c], rows[r], xyxy, confidence, found)

    def _may_be(self, cosine: float | None) -> bool:
        return cosine is None or cosine >= self.config.other_cosine

    def _match_by_likeness(
        self,
        xyxy: BoxesXyxy,
        confidence: npt.NDArray[np.float32],
        rows: Sequence[int],
        found: dict[int, Association],
        likeness: Likeness,
    ) -> None:
        taken = {a.track_id for a in found.values()}
        tracks = [t for t in self.lost if t.track_id not in taken]
        if not rows or not tracks:
            return
        cosine = np.array([[likeness(t.track_id, i) or 0.0 for t in tracks] for i in rows], np.float32)
        cosine[cosine < self.config.same_cosine] = 0
        for r, c in best_assignment(cosine):
            self._link(tracks[c], rows[r], xyxy, confidence, found)

    def _link(
        self,
        track: Track,
        row: int,
        xyxy: BoxesXyxy,
        confidence: npt.NDArray[np.float32],
        found: dict[int, Association],
    ) -> None:
        found[row] = Association(track.track_id, Link.FOUND_AGAIN if track.lost else Link.FOLLOWED)
        # Landmarks measured in this frame are better than the detector's box.
        if track.lost or track.seen_s < self._now:
            track.see(xyxy[row], self._now)
        track.confidence = float(confidence[row])

    def _begin(self, box: BoxXyxy, confidence: float) -> Association:
        track = Track(self._next_id, box, confidence, self._now)
        self._next_id += 1
        self._tracks[track.track_id] = track
        return Association(track.track_id, Link.NEW)


def best_assignment(gain: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """One-to-one pairs of rows and columns with the greatest sum of gains; pairs without gain are left out.

    The Hungarian method with potentials (Kuhn 1955, Munkres 1957), in O(rows^2 * columns).

    Args:
        gain: Shape ``(rows, columns)``, not negative.
    """
    rows, columns = gain.shape
    if rows > columns:
        return sorted((r, c) for c, r in best_assignment(gain.T))
    cost = -gain.astype(np.float64)
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of = np.zeros(columns + 1, np.intp)  # 1-based; 0 = free, and column 0 holds the row to place
    for row in range(1, rows + 1):
        row_of[0] = row
        _place_row(cost, row_price, column_price, row_of)
    pairs = ((int(row_of[c]) - 1, c - 1) for c in range(1, columns + 1) if row_of[c])
    return sorted((r, c) for r, c in pairs if gain[r, c] > 0)


def _place_row(
    cost: npt.NDArray[np.float64],
    row_price: npt.NDArray[np.float64],
    column_price: npt.NDArray[np.float64],
    row_of: npt.NDArray[np.intp],
) -> None:
    """Find the cheapest chain of moves that gives row ``row_of[0]`` a column (Dijkstra on reduced costs)."""
    columns = cost.shape[1]
    cheapest = np.full(columns + 1, np.inf)
    came_from = np.zeros(columns + 1, np.intp)
    done = np.zeros(columns + 1, bool)
    here = 0
    while row_of[here] != 0:
        done[here] = True
        row = row_of[here]
        reduced = cost[row - 1] - row_price[row] - column_price[1:]
        better = ~done[1:] & (reduced < cheapest[1:])
        cheapest[1:][better] = reduced[better]
        came_from[1:][better] = here
        following = int(np.argmin(np.where(done[1:], np.inf, cheapest[1:]))) + 1
        step = cheapest[following]
        row_price[row_of[done]] += step
        column_price[done] -= step
        cheapest[~done] -= step
        here = following
    while here:
        row_of[here] = row_of[came_from[here]]
        here = came_from[here]
