"""The whole job on packaged media, as a first look: a portrait onto a clip, and the numbers of the run."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.landmarks import five_points
from edge.outputs import atomic_output
from edge.progress import EventSink, ignore_events
from edge.report import write_report
from edge.swap import Pair, SwapOptions, swap_files
from edge.video import VideoReader
from shared.arrays import ImageBgr
from shared.errors import OutputError
from shared.frames import Frame
from shared.ort import SessionPool

SAMPLES = Path(__file__).parent / "samples"
PORTRAIT = SAMPLES / "astronaut.png"
CLIP = SAMPLES / "single_face.mp4"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo made.

    Attributes:
        video: The clip with the portrait's face.
        picture: Portrait, frame before and frame after, side by side.
        report: The job's report.
        frames: Frames of the clip.
        frames_fused: Those in which the face was fused.
        fps: Frames a second, whole path.
        likeness_to_source: Cosine of the fused face and the portrait, 1 = the same; 0.45 tells people apart.
        likeness_to_target: Cosine of the fused face and the person of the clip.
    """

    video: Path
    picture: Path
    report: Path
    frames: int
    frames_fused: int
    fps: float
    likeness_to_source: float
    likeness_to_target: float


def run_demo(folder: Path, events: EventSink = ignore_events) -> DemoResult:
    """Fuse the packaged portrait into the packaged clip.

    Args:
        folder: Where the results go; made if missing.
        events: Told what happens.

    Raises:
        FaceFusionError: If the folder cannot be written or a model does not load.
    """
    video, picture, report = (folder / name for name in ("fused.mp4", "side-by-side.png", "report.json"))
    result = swap_files([Pair((PORTRAIT,))], [CLIP], video, SwapOptions(), events=events)
    result.raise_for_status()
    write_report(report, result)
    middle = result.inputs[0].frames_out // 2
    before, after = _frame(CLIP, middle), _frame(video, middle)
    portrait = cv2.imread(str(PORTRAIT))
    assert portrait is not None
    _write_side_by_side(picture, [portrait, before, after])
    to_source, to_target = _likeness(portrait, before, after)
    done = result.inputs[0]
    return DemoResult(
        video, picture, report, done.frames_out, done.frames_fused, result.fps, to_source, to_target
    )


def _frame(path: Path, index: int) -> ImageBgr:
    with VideoReader(path) as reader:
        for frame in reader:
            if frame.index == index:
                return frame.image
    raise OutputError(path, f"has no frame {index}: the demo's video is cut short")


def _write_side_by_side(path: Path, pictures: list[ImageBgr]) -> None:
    height = max(picture.shape[0] for picture in pictures)
    scaled = [
        cv2.resize(p, (round(p.shape[1] * height / p.shape[0]), height), interpolation=cv2.INTER_AREA)
        for p in pictures
    ]
    encoded, data = cv2.imencode(".png", np.hstack(scaled))
    if not encoded:
        raise OutputError(path, "OpenCV could not encode the picture")
    with atomic_output(path) as part:
        part.write_bytes(data.tobytes())


def _likeness(portrait: ImageBgr, before: ImageBgr, after: ImageBgr) -> tuple[float, float]:
    """Cosine of the fused face with the portrait, and with the face it covers."""
    sessions = SessionPool()
    analyser, embedder = FaceAnalyser(sessions), MobileFaceNet(sessions)
    source, target, fused = (
        embedder.embed(image, five_points(analyser.analyse_still(Frame(0, image))[0].landmarks))
        for image in (portrait, before, after)
    )
    return embedder.similarity(fused, source), embedder.similarity(fused, target)
