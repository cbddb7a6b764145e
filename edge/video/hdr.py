"""Static HDR metadata (SMPTE ST 2086, CTA-861.3): out of a decoded frame, in the words x264 and x265 take."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from av.buffer import Buffer
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame

_CHROMATICITY_UNIT = 50_000
_LUMINANCE_UNIT = 10_000


@dataclass(frozen=True, slots=True)
class HdrMetadata:
    """What a mastering studio says of its screen and its film.

    Attributes:
        mastering_display: ``G(x,y)B(x,y)R(x,y)WP(x,y)L(max,min)``; empty where it is not said.
        content_light: ``largest pixel,largest frame average`` in cd/m2; empty where it is not said.
    """

    mastering_display: str = ""
    content_light: str = ""


def hdr_of(frame: VideoFrame) -> HdrMetadata:
    """The metadata a frame carries. Ask it of the first frame only: see `edge.video.reader`."""
    side_data = cast("Mapping[Type, Buffer]", frame.side_data)
    display = light = ""
    if Type.MASTERING_DISPLAY_METADATA in side_data:
        display = _mastering_display(bytes(side_data[Type.MASTERING_DISPLAY_METADATA]))
    if Type.CONTENT_LIGHT_LEVEL in side_data:
        light = "{},{}".format(*struct.unpack_from("=2I", bytes(side_data[Type.CONTENT_LIGHT_LEVEL])))
    return HdrMetadata(display, light)


def _mastering_display(block: bytes) -> str:
    # AVMasteringDisplayMetadata: red, green, blue, white as x and y, then least and largest luminance, all as
    # fractions of two 32-bit integers, then two flags.
    numbers = struct.unpack_from("=22i", block)
    has_primaries, has_luminance = numbers[20:22]
    if not (has_primaries and has_luminance):
        return ""
    fractions = list(zip(numbers[:20:2], numbers[1:20:2], strict=True))
    colours = [round(_CHROMATICITY_UNIT * number / (unit or 1)) for number, unit in fractions[:8]]
    darkest, brightest = (round(_LUMINANCE_UNIT * number / (unit or 1)) for number, unit in fractions[8:10])
    red, green, blue, white = (f"({x},{y})" for x, y in zip(colours[::2], colours[1::2], strict=True))
    return f"G{green}B{blue}R{red}WP{white}L({brightest},{darkest})"
