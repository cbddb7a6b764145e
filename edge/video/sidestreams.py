"""Everything of a file beside its main picture: sound, subtitles, further tracks, covers, chapters.

A second demuxer on the same file runs along with the encoder, never further ahead than the picture written
last, so memory stays flat and packets come out interleaved. What the container takes is copied packet by
packet; sound it does not take is re-encoded, text subtitles are re-written in its own form, anything else is
dropped with a message.
"""

import logging
import re
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Stream
from av.subtitles.codeccontext import SubtitleCodecContext

from edge.video.containers import ContainerKind
from edge.video.reader import is_cover, main_video_stream, open_input

logger = logging.getLogger(__name__)

_LAYOUTS = {1: "mono", 2: "stereo", 3: "3.0", 4: "4.0", 5: "5.0", 6: "5.1", 7: "6.1", 8: "7.1"}
_STEREO_ENCODERS = frozenset({"libmp3lame", "mp2", "wmav2"})
_TEXT_CODECS = frozenset({"subrip", "srt", "webvtt", "mov_text", "text", "ass", "ssa"})
# FFmpeg's subtitle encoders do not open without one, whatever they write.
_ASS_HEADER = b"""[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, \
Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, \
MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""
_COVER_CODECS = frozenset({"mjpeg", "png"})
# Notes a muxer leaves about its own file; they would be wrong in another.
_STALE_TAGS = re.compile(
    r"^(duration|encoder|handler_name|vendor_id|rotate|alpha_mode|_statistics.*|number_of_.*|bps)(-\w+)?$",
    re.I,
)
_STALE_FILE_TAGS = re.compile(r"^(major_brand|minor_version|compatible_brands|encoder|software)$", re.I)


class _Lane(Protocol):
    """What becomes of the packets of one stream."""

    def take(self, packet: "Packet[Any]") -> None: ...

    def finish(self) -> None: ...


class SideStreams:
    """Carries all streams but the main picture from one file to another.

    Args:
        path: The input.
        output: The output; streams are added to it here, before its first packet.
        kind: Container of the output.
        same_family: Whether private streams of the input mean something in the output.
        shift_s: Taken off every time stamp, in seconds.
        start_s: Packets from this time stamp on.
        end_s: Packets before this time stamp; None: to the end.
    """

    def __init__(
        self,
        path: Path,
        output: OutputContainer,
        kind: ContainerKind,
        *,
        same_family: bool,
        shift_s: Fraction,
        start_s: Fraction | None,
        end_s: Fraction | None,
    ) -> None:
        self.messages: list[str] = []
        self._input: InputContainer = open_input(path)
        self.output = output
        self._kind = kind
        self._same_family = same_family
        self.shift_s, self._start_s, self._end_s = shift_s, start_s, end_s
        self._lanes: dict[int, _Lane] = {}
        main = main_video_stream(self._input)
        for stream in self._input.streams:
            lane = None if main is not None and stream.index == main.index else self._lane_for(stream)
            if lane is None:
                stream.discard = av.stream.Discard.all
            else:
                self._lanes[stream.index] = lane
        self._carry_chapters()
        output.metadata.update(
            {key: value for key, value in self._input.metadata.items() if not _STALE_FILE_TAGS.match(key)}
        )
        self._packets = self._wanted() if self._lanes else iter(())
        self._waiting: tuple[Fraction, Packet[Any]] | None = None

    def close(self) -> None:
        """Close the second demuxer."""
        self._input.close()

    def pump(self, until_s: Fraction) -> None:
        """Write every packet up to a time stamp of the input."""
        while True:
            if self._waiting is None:
                self._waiting = next(self._packets, None)
            if self._waiting is None or self._waiting[0] > until_s:
                return
            packet = self._waiting[1]
            self._waiting = None
            self._lanes[packet.stream.index].take(packet)

    def finish(self) -> None:
        """Write all that is left."""
        self.pump(Fraction(10**12))
        for lane in self._lanes.values():
            lane.finish()

    # Choosing

    def _lane_for(self, stream: Stream) -> _Lane | None:
        name = _codec_name(stream)
        if self._kind.one_of_each and stream.type in ("audio", "video") and self._has_one(stream):
            self.messages.append(
                f"{stream.type} track {stream.index} dropped: {self._kind.muxer} files hold one of each kind"
            )
            return None
        if stream.type == "audio":
            return self._sound_lane(stream, name)
        if stream.type == "subtitle":
            return self._subtitle_lane(stream, name)
        if stream.type == "video":
            return self._picture_lane(stream, name)
        if stream.type in ("data", "attachment") and self._same_family and self._kind.family == "matroska":
            return self._copy_lane(stream)
        self._dropped(stream, name)
        return None

    def _has_one(self, stream: Stream) -> bool:
        return any(other.type == stream.type for other in self.output.streams)

    def _dropped(self, stream: Stream, name: str) -> None:
        what = {"audio": "sound track", "video": "picture track", "subtitle": "subtitles"}.get(
            stream.type, stream.type
        )
        self.messages.append(
            f"{what} {stream.index} ({name}) dropped: {self._kind.muxer} files do not take it"
        )

    def _sound_lane(self, stream: Stream, name: str) -> _Lane | None:
        codec = stream.codec_context
        if codec is None or not getattr(codec, "sample_rate", 0):
            self._dropped(stream, name)
            return None
        if self._kind.sound is None or name in self._kind.sound:
            lane = self._copy_lane(stream)
            if lane is not None:
                return lane
        if not self._kind.sound_encoder:
            self._dropped(stream, name)
            return None
        encoder = self._kind.sound_encoder
        self.messages.append(
            f"sound track {stream.index} re-encoded from {name} to {encoder.removeprefix('lib')}: "
            f"{self._kind.muxer} files do not take {name}"
        )
        return _Reencoded(self, stream, encoder)

    def _subtitle_lane(self, stream: Stream, name: str) -> _Lane | None:
        if self._kind.subtitles is None or name in self._kind.subtitles:
            lane = self._copy_lane(stream)
            if lane is not None:
                return lane
        if self._kind.subtitle_encoder and name in _TEXT_CODECS:
            if name in ("ass", "ssa"):
                self.messages.append(f"subtitles {stream.index} keep their text but lose their styles")
            return _Rewritten(self, stream, name, self._kind.subtitle_encoder)
        self._dropped(stream, name)
        return None

    def _picture_lane(self, stream: Stream, name: str) -> _Lane | None:
        if is_cover(stream):
            if self._kind.pictures and name in _COVER_CODECS:
                return self._copy_lane(stream)
            self.messages.append(
                f"cover picture {stream.index} dropped: {self._kind.muxer} files do not take it"
            )
            return None
        lane = self._copy_lane(stream)
        if lane is None:
            self._dropped(stream, name)
        else:
            self.messages.append(f"picture track {stream.index} is carried over as it is, without any fusion")
        return lane

    def _copy_lane(self, stream: Stream) -> _Lane | None:
        try:
            target = self.output.add_stream_from_template(stream, opaque=True)
        except (ValueError, av.error.FFmpegError) as err:
            logger.debug("copy_refused stream=%d error=%s", stream.index, err)
            return None
        return _Copied(self, stream, target)

    def _carry_chapters(self) -> None:
        chapters = []
        for chapter in self._input.chapters():
            base = chapter["time_base"] or Fraction(1, 1000)
            start, end = chapter["start"] * base, chapter["end"] * base
            if self._end_s is not None and start >= self._end_s:
                continue
            if self._start_s is not None and end <= self._start_s:
                continue
            first = max(start, self._start_s or start) - self.shift_s
            last = (end if self._end_s is None else min(end, self._end_s)) - self.shift_s
            chapters.append(
                chapter | {"start": round(first / base), "end": round(last / base), "time_base": base}
            )
        if chapters:
            self.output.set_chapters(chapters)

    # Reading

    def _wanted(self) -> Iterator[tuple[Fraction, "Packet[Any]"]]:
        """Packets inside the trim, with their time stamp in seconds."""
        if self._start_s:
            try:
                self._input.seek(max(int((self._start_s - 5) * av.time_base), 0))
            except av.error.FFmpegError:
                logger.debug("seek_refused path=%s", self._input.name)
        streams = [self._input.streams[index] for index in self._lanes]
        packets = self._input.demux(*streams)
        while True:
            try:
                packet = next(packets)
            except (StopIteration, av.error.FFmpegError, OSError):
                return
            timed = self._timed(packet)
            if timed is not None:
                yield timed, packet

    def _timed(self, packet: "Packet[Any]") -> Fraction | None:
        if packet.stream.index not in self._lanes or not packet.size:
            return None
        if is_cover(packet.stream):
            packet.pts = packet.dts = round(self.shift_s / packet.time_base)
            return self.shift_s
        stamp = packet.dts if packet.pts is None else packet.pts
        if stamp is None:
            return None
        time_s = stamp * packet.time_base
        length = (packet.duration or 0) * packet.time_base
        if self._start_s is not None and not self._reaches_in(packet, time_s, length):
            return None
        if self._end_s is not None and time_s >= self._end_s:
            return None
        return time_s

    def _reaches_in(self, packet: "Packet[Any]", time_s: Fraction, length: Fraction) -> bool:
        assert self._start_s is not None
        if packet.stream.type == "subtitle":
            return time_s + length > self._start_s
        return time_s >= self._start_s

    # Writing

    def shifted(self, packet: "Packet[Any]") -> None:
        """Move a packet to the output's clock."""
        offset = round(self.shift_s / packet.time_base)
        if packet.pts is not None:
            packet.pts -= offset
        if packet.dts is not None:
            packet.dts -= offset
        if (
            self._start_s is not None
            and packet.stream.type == "subtitle"
            and packet.pts is not None
            and packet.pts < 0
        ):
            packet.duration = (packet.duration or 0) + packet.pts
            packet.pts = packet.dts = 0

    def mux(self, packets: "Packet[Any] | list[Packet[Any]]") -> None:
        """Hand packets to the output."""
        self.output.mux(packets)


def _codec_name(stream: Stream) -> str:
    codec = stream.codec_context
    if codec is None:
        return "unknown"
    canonical = getattr(codec.codec, "canonical_name", None) or codec.codec.name
    return {"mp3float": "mp3", "srt": "subrip"}.get(canonical, canonical)


def _carry_tags(source: Stream, target: Stream) -> None:
    target.metadata.update(
        {key: value for key, value in source.metadata.items() if not _STALE_TAGS.match(key)}
    )
    target.disposition = source.disposition


class _Copied:
    """Packets as they are."""

    def __init__(self, side: SideStreams, source: Stream, target: Stream) -> None:
        self._side, self._target = side, target
        self._last_dts: int | None = None
        _carry_tags(source, target)

    def take(self, packet: "Packet[Any]") -> None:
        self._side.shifted(packet)
        if packet.dts is None:
            packet.dts = packet.pts
        # Containers insist on rising decode stamps; a damaged or repeated one is moved by the least.
        if self._last_dts is not None and packet.dts is not None and packet.dts <= self._last_dts:
            if packet.stream.type == "audio":
                packet.pts = packet.dts = self._last_dts + 1
            else:
                packet.dts = self._last_dts + 1
                packet.pts = max(packet.pts or packet.dts, packet.dts)
        self._last_dts = packet.dts
        packet.stream = self._target
        self._side.mux(packet)

    def finish(self) -> None:
        """Nothing is held back."""


class _Reencoded:
    """Sound that the container does not take as it is."""

    # Good enough that nobody hears it: 160 kbit/s for two channels, 64 more for each further one.
    _STEREO_BITS, _CHANNEL_BITS = 160_000, 64_000
    _OPUS_RATE = 48_000
    _RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)

    def __init__(self, side: SideStreams, source: Stream, encoder: str) -> None:
        self._side = side
        codec = source.codec_context
        assert isinstance(codec, AudioCodecContext)
        self._decoder = codec
        rate = min(self._RATES, key=lambda known: (abs(known - codec.sample_rate), -known))
        if encoder == "libopus":
            rate = self._OPUS_RATE
        channels = codec.layout.nb_channels
        if channels not in _LAYOUTS or (encoder in _STEREO_ENCODERS and channels > 2):
            channels = 2
        # By count, because raw sound often does not say which channel is where.
        layout = _LAYOUTS[channels]
        bits = self._STEREO_BITS + self._CHANNEL_BITS * max(channels - 2, 0)
        target = side.output.add_stream(encoder, rate=rate, layout=layout, bit_rate=bits)
        assert isinstance(target, AudioStream)
        self._target = target
        self._target.time_base = Fraction(1, rate)
        _carry_tags(source, self._target)

    def take(self, packet: "Packet[Any]") -> None:
        try:
            frames = packet.decode()
        except (av.error.FFmpegError, ValueError) as err:
            logger.debug("sound_damaged error=%s", err)
            return
        self._encode(frames)

    def _encode(self, frames: list[Any]) -> None:
        for frame in frames:
            if frame.pts is not None and frame.time_base is not None:
                frame.pts -= round(self._side.shift_s / frame.time_base)
            self._side.mux(self._target.encode(frame))

    def finish(self) -> None:
        self._encode(self._decoder.decode(None))
        self._side.mux(self._target.encode(None))


class _Rewritten:
    """Text subtitles in the container's own form."""

    def __init__(self, side: SideStreams, source: Stream, name: str, encoder: str) -> None:
        self._side, self._name, self._encoder = side, name, encoder
        self._target = side.output.add_stream(encoder)
        assert isinstance(self._target.codec_context, SubtitleCodecContext)
        self._target.codec_context.subtitle_header = _ASS_HEADER
        self._target.time_base = Fraction(1, 1000)
        _carry_tags(source, self._target)

    def take(self, packet: "Packet[Any]") -> None:
        self._side.shifted(packet)
        text = _plain_text(bytes(packet), self._name)
        if not text:
            return
        payload = text.encode()
        if self._encoder == "mov_text":
            payload = struct.pack(">H", len(payload)) + payload
        new: Packet[Any] = Packet(payload)
        new.time_base, new.pts, new.dts = packet.time_base, packet.pts, packet.pts
        new.duration = packet.duration
        new.stream = self._target
        self._side.mux(new)

    def finish(self) -> None:
        """Nothing is held back."""


def _plain_text(payload: bytes, codec: str) -> str:
    """The words of one subtitle."""
    if codec == "mov_text":
        length = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 0
        return payload[2 : 2 + length].decode("utf-8", "replace")
    text = payload.decode("utf-8", "replace")
    if codec in ("ass", "ssa"):
        fields = text.split(",", 8)
        text = re.sub(r"\{[^}]*\}", "", fields[-1]).replace(r"\N", "\n").replace(r"\n", "\n")
    return text.strip("\r\n")
