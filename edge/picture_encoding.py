"""Native pixels to the bytes of a picture file, with everything the input said beside its pixels.

Pillow encodes; what it cannot do is done here: 16-bit colour in TIFF, and PNG chunks copied as they are.
"""

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from edge.picture_metadata import EXIF_PREFIX, png_chunks, with_png_chunks
from edge.picture_pixels import Pixels, picture_of, recoloured

_DEFAULT_QUALITY: Final = {"JPEG": 95, "WEBP": 92, "AVIF": 85, "HEIF": 90}


@dataclass(frozen=True, slots=True)
class Extras:
    """What is kept of a file beside its pixels, already fit for the upright, altered picture.

    Attributes:
        exif: EXIF block without prefix.
        icc: Colour profile.
        xmp: XMP packet.
        dpi: Resolution across and down.
        comment: JPEG comment.
        photoshop: JPEG segment of Photoshop's resources, IPTC captions among them.
        png_chunks: Chunks of a PNG file; None where the file is none.
        jpeg_tables: Quantisation tables of a JPEG file.
        jpeg_subsampling: Pillow's number of the chroma subsampling; -1 unknown.
        progressive: A progressive JPEG.
        lossless: A lossless WebP.
        tiff_compression: Pillow's name.
    """

    exif: bytes | None = None
    icc: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    comment: bytes | None = None
    photoshop: bytes | None = None
    png_chunks: tuple[tuple[bytes, bytes], ...] | None = None
    jpeg_tables: tuple[tuple[int, ...], ...] = ()
    jpeg_subsampling: int = -1
    progressive: bool = False
    lossless: bool = False
    tiff_compression: str | None = None


def encode_picture(
    pixels: Pixels, mode: str, target: str, extras: Extras, *, same_format: bool, quality: int | None
) -> bytes:
    """The bytes of a picture file.

    Args:
        pixels: As ``target`` can hold them.
        mode: Their channels.
        target: Pillow's name of the format.
        extras: What the input said beside its pixels.
        same_format: The input was of this format, so its way of encoding fits.
        quality: 0 to 100 for lossy formats; None: as the input, or high.
    """
    if target == "PNG":
        return _encoded_png(pixels, mode, extras)
    if target == "TIFF" and pixels.dtype == np.uint16 and pixels.ndim == 3:
        return _encoded_tiff_16(pixels, extras)
    options = _SAVE_OPTIONS.get(target, _no_options)(extras, same_format, quality)
    buffer = io.BytesIO()
    picture = picture_of(pixels, mode)
    if target == "GIF" and mode == "RGB":
        picture = picture.quantize(256, method=Image.Quantize.MEDIANCUT)
    picture.save(buffer, target, **{key: value for key, value in options.items() if value is not None})
    return buffer.getvalue()


def without_profile(extras: Extras) -> Extras:
    """The same for a picture that has left its profile's colours: CMYK become RGB."""
    return Extras(exif=extras.exif, xmp=extras.xmp, dpi=extras.dpi, comment=extras.comment)


def _encoded_png(pixels: Pixels, mode: str, extras: Extras) -> bytes:
    if pixels.dtype == np.uint16:
        bgr = (
            pixels
            if pixels.ndim == 2
            else recoloured(pixels, cv2.COLOR_RGB2BGR if mode == "RGB" else cv2.COLOR_RGBA2BGRA)
        )
        ok, encoded = cv2.imencode(".png", bgr)
        if not ok:
            raise ValueError("16-bit PNG")
        png = encoded.tobytes()
    else:
        buffer = io.BytesIO()
        picture_of(pixels, mode).save(buffer, "PNG")
        png = buffer.getvalue()
    chunks = extras.png_chunks
    if chunks is None:
        chunks = tuple(png_chunks(exif=extras.exif, icc=extras.icc, xmp=extras.xmp, dpi=extras.dpi))
    return with_png_chunks(png, list(chunks))


def _encoded_tiff_16(pixels: Pixels, extras: Extras) -> bytes:
    """A deflated 16-bit TIFF of one strip: Pillow writes 16 bits only in grey."""
    height, width, channels = pixels.shape
    # Differences along the row (predictor 2) halve the size of photographs.
    differences = pixels.copy()
    differences[:, 1:] -= pixels[:, :-1]
    strip = zlib.compress(differences.astype("<u2").tobytes(), 6)
    dpi = extras.dpi or (72.0, 72.0)
    tags: list[tuple[int, int, Any]] = [
        (256, 4, [width]),
        (257, 4, [height]),
        (258, 3, [16] * channels),
        (259, 3, [8]),
        (262, 3, [2]),
        (273, 4, [0]),
        (274, 3, [1]),
        (277, 3, [channels]),
        (278, 4, [height]),
        (279, 4, [len(strip)]),
        (282, 5, [round(dpi[0] * 1000), 1000]),
        (283, 5, [round(dpi[1] * 1000), 1000]),
        (284, 3, [1]),
        (296, 3, [2]),
        (317, 3, [2]),
    ]
    if channels == 4:
        tags.append((338, 3, [2]))
    if extras.xmp:
        tags.append((700, 1, extras.xmp))
    if extras.icc:
        tags.append((34675, 7, extras.icc))
    return _tiff_file(sorted(tags), strip)


def _tiff_file(tags: list[tuple[int, int, Any]], strip: bytes) -> bytes:
    packing = {3: "H", 4: "I", 5: "I"}
    directory_end = 8 + 2 + 12 * len(tags) + 4
    values = b""
    entries = b""
    strip_entry = 0
    for tag, kind, value in tags:
        data = (
            bytes(value) if isinstance(value, bytes) else struct.pack(f"<{len(value)}{packing[kind]}", *value)
        )
        count = len(value) // 2 if kind == 5 else len(value)
        if tag == 273:
            strip_entry = len(entries) + 8
        if len(data) > 4:
            place = struct.pack("<I", directory_end + len(values))
            values += data + b"\0" * (len(data) % 2)
        else:
            place = data.ljust(4, b"\0")
        entries += struct.pack("<HHI", tag, kind, count) + place
    offset = struct.pack("<I", directory_end + len(values))
    entries = entries[:strip_entry] + offset + entries[strip_entry + 4 :]
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + b"\0\0\0\0" + values + strip


def _prefixed(exif: bytes | None) -> bytes | None:
    return EXIF_PREFIX + exif if exif else None


def _jpeg_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "exif": _prefixed(extras.exif),
        "icc_profile": extras.icc,
        "xmp": extras.xmp,
        "dpi": tuple(round(value) for value in extras.dpi) if extras.dpi else None,
        "comment": extras.comment,
        "extra": extras.photoshop,
        "progressive": extras.progressive or None,
    }
    tables_usable = 1 <= len(extras.jpeg_tables) <= 4 and all(
        max(table) <= 255 for table in extras.jpeg_tables
    )
    if same and quality is None and tables_usable:
        options["qtables"] = [list(table) for table in extras.jpeg_tables]
        options["subsampling"] = extras.jpeg_subsampling if extras.jpeg_subsampling >= 0 else None
    else:
        options["quality"] = _DEFAULT_QUALITY["JPEG"] if quality is None else max(quality, 1)
        options["subsampling"] = 0 if options["quality"] >= 90 else None
    return options


def _webp_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    return {
        "exif": extras.exif,
        "icc_profile": extras.icc,
        "xmp": extras.xmp,
        "lossless": (same and extras.lossless and quality is None) or None,
        "quality": _DEFAULT_QUALITY["WEBP"] if quality is None else quality,
        "exact": True,
        "method": 4,
    }


def _avif_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    return {
        "exif": extras.exif,
        "icc_profile": extras.icc,
        "xmp": extras.xmp,
        "quality": _DEFAULT_QUALITY["AVIF"] if quality is None else quality,
        "speed": 8,
    }


def _heif_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    return {
        "exif": _prefixed(extras.exif),
        "icc_profile": extras.icc,
        "xmp": extras.xmp,
        "quality": _DEFAULT_QUALITY["HEIF"] if quality is None else quality,
    }


def _tiff_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    lossless = {
        "raw": None,
        "tiff_lzw": "tiff_lzw",
        "packbits": "packbits",
        "tiff_adobe_deflate": "tiff_adobe_deflate",
    }
    return {
        "exif": _prefixed(extras.exif),
        "icc_profile": extras.icc,
        "dpi": extras.dpi,
        "compression": lossless.get(extras.tiff_compression or "", "tiff_lzw") if same else "tiff_lzw",
    }


def _bmp_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    return {"dpi": extras.dpi}


def _no_options(extras: Extras, same: bool, quality: int | None) -> dict[str, Any]:
    return {}


_SAVE_OPTIONS: Final = {
    "JPEG": _jpeg_options,
    "WEBP": _webp_options,
    "AVIF": _avif_options,
    "HEIF": _heif_options,
    "TIFF": _tiff_options,
    "BMP": _bmp_options,
}
