"""Fused frames to a video file that is, apart from the faces, the input again.

- Time stamps are the reader's. The encoder counts in the input's time base, so nothing is rounded.
- A frame without patches goes to the encoder as the decoder gave it. In a frame with patches only the pixels
  of their masks are replaced; all others are the decoder's, bit for bit.
- Size, pixel shape, colour signalling, depth and opacity stay as far as the codec holds them; what does not
  is a message.

Odd sizes: H.264 and HEVC want even sizes for 4:2:0, so such a picture is stored as 4:4:4 in its true size
rather than padded or resampled. Browsers and desktop players show 4:4:4; some television sets do not.
"""

import errno
import logging
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
from av.codec.context import Flags
from av.packet import Packet
from av.stream import Disposition
from av.video.format import VideoFormat
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from av.video.stream import VideoStream

from edge.outputs import output_reason
from edge.video.containers import container_for, same_family
from edge.video.encoders import EncoderPlan, plan_encoder
from edge.video.pixels import PatchWriter, assumed_matrix, matrix_of, range_of
from edge.video.reader import VideoReader
from edge.video.sidestreams import SideStreams
from shared.errors import InputError, OutputError
from shared.frames import FusedFrame

logger = logging.getLogger(__name__)

_DEFAULT_RATE = Fraction(25)
# MPEG-2 knows only these rates.
_BROADCAST_RATES = tuple(
    Fraction(*r)
    for r in ((24000, 1001), (24, 1), (25, 1), (30000, 1001), (30, 1), (50, 1), (60000, 1001), (60, 1))
)
# Formats whose clock starts anywhere. Copied into another kind of file it starts at zero.
_FREE_CLOCKS = frozenset({"mpegts", "mpeg", "rtp", "rtsp"})
_MAX_MOVIE_TIMESCALE = 1_000_000
_MUXER_OPTIONS = {
    "mp4": {"movflags": "+faststart"},
    "mov": {"movflags": "+faststart"},
    "mpegts": {"mpegts_copyts": "1"},
    # Sound in AAC begins a little before zero. Moving everything up for it would change the picture's stamps.
    "matroska": {"avoid_negative_ts": "disabled"},
    "webm": {"avoid_negative_ts": "disabled"},
    "avi": {"avoid_negative_ts": "disabled"},
}
_CONVERSION = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT


class VideoWriter:
    """Writes one video. Use as a context manager and from one thread.

    Leaving the block normally finishes the file; leaving it by an exception does not.

    Args:
        path: The output; its ending decides the container.
        reader: Where the frames, the sound and everything else come from.
        codec: ``auto`` or one of `edge.video.containers.CODECS`.
        quality: 0 (smallest) to 100 (best).
        thread_count: Encoder threads.

    Attributes:
        path: The output.
        messages: What was dropped or re-encoded, and why.

    Raises:
        UsageError: An ending, codec or quality that cannot be.
        OutputError: The file cannot be created.
    """

    def __init__(
        self,
        path: Path,
        reader: VideoReader,
        *,
        codec: str = "auto",
        quality: int = 80,
        thread_count: int = 2,
    ) -> None:
        info = reader.info
        self.path = path
        self.messages: list[str] = []
        self._reader = reader
        self._kind = container_for(path, reader.path, info.format)
        self._plan = plan_encoder(self._kind, codec, quality, info)
        self.messages.extend(self._plan.messages)
        family = same_family(self._kind, info.format)
        self._shift_s = self._shift(family)
        self._patches = PatchWriter()
        self._fitting = VideoReformatter()
        self._last_pts: int | None = None
        self._durations: dict[int, int] = {}
        self._side: SideStreams | None = None
        self._open = True
        try:
            self._output = av.open(
                f"file:{path.absolute()}",
                "w",
                format=self._kind.muxer,
                container_options=_MUXER_OPTIONS.get(self._kind.muxer, {}) | self._clock_options(),
            )
        except (av.error.FFmpegError, OSError) as err:
            raise output_error(path, err) from err
        try:
            self._stream = self._add_picture(self._plan, thread_count)
            self._side = SideStreams(
                reader.path,
                self._output,
                self._kind,
                same_family=family,
                shift_s=self._shift_s,
                start_s=reader.origin_s if reader.trim.start_s else None,
                end_s=self._end_s(),
            )
        except (av.error.FFmpegError, OSError, ValueError) as err:
            self.abandon()
            raise output_error(path, err) from err
        except BaseException:
            self.abandon()
            raise
        self.messages.extend(self._side.messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # Setting up

    def _shift(self, family: bool) -> Fraction:
        """Taken off every time stamp: the start of the trim, or the start of a clock without meaning."""
        if self._reader.trim.start_s:
            return self._reader.origin_s
        if not family and self._reader.info.format in _FREE_CLOCKS:
            return self._reader.start_s
        return Fraction(0)

    def _clock_options(self) -> dict[str, str]:
        """MP4 and MOV note a late start in a unit of their own, by default the millisecond: too coarse."""
        ticks = self._reader.info.time_base.denominator
        fits = self._kind.family == "mov" and 1000 < ticks <= _MAX_MOVIE_TIMESCALE
        return {"movie_timescale": str(ticks)} if fits else {}

    def _end_s(self) -> Fraction | None:
        end = self._reader.trim.end_s
        return None if end is None else self._reader.start_s + Fraction(round(end * 1_000_000), 1_000_000)

    def _rate(self) -> Fraction:
        rate = self._reader.info.frame_rate or _DEFAULT_RATE
        if self._plan.encoder == "mpeg2video":
            return min(_BROADCAST_RATES, key=lambda known: abs(known - rate))
        return rate.limit_denominator(1_000_000)

    def _add_picture(self, plan: EncoderPlan, thread_count: int) -> VideoStream:
        info = self._reader.info
        rate = self._rate()
        self._time_base = 1 / rate if self._kind.constant_rate else info.time_base
        stream = self._output.add_stream(plan.encoder, rate=rate, options=dict(plan.options))
        assert isinstance(stream, VideoStream)
        codec = stream.codec_context
        codec.width, codec.height, codec.pix_fmt = info.width, info.height, plan.pixel_format
        codec.time_base = stream.time_base = self._time_base
        codec.sample_aspect_ratio = info.sample_aspect_ratio
        codec.thread_count = thread_count
        self._describe_colour(codec)
        if plan.codec_tag:
            codec.codec_tag = plan.codec_tag
        if plan.global_quality:
            codec.flags |= Flags.qscale
            codec.global_quality = plan.global_quality
        stream.disposition = Disposition.default
        return stream

    def _describe_colour(self, codec: Any) -> None:
        info = self._reader.info
        codec.color_range, codec.colorspace = info.colour_range, info.colour_matrix
        codec.color_primaries, codec.color_trc = info.colour_primaries, info.colour_transfer
        self._rgb_out = VideoFormat(self._plan.pixel_format).is_rgb
        if VideoFormat(info.pixel_format).is_rgb and not self._rgb_out:
            codec.color_range, codec.colorspace = ColorRange.MPEG, assumed_matrix(info.width, info.height)

    # Writing

    def write(self, fused: FusedFrame) -> None:
        """Encode one frame.

        Args:
            fused: Its frame comes from the reader given at the start; its ``image`` holds the patches.

        Raises:
            OutputError: The file cannot be written further.
        """
        native: VideoFrame = fused.frame.native
        if fused.patches:
            self._patches.apply(native, fused.frame.image, fused.patches)
        frame = self._fitted(native)
        frame.pts = self._stamp(fused.frame.pts or 0)
        frame.time_base = self._time_base
        frame.pict_type = PictureType.NONE  # the decoder's choice of key frames is not ours
        self._remember_duration(frame.pts, native)
        assert self._side is not None
        try:
            self._mux(self._stream.encode(frame))
            self._side.pump((fused.frame.pts or 0) * fused.frame.time_base)
        except (av.error.FFmpegError, OSError, ValueError) as err:
            raise output_error(self.path, err) from err

    def _fitted(self, native: VideoFrame) -> VideoFrame:
        """The frame in the encoder's pixel format; itself where that is its own."""
        if native.format.name == self._plan.pixel_format and self._plan.signals_colour:
            return native
        target_matrix, target_range = matrix_of(native), range_of(native)
        if not self._plan.signals_colour or (native.format.is_rgb and not self._rgb_out):
            target_matrix, target_range = assumed_matrix(native.width, native.height), ColorRange.MPEG
        return self._fitting.reformat(
            native,
            format=self._plan.pixel_format,
            src_colorspace=matrix_of(native),
            dst_colorspace=target_matrix,
            src_color_range=ColorRange.JPEG if native.format.is_rgb else range_of(native),
            dst_color_range=target_range,
            interpolation=_CONVERSION,
            threads=1,
        )

    def _stamp(self, pts: int) -> int:
        """The frame's time in the encoder's units; moved by the least where it would not rise."""
        time_base = self._reader.info.time_base
        if self._time_base == time_base:
            stamp = pts - round(self._shift_s / time_base)
        else:
            stamp = round((pts * time_base - self._shift_s) / self._time_base)
        if self._last_pts is not None and stamp <= self._last_pts:
            stamp = self._last_pts + 1
        self._last_pts = stamp
        return stamp

    def _remember_duration(self, pts: int, native: VideoFrame) -> None:
        if native.duration and not self._kind.constant_rate:
            self._durations[pts] = native.duration

    def _mux(self, packets: "list[Packet[Any]]") -> None:
        for packet in packets:
            duration = self._durations.pop(packet.pts, None) if packet.pts is not None else None
            if duration:
                packet.duration = duration
            self._output.mux(packet)

    # Ending

    def close(self) -> None:
        """Flush the encoder and finish the file.

        Raises:
            OutputError: The last of it could not be written.
        """
        if not self._open:
            return
        assert self._side is not None
        try:
            self._mux(self._stream.encode(None))
            self._side.finish()
            self._output.close()
        except (av.error.FFmpegError, OSError, ValueError) as err:
            self.abandon()
            raise output_error(self.path, err) from err
        self._open = False
        self._side.close()

    def abandon(self) -> None:
        """Let go of the file without finishing it; what lies there is no video."""
        if not self._open:
            return
        self._open = False
        if self._side is not None:
            self._side.close()
        try:
            self._output.close()
        except (av.error.FFmpegError, OSError, ValueError) as err:
            logger.debug("abandoned path=%s error=%s", self.path, err)


def output_error(path: Path, err: BaseException) -> OutputError | InputError:
    """Our error for what went wrong while writing a video."""
    if isinstance(err, InputError | OutputError):
        return err
    if isinstance(err, OSError) and err.errno in errno.errorcode:
        return OutputError(path, output_reason(err))
    return OutputError(path, f"the video could not be written ({getattr(err, 'strerror', None) or err})")
