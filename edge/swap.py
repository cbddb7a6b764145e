"""The main job as a Python API: fuse a source face into photos, animated pictures, videos and folders.

>>> from edge import Pair, SwapOptions, swap_files
>>> report = swap_files([Pair((Path("me.jpg"),))], [Path("party.jpg")], Path("out.jpg"))

The command line calls the same functions.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edge.analyser import AnalyserConfig, FaceAnalyser
from edge.animations import AnimationReader, AnimationWriter
from edge.detector import DetectorConfig
from edge.embedder import MobileFaceNet
from edge.fuser import FrameFuser
from edge.landmarks import five_points
from edge.media import list_inputs, probe_kind
from edge.outputs import atomic_output, ensure_distinct, plan_outputs
from edge.people import PeopleIndex, view_of
from edge.pipeline import run_stream
from edge.progress import (
    EventSink,
    InputFinished,
    InputStarted,
    InputStatus,
    JobStarted,
    Progress,
    ignore_events,
)
from edge.report import InputReport, JobReport, ReportBuilder
from edge.selection import SelectionConfig, Selector
from edge.source import SourceReader, SourceRequest, SourceStore
from edge.stills import read_still, write_still
from edge.tracker import TrackerConfig
from edge.video import Trim, VideoReader, VideoWriter
from shared.arrays import Embedding, ImageBgr
from shared.counters import CacheCounters
from shared.errors import FaceFusionError, InterruptedJobError, PolicyError, SourceError, UsageError
from shared.faces import TrackedFace
from shared.frames import Frame, FusedFrame
from shared.mesh.engine import MeshConfig, MeshEngine, Tier
from shared.mesh.source import PreparedSource
from shared.ort import RuntimeConfig, SessionPool
from shared.timing import StageClock

if TYPE_CHECKING:
    from edge.memory import FaceMemory

_PROGRESS_EVERY_S = 0.2
_FPS_WINDOW_S = 2.0
_DEFAULT_VIDEO_QUALITY = 80


@dataclass(frozen=True, slots=True)
class Pair:
    """Who goes onto whom.

    Attributes:
        source: One or several photos of the person whose face is fused.
        reference: A photo of the person to be covered; None for whoever is there.
        person: Name or id in the face memory, instead of ``source``.
        covers: Name or id in the face memory, instead of ``reference``.
    """

    source: tuple[Path, ...] = ()
    reference: Path | None = None
    person: str | None = None
    covers: str | None = None


@dataclass(frozen=True, slots=True)
class SwapOptions:
    """How a job is done.

    Attributes:
        faces: Which faces are covered: ``all``, the ``largest``, or those that ``match`` a reference.
        match_threshold: Cosine from which a face matches a reference.
        trim: Only this part of videos.
        codec: ``auto`` or a name of ``edge.video.containers.CODECS``.
        quality: 0 (smallest) to 100 (finest); None keeps a still's own and takes 80 for videos.
        tier: ``quality``, ``balanced`` or ``fast``.
        shape_strength: How far the face takes on the source's shape, 0..1.25.
        caches: False computes everything anew.
        source_face: Which face of a source photo that shows several, from 1, from the left.
        runtime: How networks are run.
        detection: What counts as a face.
        tracking: How faces are followed.
        remember_as: Enrol the person of the first pair in the face memory under this name.
        keep_spans: Keep what is needed for a trace; memory grows with the length of the job.
    """

    faces: Literal["all", "largest", "match"] = "all"
    match_threshold: float = 0.45
    trim: Trim = field(default_factory=Trim)
    codec: str = "auto"
    quality: int | None = None
    tier: Tier = "quality"
    shape_strength: float = MeshConfig().shape_strength
    caches: bool = True
    source_face: int | None = None
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    tracking: TrackerConfig = field(default_factory=TrackerConfig)
    remember_as: str | None = None
    keep_spans: bool = False


@dataclass(slots=True)
class _Counts:
    """Frames of one input."""

    frames_in: int = 0
    frames_out: int = 0
    fused: int = 0
    duration_s: float = 0.0
    messages: tuple[str, ...] = ()


class Swapper:
    """One job: sources prepared once, then any number of inputs.

    Not for several threads at once. Networks are shared by all jobs of a process.

    Args:
        pairs: Who goes onto whom.
        options: How.
        events: Told what happens.
        stop: Set it from another thread to end the job.
        memory: The face memory: knows people and keeps what was prepared of them. None leaves nothing behind.

    Raises:
        SourceError: If a source or a reference cannot serve.
        PolicyError: If somebody shall be remembered and a rule forbids it.
        ModelError: If a network does not load.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        options: SwapOptions | None = None,
        *,
        events: EventSink = ignore_events,
        stop: threading.Event | None = None,
        memory: "FaceMemory | None" = None,
    ) -> None:
        if not pairs or not all(pair.source or pair.person for pair in pairs):
            raise UsageError("nobody to fuse: give at least one source")
        self.options = options or SwapOptions()
        self._pairs = tuple(pairs)
        self._events = events
        self._stop = stop or threading.Event()
        self._clock = StageClock(keep_spans=self.options.keep_spans)
        self._counters = CacheCounters()
        self._builder = ReportBuilder()
        self._sessions = SessionPool(self.options.runtime)
        self._memory = memory
        self._revoked = threading.Event()
        self._lock = threading.Lock()  # protects the next one: a forget comes from another thread
        self._forgotten: set[int] = set()
        self._people = PeopleIndex(self._counters, memory)
        self._embedder = MobileFaceNet(self._sessions)
        mesh = MeshConfig(self.options.tier, self.options.shape_strength)
        self._engine = MeshEngine(mesh, counters=self._counters, caches=self.options.caches)
        self._analyser_config = AnalyserConfig(
            points=mesh.points,
            caches=self.options.caches,
            detector=self.options.detection,
            tracker=self.options.tracking,
        )
        # Sources are read with the better landmarks whatever the tier: it happens once.
        finder = FaceAnalyser(self._sessions, AnalyserConfig(detector=self.options.detection))
        self._reader = SourceReader(finder, self._embedder)
        self._store: SourceStore[PreparedSource] = SourceStore(
            self._reader, self._engine, self._counters, events, caches=self.options.caches, memory=memory
        )
        self._references = tuple(self._read_reference(pair) for pair in self._pairs)
        self._sources()
        self._stills = self._new_analyser()
        if memory is not None:
            memory.register_purger(self._forget)

    def _forget(self, person_ids: frozenset[bytes]) -> None:
        """Somebody is forgotten while the job runs: by its caches, its tracks, and as a source."""
        numbers = self._people.forget(person_ids)
        with self._lock:
            self._forgotten |= numbers
        if self._store.forget(person_ids):
            self._revoked.set()

    def _stop_if_revoked(self) -> None:
        if self._revoked.is_set():
            raise PolicyError("a source was forgotten while the job ran; nothing was written")

    def _read_reference(self, pair: Pair) -> Embedding | None:
        """Who the person to be covered is."""
        if pair.covers is not None:
            known = self._memory.person(pair.covers) if self._memory is not None else None
            if known is None or not len(known.embeddings):
                raise SourceError(f"reference @{pair.covers}: nobody of that name is remembered")
            return known.embeddings[0]
        if pair.reference is None:
            return None
        return self._reader.read(pair.reference, role="reference").embedding

    def _sources(self) -> list[PreparedSource]:
        """The prepared people, in the order of the pairs."""
        self._stop_if_revoked()
        with self._clock.stage("prepare"):
            return [self._store.prepared(choice) for choice in self._choices()]

    def _choices(self) -> list[SourceRequest]:
        names = [self.options.remember_as, *[None] * len(self._pairs)]
        return [
            SourceRequest(pair.source, self.options.source_face, pair.person, name)
            for pair, name in zip(self._pairs, names, strict=False)
        ]

    def _new_analyser(self) -> FaceAnalyser:
        config = SelectionConfig(self.options.faces, self.options.match_threshold)
        return FaceAnalyser(
            self._sessions,
            self._analyser_config,
            selector=Selector(config, self._references),
            clock=self._clock,
            counters=self._counters,
        )

    def swap_array(self, image: ImageBgr) -> ImageBgr:
        """Fuse into a picture in memory.

        Args:
            image: Shape ``(h, w, 3)``, uint8 BGR; left as it is.

        Returns:
            A new picture of the same shape.
        """
        frame = Frame(0, image.copy())
        self._fuse_still(frame)
        return frame.image

    def _fuse_still(self, frame: Frame, source: str = "") -> FusedFrame:
        faces = self._stills.analyse_still(frame)
        for face in faces:
            embedding = self._embedder.embed(frame.image, five_points(face.landmarks))
            self._people.see(embedding, view_of(face, frame.image, source))
        return FrameFuser(self._engine, self._sources(), self._clock).fuse(frame, faces)

    def swap(self, path: Path, output: Path, *, index: int = 0, total: int = 1) -> InputReport:
        """Fuse into one file of any kind. Errors end up in the result.

        Args:
            path: The input.
            output: The file to write; it appears whole or not at all.
            index: Position in a batch, for the events.
            total: Size of the batch.

        Raises:
            InterruptedJobError: If the job was told to stop.
            UsageError: If the request is wrong and this is its only input.
        """
        self._stop_if_asked()
        counts = _Counts()
        status: InputStatus = "ok"
        error: str | None = None
        try:
            self._swap_kind(path, output, counts, index, total)
        except InterruptedJobError:
            raise
        except UsageError as err:
            # Alone it is the request that is wrong; in a batch the others may be right.
            if total == 1:
                raise
            status, error = "failed", str(err)
        except PolicyError as err:
            status, error = "refused", str(err)
        except FaceFusionError as err:
            status, error = "failed", str(err)
        done = InputReport(
            path,
            output if status == "ok" else None,
            status,
            error,
            counts.frames_in,
            counts.frames_out if status == "ok" else 0,
            counts.fused if status == "ok" else 0,
            counts.duration_s,
        )
        self._builder.add_input(done)
        self._events(InputFinished(path, done.output, status, done.frames_fused, error, counts.messages))
        return done

    def _swap_kind(self, path: Path, output: Path, counts: _Counts, index: int, total: int) -> None:
        ensure_distinct([path, *self._photos()], output)
        kind = probe_kind(path)

        def started(frames: int | None, duration_s: float | None) -> None:
            self._events(InputStarted(path, index, total, frames, duration_s))

        if kind == "still":
            started(1, 0.0)
            self._swap_still(path, output, counts)
        elif kind == "animation":
            self._swap_animation(path, output, counts, started)
        else:
            self._swap_video(path, output, counts, started)

    def _photos(self) -> list[Path]:
        """Every photo that the job reads besides its inputs."""
        photos = [photo for pair in self._pairs for photo in pair.source]
        return photos + [pair.reference for pair in self._pairs if pair.reference is not None]

    def _swap_still(self, path: Path, output: Path, counts: _Counts) -> None:
        with self._clock.stage("decode"):
            still = read_still(path)
        counts.frames_in = 1
        fused = self._fuse_still(still.frame, str(path))
        self._count(fused, counts)
        self._stop_if_asked()
        self._stop_if_revoked()
        with self._clock.stage("encode"), atomic_output(output) as part:
            lost = write_still(fused, still, part, quality=self.options.quality)
        counts.messages = (*still.warnings, *lost)

    def _swap_animation(
        self,
        path: Path,
        output: Path,
        counts: _Counts,
        started: Callable[[int | None, float | None], None],
    ) -> None:
        reader = AnimationReader(path)
        started(reader.info.frame_count, reader.info.duration_s)
        counts.duration_s = reader.info.duration_s
        with atomic_output(output) as part, AnimationWriter(part, reader) as writer:
            self._run(path, reader, writer.write, counts, reader.info.frame_count)
        counts.messages = (*reader.warnings, *writer.messages)

    def _swap_video(
        self,
        path: Path,
        output: Path,
        counts: _Counts,
        started: Callable[[int | None, float | None], None],
    ) -> None:
        quality = _DEFAULT_VIDEO_QUALITY if self.options.quality is None else self.options.quality
        with VideoReader(path, trim=self.options.trim) as reader:
            info = reader.info
            started(info.frame_count, info.duration_s)
            counts.duration_s = info.duration_s or 0.0
            with (
                atomic_output(output) as part,
                VideoWriter(part, reader, codec=self.options.codec, quality=quality) as writer,
            ):
                self._run(path, reader, writer.write, counts, info.frame_count)
            counts.messages = (*reader.warnings, *writer.messages)

    def _run(
        self,
        path: Path,
        frames: "VideoReader | AnimationReader",
        write: Callable[[FusedFrame], None],
        counts: _Counts,
        total: int | None,
    ) -> None:
        """One stream through all stages."""
        analyser = self._new_analyser()
        fuser = FrameFuser(self._engine, self._sources(), self._clock)
        meter = _Meter(path, total, self._events)

        def write_and_count(fused: FusedFrame) -> None:
            self._stop_if_revoked()
            write(fused)
            counts.frames_in += 1
            self._count(fused, counts)
            meter.frame_done()

        seen: dict[int, int] = {}  # person by track

        def analyse(frame: Frame) -> tuple[TrackedFace, ...]:
            self._forget_tracks(analyser, seen)
            faces = analyser.analyse(frame)
            self._note_people(analyser, frame, faces, seen, str(path))
            return faces

        run_stream(frames, analyse, fuser.fuse, write_and_count, clock=self._clock, stop=self._stop)

    def _note_people(
        self,
        analyser: FaceAnalyser,
        frame: Frame,
        faces: Sequence[TrackedFace],
        seen: dict[int, int],
        source: str,
    ) -> None:
        """Look every track up once, when its identity is known."""
        for face in faces:
            if face.track_id in seen:
                continue
            embedding = analyser.embedding(face.track_id)
            if embedding is not None:
                seen[face.track_id] = self._people.see(embedding, view_of(face, frame.image, source))

    def _forget_tracks(self, analyser: FaceAnalyser, seen: dict[int, int]) -> None:
        """Running tracks of forgotten people lose what is known of them."""
        with self._lock:
            forgotten, self._forgotten = self._forgotten, set()
        for track_id in [t for t, number in seen.items() if number in forgotten]:
            analyser.forget_identity(track_id)

    def _count(self, fused: FusedFrame, counts: _Counts) -> None:
        counts.frames_out += 1
        counts.fused += bool(fused.patches)
        self._builder.count_frame("local" if fused.patches else "pass")

    def _stop_if_asked(self) -> None:
        if self._stop.is_set():
            raise InterruptedJobError("stopped by the user; the finished outputs stay")

    def report(self, *, interrupted: bool = False) -> JobReport:
        """What the job did until now."""
        return self._builder.build(
            stages=self._clock.summary(),
            cache=self._counters.summary(),
            providers=self._sessions.loaded(),
            identities_seen=len(self._people),
            identities_remembered=self._people.remembered,
            interrupted=interrupted,
            spans=self._clock.spans(),
        )


class _Meter:
    """Sends progress a few times a second."""

    def __init__(self, path: Path, total: int | None, events: EventSink) -> None:
        self._path = path
        self._total = total
        self._events = events
        self._done = 0
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._told_s = 0.0

    def frame_done(self) -> None:
        """Count a frame, and tell if it is time."""
        self._done += 1
        now = time.monotonic()
        if now - self._told_s < _PROGRESS_EVERY_S and self._done != self._total:
            return
        self._told_s = now
        self._recent.append((now, self._done))
        while len(self._recent) > 2 and now - self._recent[0][0] > _FPS_WINDOW_S:
            self._recent.popleft()
        then, before = self._recent[0]
        fps = (self._done - before) / max(now - then, 1e-6)
        self._events(Progress(self._path, self._done, self._total, fps))


def swap_files(
    pairs: Sequence[Pair],
    inputs: Sequence[Path],
    output: Path | str,
    options: SwapOptions | None = None,
    *,
    events: EventSink = ignore_events,
    stop: threading.Event | None = None,
    memory: "FaceMemory | None" = None,
) -> JobReport:
    """Fuse into files and folders. An input that fails does not stop the others.

    Args:
        pairs: Who goes onto whom.
        inputs: Photos, animated pictures, videos, folders of them.
        output: A file for one input, else a folder; a closing slash makes it a folder too. Files of an
            input folder keep their sub-folders, and what lies in the output folder is no input.
        options: How.
        events: Told what happens.
        stop: Set it from another thread to end the job; what is finished stays.
        memory: The face memory; None leaves nothing behind.

    Returns:
        The report; ``raise_for_status()`` turns failures into exceptions.

    Raises:
        UsageError: If the request is wrong: a bad source, an output that is an input.
        InputError: If a folder cannot be read.
        ModelError: If a network does not load.
    """
    folders = [path for path in inputs if path.is_dir()]
    files = [path for path in list_inputs(inputs) if path in inputs or not path.is_relative_to(output)]
    outputs = plan_outputs(files, output, roots=folders)
    events(JobStarted(len(files)))
    swapper = Swapper(pairs, options, events=events, stop=stop, memory=memory)
    try:
        for index, (path, target) in enumerate(zip(files, outputs, strict=True)):
            swapper.swap(path, target, index=index, total=len(files))
    except InterruptedJobError:
        return swapper.report(interrupted=True)
    return swapper.report()


def swap_image(
    source: Path | Sequence[Path], image: Path, output: Path, options: SwapOptions | None = None
) -> InputReport:
    """Fuse a face into one photo or animated picture.

    Args:
        source: One or several photos of one person.
        image: The picture.
        output: The file to write.
        options: How.

    Raises:
        FaceFusionError: If it fails; nothing is written then.
    """
    photos = (source,) if isinstance(source, Path) else tuple(source)
    report = swap_files([Pair(photos)], [image], output, options)
    report.raise_for_status()
    return report.inputs[0]


def swap_video(
    source: Path | Sequence[Path], video: Path, output: Path, options: SwapOptions | None = None
) -> InputReport:
    """Fuse a face into one video: sound, timing and every pixel outside of the faces stay.

    Args:
        source: One or several photos of one person.
        video: The video.
        output: The file to write; its ending decides the container.
        options: How.

    Raises:
        FaceFusionError: If it fails; nothing is written then.
    """
    return swap_image(source, video, output, options)
