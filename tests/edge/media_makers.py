"""Small media files for the tests: each with one thing about it that is odd."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.video.frame import PictureType, VideoFrame
from av.video.stream import VideoStream

from shared.frames import Frame, FusedFrame, Patch

SIZE = (64, 48)


def picture(number: int, width: int = SIZE[0], height: int = SIZE[1]) -> npt.NDArray[np.uint8]:
    """A smooth BGR picture that differs from every other number's: a bright bar walks over a slope."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.stack([60 + x * 100 // width, 60 + y * 100 // height, np.full_like(x, 110)], -1).astype(
        np.uint8
    )
    start = number * 3 % max(width - 8, 1)
    image[:, start : start + 8] = 220
    return image


def make_video(
    path: Path,
    *,
    stamps: Sequence[int] = tuple(range(10)),
    time_base: Fraction = Fraction(1, 25),
    size: tuple[int, int] = SIZE,
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    options: dict[str, str] | None = None,
    sounds: Sequence[tuple[str, float]] = (),
    sound_s: float | None = None,
    describe: Callable[[Any], None] | None = None,
    metadata: dict[str, str] | None = None,
    muxer: str | None = None,
) -> Path:
    """Write a video of walking bars.

    Args:
        path: The file; its ending decides the container.
        stamps: Time stamp of each frame, in units of ``time_base``.
        time_base: Seconds per unit.
        size: Width and height.
        codec: Picture encoder.
        pixel_format: What it is fed.
        options: Its settings; by default a key frame every 5 frames and two B-frames.
        sounds: Sound encoder and start in seconds of each sound track.
        sound_s: Length of the sound; by default that of the picture.
        describe: Called with the codec context before it opens.
        metadata: Tags of the file.
        muxer: Container, where the ending does not tell.
    """
    if options is None:
        options = {"preset": "ultrafast", "g": "5", "bf": "2", "crf": "10"} if codec == "libx264" else {}
    with av.open(str(path), "w", format=muxer) as container:
        stream = container.add_stream(codec, rate=25, options=options)
        assert isinstance(stream, VideoStream)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = *size, pixel_format
        context.time_base = stream.time_base = time_base
        if describe is not None:
            describe(context)
        tracks = [_add_sound(container, name) for name, _ in sounds]
        container.metadata.update(metadata or {})
        for number, stamp in enumerate(stamps):
            frame = VideoFrame.from_ndarray(picture(number, *size), "bgr24").reformat(format=pixel_format)
            frame.pts, frame.time_base, frame.pict_type = stamp, time_base, PictureType.NONE
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        length = sound_s if sound_s is not None else float((stamps[-1] - stamps[0] + 1) * time_base)
        for track, (_, start) in zip(tracks, sounds, strict=True):
            _write_sound(container, track, start, length)
    return path


def _add_sound(container: Any, codec: str) -> AudioStream:
    track = container.add_stream(codec, rate=48000, layout="mono")
    assert isinstance(track, AudioStream)
    return track


def _write_sound(container: Any, track: AudioStream, start_s: float, length_s: float) -> None:
    count = int(length_s * 48000)
    tone = (np.sin(np.arange(count) * 0.05) * 8000).astype(np.int16)
    for at in range(0, count, 960):
        frame = AudioFrame.from_ndarray(tone[None, at : at + 960], format="s16", layout="mono")
        frame.sample_rate, frame.time_base = 48000, Fraction(1, 48000)
        frame.pts = int(start_s * 48000) + at
        container.mux(track.encode(frame))
    container.mux(track.encode(None))


def turn_mp4(path: Path, degrees: int, size: tuple[int, int] = SIZE) -> Path:
    """Write a display matrix into the track header of an MP4."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd")
    offset = at + 4 + (40 if data[at + 4] == 0 else 52)
    a, b, c, d = {90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}[degrees]
    shift = {90: (size[1], 0), 180: size, 270: (0, size[0])}[degrees]
    values = [a << 16, b << 16, 0, c << 16, d << 16, 0, shift[0], shift[1], 1 << 30]
    data[offset : offset + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in values)
    path.write_bytes(bytes(data))
    return path


def unchanged(frame: Frame) -> FusedFrame:
    """A frame nobody touched."""
    return FusedFrame(frame)


def with_patch(
    frame: Frame, *, x: int = 13, y: int = 9, colour: tuple[int, int, int] = (30, 200, 60)
) -> FusedFrame:
    """The frame with an L-shaped patch at an odd place."""
    width, height = min(17, frame.image.shape[1] - x), min(15, frame.image.shape[0] - y)
    changed = np.full((height, width), 255, np.uint8)
    changed[: height // 2, width // 2 :] = 0
    region = frame.image[y : y + height, x : x + width]
    region[changed > 0] = colour
    return FusedFrame(frame, (Patch(x, y, region.copy(), changed),))


def patch_mask(fused: FusedFrame) -> npt.NDArray[np.bool_]:
    """Where the patches changed the frame, shape ``(h, w)``."""
    mask = np.zeros(fused.frame.image.shape[:2], np.bool_)
    for patch in fused.patches:
        height, width = patch.changed.shape
        mask[patch.y : patch.y + height, patch.x : patch.x + width] |= patch.changed > 0
    return mask
