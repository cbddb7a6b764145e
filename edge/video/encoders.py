"""Which encoder, which pixel format, which settings: from the input, the container and the request."""

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import av
import numpy as np
from av.video.format import VideoFormat

from edge.video.containers import CODECS, ContainerKind
from edge.video.pixels import depth_of, has_alpha, subsampling_of
from edge.video.reader import VideoInfo
from shared.errors import UsageError

_ENCODERS: Final = {
    "h264": "libx264",
    "h265": "libx265",
    "vp9": "libvpx-vp9",
    "av1": "libsvtav1",
    "ffv1": "ffv1",
    "prores": "prores_ks",
    "mpeg4": "mpeg4",
    "wmv2": "wmv2",
    "mpeg2": "mpeg2video",
}
# Of each quality scale the values for quality 0, 80 and 100. 80 is what an eye takes for the original.
_SCALES: Final = {
    "libx264": (51, 18, 6),
    "libx264rgb": (51, 18, 6),
    "libx265": (51, 20, 8),
    "libvpx-vp9": (63, 26, 8),
    "libsvtav1": (63, 28, 10),
    "prores_ks": (31, 9, 2),
    "mpeg4": (31, 3, 1),
    "wmv2": (31, 3, 1),
    "mpeg2video": (31, 3, 1),
}
_HOLDS_ALPHA: Final = {"matroska": ("vp9", "ffv1", "prores"), "webm": ("vp9",), "mov": ("prores",)}
# Of these FFmpeg's own and libvpx pad odd sizes inside the stream.
_TAKES_ODD_SIZES: Final = {"libvpx-vp9", "ffv1", "mpeg4", "wmv2", "mpeg2video", "libx264rgb"}
_FIXED_QUANTISER: Final = {"mpeg4", "wmv2", "mpeg2video"}
_FFMPEG_QUALITY_UNIT: Final = 118


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """How the picture stream is encoded.

    Attributes:
        encoder: FFmpeg's name.
        pixel_format: What the encoder is fed.
        options: Settings of the encoder.
        global_quality: Fixed quantiser, for encoders that know no other way; 0 otherwise.
        codec_tag: Four letters that players ask for; empty: the container's own choice.
        signals_colour: The stream can say its range and matrix; if not, players assume limited and by size.
        messages: What does not come out as it went in.
    """

    encoder: str
    pixel_format: str
    options: dict[str, str] = field(default_factory=dict)
    global_quality: int = 0
    codec_tag: str = ""
    signals_colour: bool = True
    messages: tuple[str, ...] = ()


def plan_encoder(kind: ContainerKind, codec: str, quality: int, info: VideoInfo) -> EncoderPlan:
    """Choose the encoder and its settings.

    Args:
        kind: Container of the output.
        codec: One of `CODECS`.
        quality: 0 (smallest) to 100 (best), one scale for all encoders.
        info: The input.

    Raises:
        UsageError: Unknown codec, quality outside its scale, or a codec the container does not take.
    """
    if codec not in CODECS:
        raise UsageError(f"codec: '{codec}' is not known; choose one of {', '.join(CODECS)}")
    if not 0 <= quality <= 100:
        raise UsageError(f"quality: {quality} is not between 0 and 100")
    if codec == "auto":
        codec = _codec_for(kind, info)
    elif codec not in kind.video:
        fitting = [name for name in kind.video if name in CODECS]
        raise UsageError(
            f"codec: {kind.muxer} files do not take {codec}; choose auto or {', '.join(fitting)}"
        )
    source = VideoFormat(info.pixel_format, info.width, info.height)
    encoder = _ENCODERS[codec]
    if codec == "h264" and source.is_rgb and info.codec == "h264":
        encoder = "libx264rgb"  # as it came, without a turn through YUV
    pixel_format = _pixel_format_for(encoder, source)
    return EncoderPlan(
        encoder=encoder,
        pixel_format=pixel_format,
        options=_options(encoder, quality, kind, info),
        global_quality=_on_scale(encoder, quality) * _FFMPEG_QUALITY_UNIT
        if encoder in _FIXED_QUANTISER
        else 0,
        codec_tag="hvc1" if encoder == "libx265" and kind.family == "mov" else "",
        signals_colour=encoder not in _FIXED_QUANTISER,
        messages=_losses(source, VideoFormat(pixel_format), kind),
    )


def _codec_for(kind: ContainerKind, info: VideoInfo) -> str:
    source = VideoFormat(info.pixel_format)
    if info.codec in ("prores", "ffv1") and info.codec in kind.video:
        return info.codec  # someone chose a codec for editing: it stays one
    holders = _HOLDS_ALPHA.get(kind.muxer, ())
    if has_alpha(source) and holders:
        return holders[0] if depth_of(source) <= 8 else holders[-1]
    if info.codec == "hevc" and depth_of(source) > 8 and "h265" in kind.video:
        return "h265"  # players know ten bits and HDR as HEVC, hardly as H.264
    return kind.video[0]


@lru_cache(maxsize=32)
def _formats_of(encoder: str) -> tuple[str, ...]:
    return tuple(fmt.name for fmt in av.codec.Codec(encoder, "w").video_formats or ())


def _pixel_format_for(encoder: str, source: VideoFormat) -> str:
    """The encoder's pixel format that loses nothing, or else the least."""
    odd = encoder not in _TAKES_ODD_SIZES and (source.width % 2 or source.height % 2)
    fitting = [name for name in _formats_of(encoder) if not odd or _divides(VideoFormat(name), source)]
    candidates = fitting or list(_formats_of(encoder))
    return min(candidates, key=lambda name: (name != source.name, _distance(source, VideoFormat(name))))


def _divides(candidate: VideoFormat, source: VideoFormat) -> bool:
    step_x, step_y = subsampling_of(candidate)
    return source.width % step_x == 0 and source.height % step_y == 0


def _distance(source: VideoFormat, candidate: VideoFormat) -> tuple[int, ...]:
    """What is lost first, then what is spent needlessly."""
    pixels_a_chroma = _pixels_a_chroma(source), _pixels_a_chroma(candidate)
    depth = depth_of(source), depth_of(candidate)
    alpha = has_alpha(source), has_alpha(candidate)
    return (
        int(alpha[0] and not alpha[1]),
        int(len(source.components) > 2 and len(candidate.components) < 3),
        max(depth[0] - depth[1], 0),
        max(pixels_a_chroma[1] - pixels_a_chroma[0], 0),
        int(source.is_rgb != candidate.is_rgb),
        int(candidate.name.startswith("yuvj") != source.name.startswith("yuvj")),
        int(alpha[1] and not alpha[0]),
        max(depth[1] - depth[0], 0),
        abs(len(source.components) - len(candidate.components)),
        pixels_a_chroma[0] - pixels_a_chroma[1],
        # Interleaved planes would cost a conversion.
        int(not candidate.is_planar or len({component.plane for component in candidate.components}) < 3),
    )


def _pixels_a_chroma(fmt: VideoFormat) -> int:
    if fmt.is_rgb or len(fmt.components) < 3:
        return 1
    step_x, step_y = subsampling_of(fmt)
    return step_x * step_y


def _losses(source: VideoFormat, chosen: VideoFormat, kind: ContainerKind) -> tuple[str, ...]:
    messages = []
    if has_alpha(source) and not has_alpha(chosen):
        messages.append(f"opacity dropped: {kind.muxer} files hold none with this codec; .webm and .mov do")
    if depth_of(source) > depth_of(chosen):
        messages.append(
            f"{depth_of(source)} bits a channel became {depth_of(chosen)}: the codec holds no more"
        )
    if _pixels_a_chroma(chosen) > _pixels_a_chroma(source):
        messages.append("colour is stored at lower resolution than in the input: the codec holds no more")
    return tuple(messages)


def _on_scale(encoder: str, quality: int) -> int:
    return round(float(np.interp(quality, (0, 80, 100), _SCALES[encoder])))


def _options(encoder: str, quality: int, kind: ContainerKind, info: VideoInfo) -> dict[str, str]:
    source = VideoFormat(info.pixel_format)
    crf = {"crf": str(_on_scale(encoder, quality))} if encoder in _SCALES else {}
    if encoder in ("libx264", "libx264rgb"):
        return crf | _X264 | _x264_specials(kind, info)
    if encoder == "libx265":
        hdr = _hdr_words(info, display="master-display", light="max-cll")
        return crf | {"preset": "superfast", "x265-params": ":".join([_X265_PARAMS, *hdr])}
    if encoder == "libvpx-vp9":
        opacity = {"auto-alt-ref": "0"} if has_alpha(source) else {}
        return crf | {"b": "0", "deadline": "good", "cpu-used": "5", "row-mt": "1"} | opacity
    if encoder == "libsvtav1":
        os.environ.setdefault("SVT_LOG", "1")  # errors only; it knows no other way to be quiet
        return crf | {"preset": "9", "svtav1-params": "lp=2"}
    if encoder == "ffv1":
        return {"level": "3", "slices": "4", "slicecrc": "1", "g": "1"}
    if encoder == "prores_ks":
        profile = "4" if has_alpha(source) or source.is_rgb else "3"
        return {"profile": profile, "vendor": "apl0", "qscale": str(_on_scale(encoder, quality))}
    return {}


# Measured at crf 18 on 1080p, one core, against the presets beside it: superfast 15 to 18 ms a frame (48.6 to
# 50.2 dB), ultrafast 10 ms but 2 to 3 times the bytes, veryfast 27 to 31 ms for 0.6 times the bytes. Weighted
# prediction costs 1 to 4 ms and here made files larger, not smaller.
_X264: Final = {"preset": "superfast"}
_X264_PARAMS: Final = "weightp=0"
_X265_PARAMS: Final = "log-level=none:pools=2:frame-threads=2"


def _hdr_words(info: VideoInfo, *, display: str, light: str) -> list[str]:
    pairs = ((display, info.hdr.mastering_display), (light, info.hdr.content_light))
    return [f"{name}={value}" for name, value in pairs if value]


def _x264_specials(kind: ContainerKind, info: VideoInfo) -> dict[str, str]:
    hdr = _hdr_words(info, display="mastering-display", light="cll")
    specials = {"x264-params": ":".join([_X264_PARAMS, *hdr])}
    if kind.family == "avi":
        specials["bf"] = "0"  # AVI has no time stamps to put such frames in order by
    if info.interlaced:
        specials["flags"] = "+ildct+ilme"
    return specials
