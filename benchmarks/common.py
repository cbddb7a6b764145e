"""What the benchmarks share: media, made clips, tables and result files."""

import contextlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt

from edge.analyser import FaceAnalyser
from edge.stills import read_still
from shared import __version__
from shared.arrays import ImageBgr
from shared.faces import TrackedFace
from shared.frames import Frame

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "edge" / "samples"
OUT = Path(__file__).resolve().parent / "out"
SOURCE = SAMPLES / "single_face.jpg"
PORTRAIT = SAMPLES / "astronaut.png"
CALM_PORTRAIT = SAMPLES / "grace_hopper.jpg"
CLIP = SAMPLES / "single_face.mp4"
FPS = 30


def media_folder() -> Path | None:
    """The larger media collection beside the repository, or where LETHE_TEST_MEDIA says; None if missing."""
    folder = Path(os.environ.get("LETHE_TEST_MEDIA", REPOSITORY.parent / "shared" / "media"))
    if folder.is_dir():
        return folder
    print("the larger media collection is not here (../shared/media): packaged media only")
    return None


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was."""
    return {
        "lethe": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def publish(name: str, rows: Sequence[dict[str, Any]], **more: object) -> None:
    """Print the rows as a table and write them, with the machine, as ``benchmarks/out/NAME.json``."""
    if rows:
        columns = list(rows[0])
        lines = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
        widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for key, value in more.items():
        print(f"{key}: {_text(value)}")
    OUT.mkdir(exist_ok=True)
    result = {"machine": machine(), "rows": list(rows), **more}
    (OUT / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _text(value: object) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def read_image(path: Path) -> ImageBgr:
    """A photo as Lethe reads it."""
    return read_still(path).frame.image


def largest_face(analyser: FaceAnalyser, image: ImageBgr) -> TrackedFace | None:
    """The largest face of a photo; None where Lethe finds none."""
    faces = analyser.analyse_still(Frame(0, image))
    return max(faces, key=lambda face: float(face.xyxy[2] - face.xyxy[0]), default=None)


@contextlib.contextmanager
def video_sink(path: Path, size_wh: tuple[int, int]) -> Iterator[Any]:
    """Takes BGR pictures, writes H.264 in 4:2:0 at 30 a second, hardly compressed."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"preset": "ultrafast", "crf": "18"})
        stream.width, stream.height = size_wh
        stream.pix_fmt = "yuv420p"

        def write(image: npt.NDArray[np.uint8]) -> None:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "bgr24")))

        yield write
        container.mux(stream.encode(None))


def there_and_back(count: int, frames: int) -> Iterator[int]:
    """Indices that walk through ``count`` pictures to and fro, so that a short clip loops without a cut."""
    for index in range(frames):
        turn = index % max(2 * count - 2, 1)
        yield turn if turn < count else 2 * count - 2 - turn


def looped_clip(clip: Path, path: Path, frames: int, size_wh: tuple[int, int] | None = None) -> Path:
    """A clip made longer by running it to and fro; ``size_wh`` crops the middle to its shape and scales."""
    with av.open(str(clip)) as container:
        decoded = container.decode(video=0)
        pictures = [np.asarray(frame.to_ndarray(format="bgr24"), np.uint8) for frame in decoded]
    if size_wh is not None:
        pictures = [_fitted(picture, size_wh) for picture in pictures]
    height, width = pictures[0].shape[:2]
    with video_sink(path, (width, height)) as write:
        for index in there_and_back(len(pictures), frames):
            write(pictures[index])
    return path


def _fitted(picture: npt.NDArray[np.uint8], size_wh: tuple[int, int]) -> npt.NDArray[np.uint8]:
    height, width = picture.shape[:2]
    kept = min(width, height * size_wh[0] // size_wh[1])
    left = (width - kept) // 2
    return np.asarray(cv2.resize(picture[:, left : left + kept], size_wh), np.uint8)


def pan_clip(photo: Path, path: Path, frames: int, size_wh: tuple[int, int] = (1920, 1080)) -> Path:
    """A camera that glides over a photo and back, with a little noise; its end joins its beginning."""
    width, height = size_wh
    image = read_image(photo)
    scale = 1.12 * width / image.shape[1]
    rng = np.random.default_rng(0)
    noise = [rng.normal(0, 1.5, (height, width, 3)).astype(np.int16) for _ in range(4)]
    with video_sink(path, size_wh) as write:
        for index in range(frames):
            angle = 2 * np.pi * index / frames
            x = (image.shape[1] * scale - width) * (0.5 - 0.5 * np.cos(angle))
            y = height * (0.02 + 0.05 * np.sin(angle))
            shift = np.array([[scale, 0, -x], [0, scale, -y]], np.float32)
            view = cv2.warpAffine(image, shift, size_wh, flags=cv2.INTER_CUBIC)
            write(np.clip(view + noise[index % 4], 0, 255).astype(np.uint8))
    return path


def repeated_clip(clip: Path, path: Path, times: int) -> Path:
    """A clip several times in a row, without encoding it again."""
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        frames = stream.frames
        packets = [packet for packet in container.demux(stream) if packet.dts is not None]
        assert stream.time_base is not None
        length = round(Fraction(frames, FPS) / stream.time_base)
        with av.open(str(path), "w") as out:
            copy = out.add_stream_from_template(stream)
            for turn in range(times):
                for packet in packets:
                    assert packet.pts is not None
                    assert packet.dts is not None
                    again = av.Packet(bytes(packet))
                    again.pts, again.dts = packet.pts + turn * length, packet.dts + turn * length
                    again.time_base, again.is_keyframe = stream.time_base, packet.is_keyframe
                    again.stream = copy
                    out.mux(again)
    return path
