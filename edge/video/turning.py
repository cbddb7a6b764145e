"""The display matrix of a video: which way it turns, and turning frames so that they need none."""

import struct
from collections.abc import Mapping
from typing import cast

from av.buffer import Buffer
from av.error import BlockingIOError as FilterIsEmptyError
from av.filter import Graph
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame

Turn = tuple[str, ...]
"""Filters to apply, in order."""

# The matrix maps stored to shown positions: shown_x = a x + c y, shown_y = b x + d y. Key: their signs.
_FILTERS: dict[tuple[int, int, int, int], Turn] = {
    (0, 1, -1, 0): ("transpose:clock",),
    (0, -1, 1, 0): ("transpose:cclock",),
    (-1, 0, 0, -1): ("hflip", "vflip"),
    (-1, 0, 0, 1): ("hflip",),
    (1, 0, 0, -1): ("vflip",),
    (0, 1, 1, 0): ("transpose:cclock_flip",),
    (0, -1, -1, 0): ("transpose:clock_flip",),
}


def turn_of(frame: VideoFrame) -> Turn | None:
    """How to turn a frame so that it stands upright; None where it does already.

    Only quarter turns and mirrorings count: nothing else occurs in recordings.
    """
    side_data = cast("Mapping[Type, Buffer]", frame.side_data)
    if Type.DISPLAYMATRIX not in side_data:
        return None
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(side_data[Type.DISPLAYMATRIX])[:36])
    return _FILTERS.get((_sign(a), _sign(b), _sign(c), _sign(d)))


def _sign(value: int) -> int:
    # 16.16 fixed point; some writers leave a tiny rest where a zero belongs.
    return 0 if abs(value) < 1 << 12 else (1 if value > 0 else -1)


class Turner:
    """Turns frames of one size and format. Pixels only move; their values stay."""

    def __init__(self, frame: VideoFrame, turn: Turn) -> None:
        self._key = (frame.width, frame.height, frame.format.name, turn)
        self._graph = Graph()
        self._graph.threads = 1
        node = self._graph.add(
            "buffer",
            video_size=f"{frame.width}x{frame.height}",
            pix_fmt=frame.format.name,
            time_base=str(frame.time_base),
            colorspace=str(int(frame.colorspace)),
            range=str(int(frame.color_range)),
        )
        for spec in turn:
            name, _, argument = spec.partition(":")
            following = self._graph.add(name, argument or None)
            node.link_to(following)
            node = following
        node.link_to(self._graph.add("buffersink"))
        self._graph.configure()
        self.swaps_axes = any(spec.startswith("transpose") for spec in turn)

    def fits(self, frame: VideoFrame, turn: Turn) -> bool:
        """Whether this one can turn ``frame``."""
        return self._key == (frame.width, frame.height, frame.format.name, turn)

    def turn(self, frame: VideoFrame) -> VideoFrame:
        """The frame upright, with the time stamp it had."""
        self._graph.push(frame)
        try:
            turned = self._graph.pull()
        except FilterIsEmptyError as err:  # each of these filters gives one frame for one
            raise RuntimeError("a turning filter held a frame back") from err
        assert isinstance(turned, VideoFrame)
        turned.pts, turned.time_base, turned.duration = frame.pts, frame.time_base, frame.duration
        return turned
