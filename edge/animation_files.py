"""How GIF, WebP and APNG files are put together from single frames.

The frames are encoded by Pillow; the files around them are written here, frame by frame. Pillow's own writers
fold equal frames into one and so change count and timing, and they keep all frames in memory.

In GIF every frame has its own palette: pixels that were not fused keep their exact colour as far as its
entries go, and nothing is dithered, so nothing flickers that was still.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from edge.picture_metadata import PNG_SIGNATURE, kept_png_chunks
from edge.stills import open_picture

_WEBP_QUALITY: Final = 90
# Of a GIF frame's 256 colours this many are for fused pixels; skin needs no more.
_FUSED_COLOURS: Final = 96
_RARE_COLOURS: Final = 48
_HOLE: Final = 255  # index of a see-through pixel
_PACKING: Final = np.array([1 << 16, 1 << 8, 1], np.uint32)

Rgba = npt.NDArray[np.uint8]
"""Shape ``(h, w, 4)``, red, green, blue, opacity."""

Mask = npt.NDArray[np.bool_]
"""Shape ``(h, w)``."""


@dataclass(frozen=True, slots=True)
class AnimationInfo:
    """What is known of an animated picture.

    Attributes:
        width: Pixels.
        height: Pixels.
        frame_count: Frames that can be read.
        durations_ms: How long each frame is shown.
        loop: How often it plays, 0 for ever; None where the file does not say (once).
        has_alpha: Whether any pixel of any frame is see-through.
        format: Pillow's name.
        lossless: Of a WebP, whether it is stored without loss.
    """

    width: int
    height: int
    frame_count: int
    durations_ms: tuple[float, ...]
    loop: int | None
    has_alpha: bool
    format: str
    lossless: bool

    @property
    def duration_s(self) -> float:
        """Length of one play."""
        return sum(self.durations_ms) / 1000


class AnimationFile(Protocol):
    """Writes one kind of file."""

    def begin(self, file: BinaryIO, info: AnimationInfo, source: Path) -> None:
        """Write what comes before the frames; ``source`` is the input, for its metadata."""

    def rectangle(self, changed: Mask) -> tuple[slice, slice]:
        """Rows and columns to store of a frame of which ``changed`` is new."""

    def add(
        self, file: BinaryIO, pixels: Rgba, corner: tuple[int, int], duration_ms: float, fused: Mask
    ) -> None:
        """Write one frame.

        Args:
            file: Where to.
            pixels: The stored rectangle.
            corner: Its left and upper edge.
            duration_ms: How long it is shown.
            fused: Which of its pixels are not the input's.
        """

    def end(self, file: BinaryIO) -> None:
        """Write what comes after the frames."""


def _bounds(changed: Mask, step: int) -> tuple[slice, slice]:
    """The smallest rectangle round what changed, its corner on a multiple of ``step``; never empty."""
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    if not len(rows):
        return slice(0, 1), slice(0, 1)
    top, left = rows[0] - rows[0] % step, columns[0] - columns[0] % step
    return slice(int(top), int(rows[-1]) + 1), slice(int(left), int(columns[-1]) + 1)


class _Apng:
    """PNG with ``acTL``, ``fcTL`` and ``fdAT`` chunks (PNG specification, third edition)."""

    def __init__(self) -> None:
        self._sequence = 0
        self._frames = 0

    def rectangle(self, changed: Mask) -> tuple[slice, slice]:
        return _bounds(changed, 1)

    def begin(self, file: BinaryIO, info: AnimationInfo, source: Path) -> None:
        self._mode = "RGBA" if info.has_alpha else "RGB"
        self._plays = info.loop or 0 if info.loop is not None else 1
        header = struct.pack(">IIBBBBB", info.width, info.height, 8, 6 if info.has_alpha else 2, 0, 0, 0)
        file.write(PNG_SIGNATURE)
        self._chunk(file, b"IHDR", header)
        self._control_at = file.tell()
        self._control(file)
        if info.format == "PNG":
            for kind, content in kept_png_chunks(source.read_bytes()):
                self._chunk(file, kind, content)

    def _control(self, file: BinaryIO) -> None:
        self._chunk(file, b"acTL", struct.pack(">II", self._frames, self._plays))

    def _chunk(self, file: BinaryIO, kind: bytes, content: bytes) -> None:
        file.write(
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    def add(
        self,
        file: BinaryIO,
        pixels: Rgba,
        corner: tuple[int, int],
        duration_ms: float,
        fused: Mask,
    ) -> None:
        height, width = pixels.shape[:2]
        delay = Fraction(duration_ms / 1000).limit_denominator(1000)
        numerator, denominator = delay.numerator, delay.denominator
        if numerator > 0xFFFF:
            numerator, denominator = min(round(duration_ms / 1000), 0xFFFF), 1
        # Dispose: none. Blend: replace, so that opacity comes out as it is.
        frame = struct.pack(
            ">IIIIIHHBB", self._sequence, width, height, *corner, numerator, denominator, 0, 0
        )
        self._chunk(file, b"fcTL", frame)
        self._sequence += 1
        for content in self._compressed(pixels):
            if self._frames == 0:
                self._chunk(file, b"IDAT", content)
            else:
                self._chunk(file, b"fdAT", struct.pack(">I", self._sequence) + content)
                self._sequence += 1
        self._frames += 1

    def _compressed(self, pixels: Rgba) -> Iterator[bytes]:
        buffer = io.BytesIO()
        Image.fromarray(pixels if self._mode == "RGBA" else np.ascontiguousarray(pixels[..., :3])).save(
            buffer, "PNG"
        )
        data = buffer.getvalue()
        at = len(PNG_SIGNATURE)
        while at < len(data):
            length = struct.unpack_from(">I", data, at)[0]
            if data[at + 4 : at + 8] == b"IDAT":
                yield data[at + 8 : at + 8 + length]
            at += 12 + length

    def end(self, file: BinaryIO) -> None:
        self._chunk(file, b"IEND", b"")
        file.seek(self._control_at)
        self._control(file)


class _WebP:
    """RIFF with ``VP8X``, ``ANIM`` and one ``ANMF`` a frame (WebP container specification)."""

    _NO_BLEND: Final = 2

    def rectangle(self, changed: Mask) -> tuple[slice, slice]:
        return _bounds(changed, 2)  # positions are stored halved

    def begin(self, file: BinaryIO, info: AnimationInfo, source: Path) -> None:
        self._has_alpha, self._lossless = info.has_alpha, info.lossless
        self._icc, self._exif, self._xmp = _webp_extras(source)
        flags = 0x02 | (0x10 if info.has_alpha else 0)
        flags |= (0x20 if self._icc else 0) | (0x08 if self._exif else 0) | (0x04 if self._xmp else 0)
        file.write(b"RIFF\0\0\0\0WEBP")
        size = _uint24(info.width - 1) + _uint24(info.height - 1)
        self._chunk(file, b"VP8X", bytes([flags, 0, 0, 0]) + size)
        if self._icc:
            self._chunk(file, b"ICCP", self._icc)
        plays = 1 if info.loop is None else info.loop
        self._chunk(file, b"ANIM", struct.pack("<IH", 0, min(plays, 0xFFFF)))

    def _chunk(self, file: BinaryIO, kind: bytes, content: bytes) -> None:
        file.write(kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2))

    def add(
        self,
        file: BinaryIO,
        pixels: Rgba,
        corner: tuple[int, int],
        duration_ms: float,
        fused: Mask,
    ) -> None:
        height, width = pixels.shape[:2]
        place = _uint24(corner[0] // 2) + _uint24(corner[1] // 2) + _uint24(width - 1) + _uint24(height - 1)
        head = place + _uint24(min(round(duration_ms), 0xFFFFFF)) + bytes([self._NO_BLEND])
        self._chunk(file, b"ANMF", head + self._compressed(pixels))

    def _compressed(self, pixels: Rgba) -> bytes:
        buffer = io.BytesIO()
        picture = Image.fromarray(pixels if self._has_alpha else np.ascontiguousarray(pixels[..., :3]))
        picture.save(buffer, "WEBP", lossless=self._lossless, quality=_WEBP_QUALITY, exact=True, method=3)
        data = buffer.getvalue()
        kept, at = b"", 12
        while at + 8 <= len(data):
            length = struct.unpack_from("<I", data, at + 4)[0]
            whole = 8 + length + length % 2
            if data[at : at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
                kept += data[at : at + whole]
            at += whole
        return kept

    def end(self, file: BinaryIO) -> None:
        if self._exif:
            self._chunk(file, b"EXIF", self._exif)
        if self._xmp:
            self._chunk(file, b"XMP ", self._xmp)
        size = file.tell() - 8
        file.seek(4)
        file.write(struct.pack("<I", size))


def _uint24(value: int) -> bytes:
    return struct.pack("<I", value)[:3]


def _webp_extras(path: Path) -> tuple[bytes | None, bytes | None, bytes | None]:
    with open_picture(path) as picture:
        info = picture.info
        found = (info.get("icc_profile"), info.get("exif"), info.get("xmp"))
    icc, exif, xmp = (value if isinstance(value, bytes) and value else None for value in found)
    return icc, exif, xmp


class _Gif:
    """GIF 89a with a palette a frame."""

    _KEEP: Final = 1  # disposal: leave the frame
    _CLEAR: Final = 2  # disposal: back to see-through

    def rectangle(self, changed: Mask) -> tuple[slice, slice]:
        if self._has_alpha:  # the canvas is cleared between frames
            return slice(0, changed.shape[0]), slice(0, changed.shape[1])
        return _bounds(changed, 1)

    def begin(self, file: BinaryIO, info: AnimationInfo, source: Path) -> None:
        self._has_alpha = info.has_alpha
        self._clock_ms = 0.0
        self._written_cs = 0
        # What a viewer has on its screen: colours of this file, not of the input. Alpha 0: nothing yet.
        self._shown: Rgba = np.zeros((info.height, info.width, 4), np.uint8)
        file.write(b"GIF89a" + struct.pack("<HHBBB", info.width, info.height, 0x70, 0, 0))
        if info.loop is not None:
            file.write(b"\x21\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", info.loop) + b"\0")

    def add(
        self,
        file: BinaryIO,
        pixels: Rgba,
        corner: tuple[int, int],
        duration_ms: float,
        fused: Mask,
    ) -> None:
        height, width = pixels.shape[:2]
        shown = self._shown[corner[1] : corner[1] + height, corner[0] : corner[0] + width]
        hidden = pixels[..., 3] < 128 if self._has_alpha else (pixels == shown).all(-1)
        indices, palette = _indexed(pixels[..., :3], fused, hidden)
        if not self._has_alpha:
            shown[~hidden, :3] = palette[indices[~hidden]]
            shown[..., 3] = 255
        disposal = self._CLEAR if self._has_alpha else self._KEEP
        file.write(
            struct.pack("<BBBBHBB", 0x21, 0xF9, 4, disposal << 2 | 1, self._delay_cs(duration_ms), _HOLE, 0)
        )
        file.write(struct.pack("<BHHHHB", 0x2C, *corner, width, height, 0x87))
        file.write(palette.tobytes())
        file.write(_lzw(indices, palette))

    def _delay_cs(self, duration_ms: float) -> int:
        """Hundredths are all a GIF knows; rounding the clock and not each step keeps the length."""
        self._clock_ms += duration_ms
        delay = min(max(round(self._clock_ms / 10) - self._written_cs, 0), 0xFFFF)
        self._written_cs += delay
        return delay

    def end(self, file: BinaryIO) -> None:
        file.write(b"\x3b")


def _indexed(pixels: Rgba, fused: Mask, hidden: Mask) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """A frame as indices into a palette.

    Args:
        pixels: Shape ``(h, w, 3)``, RGB.
        fused: Pixels whose colour may give way to save an exact one elsewhere, shape ``(h, w)``.
        hidden: Pixels that are see-through, shape ``(h, w)``; they become `_HOLE`.

    Returns:
        Indices ``(h, w)`` and palette ``(256, 3)``.
    """
    packed = pixels.astype(np.uint32) @ _PACKING
    kept, counts = np.unique(packed[~hidden & ~fused], return_counts=True)
    colours = np.union1d(kept, np.unique(packed[~hidden & fused]))
    if len(colours) > _HOLE:
        quota = _FUSED_COLOURS if (fused & ~hidden).any() else 0
        # The commonest stay exact; colours for the rest, and for the fused pixels, stand for several.
        exact = kept[np.argsort(-counts, kind="stable")][: max(_HOLE - quota - _RARE_COLOURS, 0)]
        rare = ~hidden & ~fused & ~np.isin(packed, exact)
        colours = np.union1d(exact, _fewer(pixels[rare], _RARE_COLOURS))
        colours = np.union1d(colours, _fewer(pixels[~hidden & fused], _HOLE - len(colours)))
    palette = np.zeros((256, 3), np.uint8)
    palette[: len(colours)] = _unpacked(colours)
    indices = np.full(packed.shape, _HOLE, np.uint8)
    indices[~hidden] = _nearest(packed[~hidden], colours)
    return indices, palette


def _unpacked(colours: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return np.stack([colours >> 16, colours >> 8 & 255, colours & 255], -1)


def _fewer(colours: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint32]:
    """At most ``count`` packed colours that stand for many of shape ``(n, 3)``."""
    if not len(colours) or count < 1:
        return np.zeros(0, np.uint32)
    picture = Image.fromarray(np.ascontiguousarray(colours[None])).quantize(
        count, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    )
    palette = np.asarray(picture.getpalette(), np.uint32).reshape(-1, 3)[: int(np.asarray(picture).max()) + 1]
    return np.unique(palette @ _PACKING)


def _nearest(packed: npt.NDArray[np.uint32], colours: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Index of the nearest of the sorted ``colours`` for each pixel; exact where it is one of them."""
    values, inverse = np.unique(packed, return_inverse=True)
    best = np.searchsorted(colours, values)
    strange = np.flatnonzero(~np.isin(values, colours))
    palette = _unpacked(colours).astype(np.int32)
    for start in range(0, len(strange), 4096):
        part = strange[start : start + 4096]
        distance = ((_unpacked(values[part]).astype(np.int32)[:, None] - palette) ** 2).sum(-1)
        best[part] = distance.argmin(1)
    return best.astype(np.uint8)[inverse]


def _lzw(indices: npt.NDArray[np.uint8], palette: npt.NDArray[np.uint8]) -> bytes:
    """The compressed pixels of one frame, taken out of a GIF that Pillow makes of it."""
    picture = Image.fromarray(indices).convert("P")
    picture.putpalette(palette.tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, "GIF", interlace=0, optimize=False)
    data = buffer.getvalue()
    at = 13 + 3 * (2 << (data[10] & 7))
    while data[at] == 0x21:
        at += 2
        while data[at]:
            at += data[at] + 1
        at += 1
    return data[at + 10 : -1]


FORMATS: Final[dict[str, type[AnimationFile]]] = {"GIF": _Gif, "WEBP": _WebP, "PNG": _Apng}
"""Writers by Pillow's name of the format."""
