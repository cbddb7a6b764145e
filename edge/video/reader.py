"""Video file to frames: upright, in order, each with its own time.

Rules, each of which some program gets wrong:

- A frame's time is the one the file gives it. Nothing is derived from an average rate unless the stream has
  no time stamps at all (bare H.264).
- The decoder holds frames back to put them in order; the last ones come out only when it is flushed.
- The display matrix is obeyed on the native frame, so what goes on is upright and the output needs no matrix.
- What cannot be decoded is counted and left out; the good frames around it go on.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import av
from av.codec.context import ThreadType
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from edge.video.hdr import HdrMetadata, hdr_of
from edge.video.pixels import BgrConverter, matrix_of, planar_twin, range_of
from edge.video.turning import Turn, Turner, turn_of
from shared.errors import InputError, UsageError
from shared.frames import Frame

logger = logging.getLogger(__name__)

# Playlists and streaming descriptions name other files and addresses: a media file must not open those.
_PROTOCOLS = "file,crypto,data"
# After this many read errors in a row the rest of a file is given up.
_MAX_READ_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Trim:
    """The part of a video to take.

    Attributes:
        start_s: Frames shown from here on, in seconds from the start of the file; None: from the start.
        end_s: Frames shown before this; None: to the end.
    """

    start_s: float | None = None
    end_s: float | None = None

    def __post_init__(self) -> None:
        if self.start_s is not None and self.start_s < 0:
            raise UsageError(f"trim: the start ({self.start_s:g} s) must not be negative")
        if self.end_s is not None and self.end_s <= (self.start_s or 0.0):
            raise UsageError(
                f"trim: the end ({self.end_s:g} s) must come after the start ({self.start_s or 0:g} s)"
            )

    def __bool__(self) -> bool:
        return self.start_s is not None or self.end_s is not None


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What is known of a video before its frames are read.

    Attributes:
        width: As shown upright, pixels.
        height: As shown upright, pixels.
        frame_rate: Average, frames per second; None where the file does not tell.
        duration_s: Length of the part that is read; None where the file does not tell.
        frame_count: Estimate for the part that is read; None where there is no ground for one.
        has_sound: Whether there is at least one sound track.
        codec: FFmpeg's name of the picture codec.
        pixel_format: Of the native frames.
        time_base: Seconds per unit of a frame's ``pts``.
        sample_aspect_ratio: Width of a pixel by its height, as shown upright.
        colour_range: AVColorRange number.
        colour_primaries: AVColorPrimaries number.
        colour_transfer: AVColorTransferCharacteristic number.
        colour_matrix: AVColorSpace number.
        interlaced: The frames hold two fields.
        hdr: Static HDR metadata.
        format: FFmpeg's name of the container format.
    """

    width: int
    height: int
    frame_rate: Fraction | None
    duration_s: float | None
    frame_count: int | None
    has_sound: bool
    codec: str
    pixel_format: str
    time_base: Fraction
    sample_aspect_ratio: Fraction
    colour_range: int
    colour_primaries: int
    colour_transfer: int
    colour_matrix: int
    interlaced: bool
    hdr: HdrMetadata
    format: str


def open_input(path: Path) -> InputContainer:
    """Open a media file for reading, and only a file.

    Raises:
        InputError: It cannot be opened or is no media file.
    """
    try:
        return av.open(
            f"file:{path.absolute()}",
            "r",
            options={"protocol_whitelist": _PROTOCOLS},
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, OSError, ValueError) as err:
        raise InputError(path, _why_unreadable(path, err)) from err


def _why_unreadable(path: Path, err: Exception) -> str:
    if os.path.isdir(path):  # noqa: PTH112 - unlike its twin it never raises
        return "is a folder, not a file"
    if not os.path.exists(path):  # noqa: PTH110 - the same
        return "there is no such file"
    if isinstance(err, PermissionError):
        return "may not be read (permission denied)"
    if path.stat().st_size == 0:
        return "is empty (0 bytes)"
    return "is not a video, or it is damaged beyond reading"


def main_video_stream(container: InputContainer) -> VideoStream | None:
    """The stream a player shows: the default one, else the first; never a cover picture."""
    real = [s for s in container.streams.video if not is_cover(s) and s.codec_context is not None]
    marked = [s for s in real if s.disposition & Disposition.default]
    return next(iter(marked or real), None)


def is_cover(stream: av.stream.Stream) -> bool:
    """Whether a picture stream is the cover of the file and no video."""
    return bool(stream.disposition & (Disposition.attached_pic | Disposition.timed_thumbnails))


class VideoReader:
    """Frames of a video in the order they are shown. Iterate once; use from one thread.

    The first frame is decoded on opening, so a file without any picture fails here and not later.

    Args:
        path: The file.
        trim: The part to read.
        thread_count: Decoder threads.

    Attributes:
        path: The file.
        trim: The part that is read.
        info: What is known of the video.

    Raises:
        InputError: The file cannot be read or holds no picture that can be decoded.
    """

    def __init__(self, path: Path, *, trim: Trim = Trim(), thread_count: int = 1) -> None:
        self.path = path
        self.trim = trim
        self._thread_count = thread_count
        self._container = open_input(path)
        self._bgr = BgrConverter()
        self._tidy = VideoReformatter()
        self._damaged = 0
        self._given = 0
        self._resized = 0
        self._ended_early = ""
        self._turner: Turner | None = None
        self._turn: tuple[int, Turn | None] | None = None
        self._last_pts: int | None = None
        self._last_duration = 0
        self._finished = False
        try:
            self._stream = self._require_stream()
            self._open_decoder()
            self._native = self._kept(self._seek_and_decode())
            first = self._require_first()
            self.info = self._describe(first)
            self._first: VideoFrame | None = first
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._container.close()

    @property
    def start_s(self) -> Fraction:
        """Time stamp, in seconds, at which the file starts: what a player calls zero."""
        return Fraction(self._container.start_time or 0, av.time_base)

    @property
    def origin_s(self) -> Fraction:
        """Time stamp, in seconds, that the part to read starts at; equals `start_s` without a trim."""
        return self.start_s + _seconds(self.trim.start_s or 0.0)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the file, as far as it has been read."""
        found = []
        if self._damaged:
            found.append(f"{self._damaged} damaged places could not be decoded and were left out")
        if self._ended_early:
            found.append(self._ended_early)
        if self._resized:
            found.append(f"the picture size changes: {self._resized} frames were scaled to the first size")
        promised = self._stream.frames
        if self._finished and not self.trim and promised and self._given < promised and self._lost_some():
            found.append(f"{self._given} of {promised} frames could be read")
        return tuple(found)

    def _lost_some(self) -> bool:
        # An index also counts frames that an edit list hides: fewer frames alone are no fault.
        return bool(self._damaged or self._ended_early)

    def __iter__(self) -> Iterator[Frame]:
        first, self._first = self._first, None
        if first is not None:
            yield self._frame(first)
        for native in self._native:
            yield self._frame(native)

    def _frame(self, native: VideoFrame) -> Frame:
        index, self._given = self._given, self._given + 1
        return Frame(index, self._bgr.to_bgr(native), native.pts, self._time_base, native)

    # Opening

    def _require_stream(self) -> VideoStream:
        stream = main_video_stream(self._container)
        if stream is None:
            sound_only = bool(self._container.streams.audio)
            raise InputError(self.path, "holds sound but no picture" if sound_only else "holds no picture")
        return stream

    def _open_decoder(self) -> None:
        for other in self._container.streams:
            if other.index != self._stream.index:
                other.discard = av.stream.Discard.all
        self._time_base = self._stream.time_base or Fraction(1, 90_000)
        self._decoder = self._stream.codec_context
        if self._stream.metadata.get("alpha_mode") == "1" and self._decoder.name in ("vp9", "vp8"):
            # FFmpeg's own VP8 and VP9 decoders leave the opacity out; libvpx reads it.
            name = "libvpx-vp9" if self._decoder.name == "vp9" else "libvpx"
            decoder = cast(VideoCodecContext, av.CodecContext.create(name, "r"))
            decoder.extradata = self._decoder.extradata
            self._decoder = decoder
        self._decoder.thread_type = ThreadType.AUTO
        self._decoder.thread_count = self._thread_count

    def _require_first(self) -> VideoFrame:
        first = next(self._native, None)
        if first is None:
            if self.trim and self._given_any:
                raise InputError(self.path, "the part asked for by the trim holds no frame")
            raise InputError(self.path, "not one picture in it can be decoded")
        return first

    def _describe(self, first: VideoFrame) -> VideoInfo:
        rate = self._stream.average_rate or self._stream.guessed_rate
        if self._stream.start_time is None and first.duration:
            rate = 1 / (
                first.duration * self._time_base
            )  # a bare stream: the rate is a default, the step is real
        ratio = self._stream.sample_aspect_ratio or Fraction(1)
        if self._turner is not None and self._turner.swaps_axes:
            ratio = 1 / ratio
        duration = self._duration_s()
        count = round(duration * rate) if duration is not None and rate else None
        if self._stream.frames and not self.trim:
            # The index counts what an edit list hides, the length does not.
            count = min(self._stream.frames, count + 1) if count is not None else self._stream.frames
        return VideoInfo(
            width=first.width,
            height=first.height,
            frame_rate=rate,
            duration_s=duration,
            frame_count=max(count, 1) if count is not None else None,
            has_sound=bool(self._container.streams.audio),
            codec=self._stream.codec_context.name,
            pixel_format=first.format.name,
            time_base=self._time_base,
            sample_aspect_ratio=ratio,
            colour_range=int(range_of(first))
            if first.format.name.startswith("yuvj")
            else int(first.color_range),
            colour_primaries=int(first.color_primaries),
            colour_transfer=int(first.color_trc),
            colour_matrix=int(first.colorspace),
            interlaced=first.interlaced_frame,
            hdr=hdr_of(first),
            format=self._container.format.name,
        )

    def _duration_s(self) -> float | None:
        """Length of the part to read, from the picture stream where it tells, else from the file."""
        if self._stream.duration:
            whole = float(self._stream.duration * self._time_base)
        elif self._container.duration:
            whole = self._container.duration / av.time_base
        else:
            return None
        start = self.trim.start_s or 0.0
        end = whole if self.trim.end_s is None else min(self.trim.end_s, whole)
        return max(end - start, 0.0)

    # Decoding

    def _seek_and_decode(self) -> Iterator[VideoFrame]:
        """Frames from the key frame before the start of the trim on."""
        if not self.trim.start_s:
            yield from self._decoded()
            return
        with contextlib.suppress(
            av.error.FFmpegError
        ):  # a bare stream cannot seek: it is read from its start
            self._container.seek(int(self.origin_s / self._time_base), stream=self._stream)
        frames = self._decoded()
        first = next(frames, None)
        if first is None or first.pts is None or first.pts * self._time_base > self.origin_s:
            # The seek went too far, as it may where a container has no index.
            self._reopen()
            yield from self._decoded()
            return
        yield first
        yield from frames

    def _reopen(self) -> None:
        self._container.close()
        self._container = open_input(self.path)
        self._stream = self._require_stream()
        self._open_decoder()
        self._damaged, self._ended_early, self._last_pts = 0, "", None

    def _packets(self) -> "Iterator[Packet[VideoStream] | None]":
        """Packets of the stream, then None to flush the decoder."""
        errors = 0
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    errors = 0
                    if packet.size:
                        yield packet
                break
            except (av.error.FFmpegError, OSError) as err:
                errors += 1
                logger.debug("read_error path=%s error=%s", self.path, err)
                if errors > _MAX_READ_ERRORS:
                    self._ended_early = "the file cannot be read to its end"
                    break
        yield None

    def _decoded(self) -> Iterator[VideoFrame]:
        """Every picture that can be decoded, as it is stored, with a time stamp."""
        for packet in self._packets():
            if packet is not None and packet.is_corrupt:
                self._ended_early = "some pictures in it are incomplete"
            try:
                frames = self._decoder.decode(packet)
            except av.error.EOFError:
                continue
            except (av.error.FFmpegError, ValueError) as err:
                self._damaged += 1
                logger.debug("decode_error path=%s error=%s", self.path, err)
                continue
            for frame in frames:
                self._stamp(frame)
                yield frame

    def _stamp(self, frame: VideoFrame) -> None:
        """Give a frame without a time the next one that fits."""
        step = self._last_duration or self._nominal_step()
        if self._container.format.name == "avi" and not self._decoder.has_b_frames:
            frame.pts = frame.dts  # AVI stores no other stamps; what is given as pts is a guess, a frame late
        if frame.pts is None:
            following = (
                (self._last_pts + step) if self._last_pts is not None else (self._stream.start_time or 0)
            )
            later = frame.dts is not None and (self._last_pts is None or frame.dts > self._last_pts)
            frame.pts = frame.dts if later else following
        frame.time_base = self._time_base
        if frame.duration:
            self._last_duration = frame.duration
        self._last_pts = frame.pts

    def _nominal_step(self) -> int:
        rate = self._stream.guessed_rate or self._stream.average_rate or Fraction(25)
        return max(round(1 / (rate * self._time_base)), 1)

    # From decoded to upright

    def _kept(self, frames: Iterator[VideoFrame]) -> Iterator[VideoFrame]:
        """The frames of the trim, upright, planar and of one size."""
        self._given_any = False
        start_us = _microseconds(self.origin_s) if self.trim.start_s else None
        end_us = None
        if self.trim.end_s is not None:
            end_us = _microseconds(self.start_s + _seconds(self.trim.end_s))
        size: tuple[int, int, str] | None = None
        for frame in frames:
            self._given_any = True
            time_us = _microseconds((frame.pts or 0) * self._time_base)
            if start_us is not None and time_us < start_us:
                continue
            if end_us is not None and time_us >= end_us:
                return
            upright = self._upright(frame)
            size = size or (upright.width, upright.height, upright.format.name)
            yield self._in_size(upright, size)
        self._finished = True

    def _upright(self, frame: VideoFrame) -> VideoFrame:
        name = planar_twin(frame.format.name)
        if name != frame.format.name:
            frame = _retimed(self._tidy.reformat(frame, format=name, threads=1), frame)
        turn = self._turn_of(frame)
        if turn is None:
            return frame
        if self._turner is None or not self._turner.fits(frame, turn):
            self._turner = Turner(frame, turn)
        return self._turner.turn(frame)

    def _turn_of(self, frame: VideoFrame) -> Turn | None:
        # Looked up only when the rotation changes: PyAV ties a frame whose side data were looked at into a
        # reference cycle, and hundreds of megabytes of frames would wait for the garbage collector.
        rotation = frame.rotation
        if self._turn is None or self._turn[0] != rotation:
            self._turn = (rotation, turn_of(frame))
        return self._turn[1]

    def _in_size(self, frame: VideoFrame, size: tuple[int, int, str]) -> VideoFrame:
        width, height, name = size
        if (frame.width, frame.height, frame.format.name) == size:
            return frame
        self._resized += 1
        scaled = self._tidy.reformat(
            frame,
            width=width,
            height=height,
            format=name,
            src_colorspace=matrix_of(frame),
            dst_colorspace=matrix_of(frame),
            src_color_range=range_of(frame),
            dst_color_range=range_of(frame),
            threads=1,
        )
        return _retimed(scaled, frame)


def _retimed(new: VideoFrame, old: VideoFrame) -> VideoFrame:
    new.pts, new.time_base, new.duration = old.pts, old.time_base, old.duration
    return new


def _seconds(value: float) -> Fraction:
    """Seconds as a fraction, to the microsecond: 0.1 means a tenth and not the float just above it."""
    return Fraction(round(value * 1_000_000), 1_000_000)


def _microseconds(value: Fraction | int) -> int:
    return round(value * 1_000_000)
