"""Which file ending means which container, and what each container takes.

The lists hold what ordinary players play from such a file, not everything a muxer can be talked into:
Vorbis or raw PCM in an MP4, for one, is a valid file that stays silent on most machines.
"""

from dataclasses import dataclass
from pathlib import Path

from shared.errors import UsageError

CODECS = ("auto", "h264", "h265", "vp9", "av1", "ffv1", "prores")
"""Names that may be asked for."""

_PCM = frozenset(
    f"pcm_{name}"
    for name in ("s16le", "s16be", "s24le", "s24be", "s32le", "s32be", "f32le", "f64le", "u8", "s8")
)
_MPEG_SOUND = frozenset({"aac", "mp3", "ac3", "eac3"})


@dataclass(frozen=True, slots=True)
class ContainerKind:
    """One kind of file.

    Attributes:
        muxer: FFmpeg's name of the writer.
        family: Containers of one family pass each other's private streams on.
        video: Picture codecs that fit, the default first.
        sound: Sound codecs that are copied; None: all of them.
        sound_encoder: What any other sound is re-encoded with.
        subtitles: Subtitle codecs that are copied; None: all of them.
        subtitle_encoder: What other text subtitles become; None: they are dropped.
        constant_rate: The container counts frames, it knows no time stamps.
        pictures: Cover pictures can be carried.
        one_of_each: Players know one picture and one sound track.
    """

    muxer: str
    family: str
    video: tuple[str, ...]
    sound: frozenset[str] | None
    sound_encoder: str
    subtitles: frozenset[str] | None = frozenset()
    subtitle_encoder: str | None = None
    constant_rate: bool = False
    pictures: bool = False
    one_of_each: bool = False


_MP4 = ContainerKind(
    muxer="mp4",
    family="mov",
    video=("h264", "h265", "av1", "vp9"),
    sound=_MPEG_SOUND | {"alac", "opus", "flac"},
    sound_encoder="aac",
    subtitles=frozenset({"mov_text"}),
    subtitle_encoder="mov_text",
    pictures=True,
)
_MOV = ContainerKind(
    muxer="mov",
    family="mov",
    video=("h264", "h265", "prores"),
    sound=_MPEG_SOUND | {"alac"} | _PCM,
    sound_encoder="aac",
    subtitles=frozenset({"mov_text"}),
    subtitle_encoder="mov_text",
)
_MKV = ContainerKind(
    muxer="matroska",
    family="matroska",
    video=("h264", "h265", "vp9", "av1", "ffv1", "prores"),
    sound=None,
    sound_encoder="aac",
    subtitles=frozenset(
        {"subrip", "srt", "ass", "ssa", "webvtt", "hdmv_pgs_subtitle", "dvd_subtitle", "dvb_subtitle"}
    ),
    subtitle_encoder="subrip",
)
_WEBM = ContainerKind(
    muxer="webm",
    family="matroska",
    video=("vp9", "av1"),
    sound=frozenset({"opus", "vorbis"}),
    sound_encoder="libopus",
    subtitles=frozenset({"webvtt"}),
    subtitle_encoder="webvtt",
)
_AVI = ContainerKind(
    muxer="avi",
    family="avi",
    video=("mpeg4", "h264", "ffv1"),  # H.264 in AVI has no reliable time stamps
    sound=frozenset({"mp3", "ac3", "mp2", "pcm_s16le", "pcm_u8", "adpcm_ms"}),
    sound_encoder="libmp3lame",
    constant_rate=True,
)
_TS = ContainerKind(
    muxer="mpegts",
    family="mpegts",
    video=("h264", "h265"),
    sound=_MPEG_SOUND | {"mp2", "dts", "opus"},
    sound_encoder="aac",
    subtitles=frozenset({"dvb_subtitle"}),
)
_FLV = ContainerKind(
    muxer="flv",
    family="flv",
    video=("h264",),
    sound=frozenset({"aac"}),
    sound_encoder="aac",
    one_of_each=True,
)
_WMV = ContainerKind(
    muxer="asf",
    family="asf",
    video=("wmv2", "h264"),
    sound=frozenset({"wmav1", "wmav2", "wmapro", "mp3"}),
    sound_encoder="wmav2",
)
_MPG = ContainerKind(
    muxer="vob",
    family="mpeg",
    video=("mpeg2",),
    sound=frozenset({"mp2", "mp3", "ac3"}),
    sound_encoder="mp2",
    constant_rate=True,
)
_H264 = ContainerKind(
    muxer="h264", family="raw", video=("h264",), sound=frozenset(), sound_encoder="", constant_rate=True
)

KINDS: dict[str, ContainerKind] = {
    ".mp4": _MP4,
    ".m4v": _MP4,
    ".3gp": _MP4,
    ".mov": _MOV,
    ".qt": _MOV,
    ".mkv": _MKV,
    ".webm": _WEBM,
    ".avi": _AVI,
    ".ts": _TS,
    ".m2ts": _TS,
    ".mts": _TS,
    ".flv": _FLV,
    ".wmv": _WMV,
    ".asf": _WMV,
    ".mpg": _MPG,
    ".mpeg": _MPG,
    ".vob": _MPG,
    ".h264": _H264,
}
"""Container by the ending of the output's name, in lower case."""

# What an input without an ending, or with one that lies, is written as again: by the reader's format name.
_ENDING_OF_FORMAT = {
    "mov,mp4,m4a,3gp,3g2,mj2": ".mp4",
    "matroska,webm": ".mkv",
    "avi": ".avi",
    "mpegts": ".ts",
    "flv": ".flv",
    "asf": ".wmv",
    "mpeg": ".mpg",
    "h264": ".h264",
}


def container_for(path: Path, source: Path, input_format: str) -> ContainerKind:
    """The container an output shall have.

    Args:
        path: Output; its ending decides.
        source: Input. An output without an ending, or with an unknown one that the input has too, becomes
            what the input is.
        input_format: Format name of the input.

    Raises:
        UsageError: The ending is none of ours.
    """
    ending = path.suffix.lower()
    if ending in KINDS:
        return KINDS[ending]
    if not ending or ending == source.suffix.lower():
        return KINDS[_ENDING_OF_FORMAT.get(input_format, ".mkv")]
    raise UsageError(f"cannot write a video as '{ending}'; endings that work: {', '.join(KINDS)}")


def same_family(kind: ContainerKind, input_format: str) -> bool:
    """Whether input and output are relatives, so that private streams and odd start times fit."""
    ending = _ENDING_OF_FORMAT.get(input_format)
    return ending is not None and KINDS[ending].family == kind.family
