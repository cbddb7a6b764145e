"""Everything about the faces of one stream, frame by frame: detector, landmarks, tracks, identity, choice.

What a frame costs is the landmark network once for each face. The detector runs every few frames, when a
track is lost and after a cut; faces are embedded when their vote asks for it. With the caches off every
frame pays for all of it, with the same result.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edge.cuts import CutDetector
from edge.detector import DetectorConfig, FaceDetector
from edge.embedder import MobileFaceNet
from edge.identity import IdentityConfig, IdentityVote, Verdict, face_quality
from edge.landmarks import (
    FaceMesh,
    LandmarkSmoother,
    MeshFit,
    five_points,
)
from edge.selection import Candidate, Selector
from edge.tracker import Association, Link, Track, Tracker, TrackerConfig
from shared.arrays import BoxesXyxy, BoxXyxy, Embedding, ImageBgr, MeshLandmarks
from shared.counters import CacheCounters
from shared.faces import Detections, TrackedFace
from shared.frames import Frame
from shared.geometry import box_iou, box_of_points, fit_similarity, non_maximum_suppression, transform_points
from shared.mesh.shape import head_pose
from shared.mesh.topology import inter_ocular
from shared.ort import SessionPool
from shared.timing import StageClock

_logger = logging.getLogger(__name__)

# Presence logit from which a fit needs no second opinion; well below what clear faces have.
_SURE_PRESENCE = 8.0
# A detection that overlaps a followed face this much is of that face.
_SAME_FACE_IOU = 0.3
# Two fits whose points lie closer than this, in inter-ocular distances, are of one face.
_DOUBLE_DISTANCE = 0.35
# From this likeness two embeddings are of one person, below the other they are not.
_SAME_PERSON, _OTHER_PERSON = 0.5, 0.3
# Mean move of the points, beside shift, turn and scale, that one frame of one face does not explain, in
# inter-ocular distances: clips have 0.025 at the 99th percentile, two people seldom less than 0.04.
_RESHAPED = 0.04
# For so many frames after a loss or a cut the detector runs on each, then on every third.
_SEARCH_FRAMES = 15
# A track is lost at once when its presence is this far below the one it needs; one dip less deep is borne.
_DIP = 4.0
# After so many runs of the detector that do not confirm it, a track of doubtful presence is given up.
_UNCONFIRMED_RUNS = 3


@dataclass(frozen=True, slots=True)
class AnalyserConfig:
    """How a stream is analysed.

    Attributes:
        detect_every_n: Frames between runs of the detector while nothing is missing.
        points: Landmarks of a face: 478, or 468 for speed.
        caches: Use what the last frames told; off, every frame pays the full price.
        detector_px: Longest side of the detector's input; None chooses by the size of the picture.
        keep_presence: Presence logit below which a track is lost, at the second frame running.
        new_presence: Presence logit from which a good detection begins a track; a poor one needs more.
        still_presence: Presence logit from which a good detection in a photo is a face.
        detector: What counts as a detection.
        tracker: How tracks are kept.
        identity: How often faces are embedded.
    """

    detect_every_n: int = 10
    points: Literal[478, 468] = 478
    caches: bool = True
    detector_px: int | None = None
    keep_presence: float = 2.0
    new_presence: float = 5.0
    still_presence: float = 3.0
    detector: DetectorConfig = field(default_factory=DetectorConfig)
    tracker: TrackerConfig = field(default_factory=TrackerConfig)
    identity: IdentityConfig = field(default_factory=IdentityConfig)

    def __post_init__(self) -> None:
        if self.detect_every_n < 1:
            raise ValueError(f"detect_every_n must be at least 1, not {self.detect_every_n}")
        if self.detector_px is not None and self.detector_px < 32:
            raise ValueError(f"detector_px must be at least 32, not {self.detector_px}")


class _Refusals:
    """Detections of late that had no face in them: trying each again on every frame would cost too much.

    Profiles, backs of heads and things that look like faces to the detector stay where they are for long.
    """

    PAUSE_FRAMES = 5
    TURN_PAUSE_FRAMES = 30
    _SAME_BOX_IOU = 0.6

    def __init__(self) -> None:
        self._boxes: list[tuple[int, BoxXyxy]] = []

    def add(self, frame: int, box: BoxXyxy) -> None:
        """Nothing was found in ``box``."""
        self._boxes.append((frame, box))

    def hold(self, frame: int, box: BoxXyxy, pause: int) -> bool:
        """Whether nothing was found hereabouts within the last ``pause`` frames."""
        self._boxes = [(f, b) for f, b in self._boxes if frame - self.TURN_PAUSE_FRAMES < f <= frame]
        late = [b for f, b in self._boxes if f > frame - pause]
        return bool(late) and float(box_iou(box[None], np.stack(late)).max()) >= self._SAME_BOX_IOU


class _Face:
    """What is known of one track beside its motion."""

    def __init__(self, fit: MeshFit, identity: IdentityConfig) -> None:
        self.vote = IdentityVote(identity)
        self.smoother = LandmarkSmoother()
        self.confidence = 0.0
        self.restarted = True
        self.unconfirmed = 0
        self.dipped = False
        self.suspect = False
        self.last_index = -1
        self.fit = fit
        self.take(fit)

    def take(self, fit: MeshFit) -> None:
        """The landmarks of this frame."""
        # Sticks until the face has been embedded again.
        self.suspect = self.suspect or _reshaped(self.fit.landmarks, fit.landmarks)
        self.fit = fit
        self.yaw_deg = head_pose(fit.landmarks).yaw_deg
        self.quality = face_quality(inter_ocular(fit.landmarks), fit.presence, self.yaw_deg)

    def restart(self) -> None:
        """What was known over time holds no more."""
        self.restarted = True
        self.smoother.reset()


@dataclass(slots=True, eq=False)
class _Sighting:
    """A detection with its landmarks.

    Attributes:
        fit: Its landmarks.
        xyxy: Box round them, or that of the track it is of.
        confidence: The detector's score.
        standing: What the tracker takes for its score: landmarks are the better judge.
        track_id: Its track, where it is of a face that is followed already.
        embedding: Who it is, where somebody has asked.
    """

    fit: MeshFit
    xyxy: BoxXyxy
    confidence: float
    standing: float
    track_id: int | None = None
    embedding: Embedding | None = None


def _sighting(
    fit: MeshFit, confidence: float, standing: float = 1.0, embedding: Embedding | None = None
) -> _Sighting:
    return _Sighting(fit, fit.xyxy, confidence, standing, None, embedding)


class FaceAnalyser:
    """The state of one stream. Not for several threads at once; each stream has its own.

    Args:
        sessions: Where the networks come from.
        config: How to analyse.
        selector: Which source goes onto which face; by default the first onto every face.
        clock: Times the stages ``detect``, ``landmarks`` and ``identity``.
        counters: Counts hits and misses of the level ``track``.
    """

    def __init__(
        self,
        sessions: SessionPool,
        config: AnalyserConfig | None = None,
        *,
        selector: Selector | None = None,
        clock: StageClock | None = None,
        counters: CacheCounters | None = None,
    ) -> None:
        self.config = config or AnalyserConfig()
        self._clock = clock or StageClock()
        self._counters = counters or CacheCounters()
        self._selector = selector or Selector()
        self._detector = FaceDetector(sessions, self.config.detector)
        self._mesh = FaceMesh(sessions, self.config.points)
        self._embedder = MobileFaceNet(sessions)
        self._cuts = CutDetector()
        self._tracker = Tracker(self.config.tracker)
        self._faces: dict[int, _Face] = {}
        self._refusals = _Refusals()
        self._frames = 0
        self._search_until = 0  # frame count up to which the detector runs on every frame

    def embedding(self, track_id: int) -> Embedding | None:
        """The vote of a track that is seen or may be found again; None where there is none."""
        face = self._faces.get(track_id)
        return None if face is None else face.vote.embedding

    def forget_identity(self, track_id: int) -> None:
        """Drop what is known of who a track is; the face itself is still followed."""
        face = self._faces.get(track_id)
        if face is not None:
            face.vote = IdentityVote(self.config.identity)

    def analyse(self, frame: Frame) -> tuple[TrackedFace, ...]:
        """The faces of the next frame of the stream, by track id.

        Args:
            frame: Frames must come in the order they are shown.
        """
        image, index = frame.image, frame.index
        cut = self._begin_frame(frame)
        found = self._detect(image, index) if cut or not self.config.caches else None
        with self._clock.stage("landmarks", index):
            self._follow(image, found)
        if found is None and self._detector_due():
            found = self._detect(image, index)
        if found is not None:
            self._adopt(image, index, found)
        self._part_doubles(image, index)
        self._identify(image, index)
        self._frames += 1
        return self._report(frame)

    def analyse_still(self, frame: Frame) -> tuple[TrackedFace, ...]:
        """The faces of a photo, found more thoroughly than in a stream; ids count from 0, best face first.

        Args:
            frame: Neither uses nor changes the state of the stream.
        """
        image, index = frame.image, frame.index
        with self._clock.stage("detect", index):
            found = self._detector.detect_still(image)
        with self._clock.stage("landmarks", index):
            sightings = _without_doubles(self._still_sightings(image, found))
        selector = self._selector.fresh()
        if selector.needs_identity:
            for sighting in sightings:
                sighting.embedding = self._embed(image, index, sighting.fit)
        pairs = selector.select([Candidate(i, s.xyxy, s.embedding) for i, s in enumerate(sightings)])
        return tuple(
            TrackedFace(i, s.fit.landmarks, s.fit.presence, s.xyxy, s.confidence, True, pairs[i])
            for i, s in enumerate(sightings)
        )

    def _still_sightings(self, image: ImageBgr, found: Detections) -> list[_Sighting]:
        """Landmarks for the detections of a photo: every doubtful one is tried in all turns."""
        sightings = []
        for i in range(len(found)):
            fit = self._fit_upright(image, found, i)
            if fit.presence < _SURE_PRESENCE:
                fit = self._fit_turned(image, found, i, fit)
                third = self._mesh.from_previous(image, fit.landmarks)
                fit = max(fit, third, key=lambda f: f.presence)
            confidence = float(found.confidence[i])
            certain = fit.presence >= _needed(self.config.still_presence, confidence)
            if certain and _plausible(fit, None, image):
                sightings.append(_sighting(fit, confidence))
        return sightings

    # One frame, step by step

    def _begin_frame(self, frame: Frame) -> bool:
        """Bring the tracks to this frame's time; says whether a new scene begins."""
        given_up = self._tracker.advance(frame.time_s)
        for track_id in given_up:
            del self._faces[track_id]
        self._selector.forget(given_up)
        cut = self._cuts.is_cut(frame.image)
        if cut:
            _logger.debug("event=cut frame=%d", frame.index)
            self._tracker.cut()
            self._selector.scene_changed()
            for face in self._faces.values():
                face.restart()
            self._search_until = self._frames + 3
        return cut

    def _detect(self, image: ImageBgr, index: int) -> Detections:
        longest = max(image.shape[:2])
        px = self.config.detector_px or (320 if longest <= 720 else 480 if longest <= 1280 else 640)
        with self._clock.stage("detect", index):
            found = self._detector.detect(image, input_px=px)
            if not len(found) and not self._tracker.active and self._frames % _SEARCH_FRAMES == 0:
                found = self._detector.detect_turned(image, input_px=px)
        return found

    def _detector_due(self) -> bool:
        if self._frames % self.config.detect_every_n == 0 or self._frames < self._search_until:
            return True
        if not self._tracker.active:
            return True  # without a face a frame costs nothing else
        return bool(self._tracker.lost) and self._frames % 3 == 0

    def _follow(self, image: ImageBgr, found: Detections | None) -> None:
        """Landmarks of this frame for every track that is seen; those that slip away are lost."""
        for track in self._tracker.active:
            face = self._faces[track.track_id]
            fit = self._fit_cached(image, face) if self.config.caches else self._fit_anew(image, face, found)
            kept = self._holds(face, fit, image)
            if kept:
                face.take(fit)
                self._tracker.observe(track.track_id, fit.xyxy)
            else:
                self._tracker.lose(track.track_id)
                self._search_until = self._frames + _SEARCH_FRAMES
            if kept and self.config.caches:
                self._counters.hit("track")
            else:
                self._counters.miss("track")

    def _holds(self, face: _Face, fit: MeshFit, image: ImageBgr) -> bool:
        """Whether a track still has its face: one shallow dip of presence is borne."""
        dips = fit.presence < self.config.keep_presence
        least = self.config.keep_presence - (0.0 if face.dipped else _DIP)
        held = fit.presence >= least and _plausible(fit, face.fit.xyxy, image)
        face.dipped = dips and held
        if dips:
            # The detector may know better, in this frame still.
            self._search_until = max(self._search_until, self._frames + 1)
        return held

    def _fit_cached(self, image: ImageBgr, face: _Face) -> MeshFit:
        fit = self._mesh.from_previous(image, face.fit.landmarks)
        # The crop was laid where the face was; after a large move the face is off its middle.
        return self._mesh.from_previous(image, fit.landmarks) if _moved(face.fit.xyxy, fit.xyxy) else fit

    def _fit_anew(self, image: ImageBgr, face: _Face, found: Detections | None) -> MeshFit:
        """From the detector's box as if nothing were known; the last landmarks only where that fails."""
        previous = face.fit.landmarks
        if found is not None and len(found):
            overlap = box_iou(face.fit.xyxy[None], found.xyxy)[0]
            best = int(overlap.argmax())
            if overlap[best] >= _SAME_FACE_IOU:
                fit = self._fit_upright(image, found, best)
                if fit.presence >= _SURE_PRESENCE:
                    return fit
        fit = self._mesh.from_previous(image, previous)
        return self._mesh.from_previous(image, fit.landmarks)

    def _adopt(self, image: ImageBgr, index: int, found: Detections) -> None:
        """Hand the detections to the tracks; begin new ones and take up lost ones."""
        self._rescue(image, index, found)
        sightings, rest = self._explained(found)
        if rest:
            with self._clock.stage("landmarks", index):
                fresh = self._sightings(image, found, rest)
            sightings += _without_doubles(fresh)
        self._confirm(sightings)

        def likeness(track_id: int, i: int) -> float | None:
            sighting = sightings[i]
            if sighting.track_id is not None:
                return -1.0
            vote = self._faces[track_id].vote
            if vote.embedding is None:
                return None
            if sighting.embedding is None:
                sighting.embedding = self._embed(image, index, sighting.fit)
            return vote.likeness(sighting.embedding)

        links = self._tracker.associate(
            _boxes(sightings), np.array([s.standing for s in sightings], np.float32), likeness
        )
        for sighting, link in zip(sightings, links, strict=True):
            if link is not None and link.link is not Link.FOLLOWED:
                self._take_up(sighting, link, index)
            if link is not None:
                self._faces[link.track_id].confidence = sighting.confidence

    def _rescue(self, image: ImageBgr, index: int, found: Detections) -> None:
        """Fit tracks whose presence dips once more, from the detection that overlaps them."""
        dipped = [t for t in self._tracker.active if self._faces[t.track_id].dipped]
        if not dipped or not len(found):
            return
        with self._clock.stage("landmarks", index):
            for track in dipped:
                face = self._faces[track.track_id]
                overlap = box_iou(track.xyxy[None], found.xyxy)[0]
                if overlap.max() < self.config.tracker.min_iou:
                    continue
                fit = self._fit_upright(image, found, int(overlap.argmax()))
                if fit.presence > face.fit.presence and _plausible(fit, None, image):
                    face.take(fit)
                    face.dipped = fit.presence < self.config.keep_presence
                    self._tracker.observe(track.track_id, fit.xyxy)

    def _explained(self, found: Detections) -> tuple[list[_Sighting], list[int]]:
        """Detections of faces that are followed already, one each, and the indices of the others."""
        active = self._tracker.active
        if not active:
            return [], list(range(len(found)))
        overlap = box_iou(found.xyxy, np.stack([t.xyxy for t in active]))
        sightings: dict[int, _Sighting] = {}
        rest = []
        for i in range(len(found)):
            track = active[int(overlap[i].argmax())]
            if overlap[i].max() < _SAME_FACE_IOU:
                rest.append(i)
            elif track.track_id not in sightings:
                fit = self._faces[track.track_id].fit
                confidence = float(found.confidence[i])
                sightings[track.track_id] = _Sighting(fit, track.xyxy, confidence, 1.0, track.track_id)
        return list(sightings.values()), rest

    def _confirm(self, sightings: Sequence[_Sighting]) -> None:
        """Note which tracks the detector sees; give up doubtful ones it has not seen for long."""
        confirmed = {s.track_id for s in sightings}
        for track in self._tracker.active:
            face = self._faces[track.track_id]
            face.unconfirmed = 0 if track.track_id in confirmed else face.unconfirmed + 1
            if face.unconfirmed >= _UNCONFIRMED_RUNS and face.fit.presence < _SURE_PRESENCE:
                self._tracker.lose(track.track_id)

    def _sightings(self, image: ImageBgr, found: Detections, rows: Sequence[int]) -> list[_Sighting]:
        """Landmarks for the detections of a stream; what has no face in it is dropped."""
        sightings = []
        may_turn = True
        for i in rows:
            box = found.xyxy[i]
            if self._refused(box, _Refusals.PAUSE_FRAMES):
                continue
            fit = self._fit_upright(image, found, i)
            turned_lately = self._refused(box, _Refusals.TURN_PAUSE_FRAMES)
            if fit.presence < _SURE_PRESENCE and may_turn and not turned_lately:
                may_turn = False  # eight runs of the network: once a frame is enough
                fit = self._fit_turned(image, found, i, fit)
            if fit.presence < self.config.keep_presence or not _plausible(fit, None, image):
                self._refusals.add(self._frames, box)
                continue
            confidence = float(found.confidence[i])
            # A face for certain may begin a track, a doubtful one only carry one on.
            certain = fit.presence >= _needed(self.config.new_presence, confidence)
            standing = self.config.tracker.high_confidence if certain else self.config.tracker.low_confidence
            sightings.append(_sighting(fit, confidence, standing))
        return sightings

    def _refused(self, box: BoxXyxy, pause: int) -> bool:
        return self.config.caches and self._refusals.hold(self._frames, box, pause)

    def _fit_upright(self, image: ImageBgr, found: Detections, i: int) -> MeshFit:
        """Landmarks from a detection, refined once."""
        fit = self._mesh.from_detection(image, found.landmarks[i], found.xyxy[i])
        return self._mesh.from_previous(image, fit.landmarks)

    def _fit_turned(self, image: ImageBgr, found: Detections, i: int, upright: MeshFit) -> MeshFit:
        """The better of a fit and of those for a head that lies on its side or stands on its top."""
        turned = self._mesh.from_turned_detection(image, found.landmarks[i], found.xyxy[i])
        return max(upright, turned, key=lambda fit: fit.presence)

    def _take_up(self, sighting: _Sighting, link: Association, index: int) -> None:
        """Begin a track, or go on with one that was lost."""
        face = self._faces.get(link.track_id)
        if face is None:
            face = self._faces[link.track_id] = _Face(sighting.fit, self.config.identity)
            _logger.debug("event=track_begins frame=%d track=%d", index, link.track_id)
        else:
            face.take(sighting.fit)
            if face.last_index < index - 1:
                face.restart()
        face.unconfirmed = 0
        if sighting.embedding is not None and abs(face.yaw_deg) <= self.config.identity.max_yaw_deg:
            face.vote.add(sighting.embedding, face.quality, index)

    def _part_doubles(self, image: ImageBgr, index: int) -> None:
        """Where two tracks hold one face, the one whose face it is keeps it."""
        active = list(self._tracker.active)
        for i, older in enumerate(active):
            for newer in active[i + 1 :]:
                if self._followed(older) and self._followed(newer) and self._double(older, newer):
                    self._part(image, index, older, newer)

    def _followed(self, track: Track) -> bool:
        return track.track_id in self._faces and not track.lost

    def _double(self, a: Track, b: Track) -> bool:
        p, q = self._faces[a.track_id].fit.landmarks, self._faces[b.track_id].fit.landmarks
        distance = float(np.sqrt(((p[:, :2] - q[:, :2]) ** 2).sum(1)).mean())
        return distance < _DOUBLE_DISTANCE * max(inter_ocular(p), inter_ocular(q))

    def _part(self, image: ImageBgr, index: int, older: Track, newer: Track) -> None:
        a, b = self._faces[older.track_id], self._faces[newer.track_id]
        if a.vote.embedding is None or b.vote.embedding is None:
            self._drop(newer.track_id)
            return
        if float(a.vote.embedding @ b.vote.embedding) >= _SAME_PERSON:
            self._drop(newer.track_id)
            return
        seen = self._embed(image, index, a.fit)
        ours, theirs = float(seen @ a.vote.embedding), float(seen @ b.vote.embedding)
        self._tracker.lose((newer if ours >= theirs else older).track_id)

    def _drop(self, track_id: int) -> None:
        self._tracker.forget(track_id)
        del self._faces[track_id]
        self._selector.forget((track_id,))

    def _identify(self, image: ImageBgr, index: int) -> None:
        """Embed the faces whose vote asks for it; tracks that slipped onto somebody else are put right."""
        active = self._tracker.active
        contested = self._contested(active)
        samples: dict[int, Embedding] = {}
        jumped: dict[int, Embedding] = {}
        for track in active:
            face = self._faces[track.track_id]
            watched = face.suspect or track.track_id in contested
            due = face.vote.due(index, face.quality, face.yaw_deg, contested=watched)
            if self.config.caches and not due:
                self._counters.hit("track")
                continue
            self._counters.miss("track")
            if face.vote.last_frame == index:
                continue  # embedded in this frame when it was found
            face.suspect = False
            samples[track.track_id] = embedding = self._embed(image, index, face.fit)
            if self._is_jump(track.track_id, embedding, index):
                jumped[track.track_id] = embedding
        if jumped:
            self._check_others(image, index, samples, jumped)
            self._reassign(jumped, index)

    def _is_jump(self, track_id: int, embedding: Embedding, index: int) -> bool:
        """Count a sample of a track; says whether the track has slipped onto somebody else."""
        face = self._faces[track_id]
        if abs(face.yaw_deg) > self.config.identity.max_yaw_deg:
            return False
        verdict = face.vote.add(embedding, face.quality, index)
        if verdict is Verdict.DOUBTED:
            return self._is_another(embedding, track_id)
        return verdict is Verdict.JUMPED

    def _contested(self, active: Sequence[Track]) -> set[int]:
        """Tracks near enough to another one, seen or lost, to be mixed up."""
        tracks = [*active, *(t for t in self._tracker.lost if t.placed)]
        if len(tracks) < 2:
            return set()
        boxes = np.stack([t.xyxy for t in tracks])
        # Heads are wider than the boxes of their landmarks: a little air still counts as near.
        margin = (boxes[:, 2:] - boxes[:, :2]) / 10
        heads = np.concatenate([boxes[:, :2] - margin, boxes[:, 2:] + margin], 1)
        near = box_iou(heads, heads) > 0
        return {t.track_id for t, row in zip(active, near, strict=False) if row.sum() > 1}

    def _is_another(self, embedding: Embedding, track_id: int) -> bool:
        """Whether a sample of one track is clearly the person of another."""
        return any(
            other != track_id and (face.vote.likeness(embedding) or 0.0) >= _SAME_PERSON
            for other, face in self._faces.items()
        )

    def _check_others(
        self, image: ImageBgr, index: int, samples: dict[int, Embedding], jumped: dict[int, Embedding]
    ) -> None:
        """When one track jumped its partner probably did: look at all that were not looked at."""
        for track in self._tracker.active:
            face = self._faces[track.track_id]
            if track.track_id in samples or face.vote.embedding is None:
                continue
            embedding = self._embed(image, index, face.fit)
            alike = face.vote.likeness(embedding)
            if alike is not None and alike < _OTHER_PERSON and self._is_another(embedding, track.track_id):
                jumped[track.track_id] = embedding

    def _reassign(self, jumped: dict[int, Embedding], index: int) -> None:
        """Take the faces from tracks they do not belong to and find out whose they are."""
        sightings = [
            _sighting(self._faces[t].fit, self._faces[t].confidence, 1.0, e) for t, e in jumped.items()
        ]
        for track_id in jumped:
            _logger.debug("event=track_split frame=%d track=%d", index, track_id)
            self._tracker.displace(track_id)
        samples = list(jumped.values())
        links = self._tracker.associate(
            _boxes(sightings),
            np.ones(len(sightings), np.float32),
            lambda track_id, i: self._faces[track_id].vote.likeness(samples[i]),
        )
        for sighting, link in zip(sightings, links, strict=True):
            if link is not None and link.link is not Link.FOLLOWED:
                self._take_up(sighting, link, index)
                self._faces[link.track_id].restart()
                self._faces[link.track_id].confidence = sighting.confidence

    def _embed(self, image: ImageBgr, index: int, fit: MeshFit) -> Embedding:
        with self._clock.stage("identity", index):
            return self._embedder.embed(image, five_points(fit.landmarks))

    def _report(self, frame: Frame) -> tuple[TrackedFace, ...]:
        active = sorted(self._tracker.active, key=lambda t: t.track_id)
        candidates = []
        for track in active:
            face = self._faces[track.track_id]
            candidates.append(Candidate(track.track_id, face.fit.xyxy, face.vote.embedding))
        pairs = self._selector.select(candidates)
        reported = []
        for track in active:
            face = self._faces[track.track_id]
            landmarks = face.smoother.smooth(face.fit.landmarks, frame.time_s)
            reported.append(
                TrackedFace(
                    track.track_id,
                    landmarks,
                    face.fit.presence,
                    box_of_points(landmarks),
                    face.confidence,
                    face.restarted,
                    pairs[track.track_id],
                )
            )
            face.restarted, face.last_index = False, frame.index
        return tuple(reported)


def _needed(presence: float, confidence: float) -> float:
    """Presence that makes a face of a detection: the less sure the detector, the surer the landmarks."""
    return presence + 20 * max(0.0, 0.85 - confidence)


def _boxes(sightings: Sequence[_Sighting]) -> BoxesXyxy:
    return np.array([s.xyxy for s in sightings], np.float32).reshape(-1, 4)


def _without_doubles(sightings: list[_Sighting]) -> list[_Sighting]:
    """Two detections may end on one face: the surer one stays."""
    if len(sightings) < 2:
        return sightings
    presence = np.array([s.fit.presence for s in sightings], np.float32)
    keep = non_maximum_suppression(_boxes(sightings), presence, 0.5)
    return [sightings[i] for i in sorted(keep)]


def _side(box: BoxXyxy) -> float:
    return max(float(box[2] - box[0]), float(box[3] - box[1]), 1e-3)


def _moved(before: BoxXyxy, after: BoxXyxy) -> bool:
    """Whether a face moved or grew so far within a frame that its crop no longer suited it."""
    shift = (after[:2] + after[2:] - before[:2] - before[2:]) / 2
    side = _side(before)
    return float(np.hypot(*shift)) > 0.12 * side or not 0.88 < _side(after) / side < 1.12


def _reshaped(before: MeshLandmarks, after: MeshLandmarks) -> bool:
    """Whether a face changed its shape within a frame more than expressions and small turns explain."""
    if before is after:
        return False
    a, b = before[::4, :2], after[::4, :2]  # a quarter of the points tells as much
    apart = transform_points(fit_similarity(a, b), a) - b
    return float(np.sqrt((apart * apart).sum(1)).mean()) > _RESHAPED * inter_ocular(after)


def _plausible(fit: MeshFit, before: BoxXyxy | None, image: ImageBgr) -> bool:
    """Whether landmarks have the shape of a face, lie in the picture and did not leap in size."""
    box, side = fit.xyxy, _side(fit.xyxy)
    if side < 4 or not 0.2 < inter_ocular(fit.landmarks) / side < 0.8:
        return False
    h, w = image.shape[:2]
    visible = np.clip(np.minimum(box[2:], (w, h)) - np.maximum(box[:2], 0), 0, None).prod()
    if visible < 0.35 * (box[2:] - box[:2]).prod():
        return False
    return before is None or 0.6 < side / _side(before) < 1.7
