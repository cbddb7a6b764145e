"""Still pictures: in with everything they hold, out with only the changed pixels changed.

A picture without a patch is copied byte for byte where the format stays, the only way to leave a JPEG as it
was. Otherwise the changed pixels are written into the native picture (`edge.picture_pixels`). A palette
picture becomes RGB, because new colours do not fit its palette.

JPEG is encoded with the quantisation tables and subsampling of the input, so it loses no more than it had.
Pictures stand upright when they come out, and their orientation tag says so.
"""

import io
import re
import shutil
import struct
import warnings as python_warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from edge.outputs import output_reason
from edge.picture_encoding import Extras, encode_picture, without_profile
from edge.picture_metadata import (
    exif_orientation,
    kept_png_chunks,
    photoshop_segment,
    upright_exif,
    upright_xmp,
)
from edge.picture_pixels import NativePicture, Pixels, fit_to_format, merged_pixels, recoloured, working_copy
from shared.errors import InputError, OutputError, UsageError
from shared.frames import Frame, FusedFrame

MAX_PIXELS: Final = 400_000_000
"""Larger pictures are refused before they are decoded: at three bytes a pixel this is over a gigabyte."""

# The one guard is ours, in `open_picture`: Pillow's own would warn about sizes that we take.
Image.MAX_IMAGE_PIXELS = None

# Named one by one: a crafted file shall not reach the thirty other readers, which nobody needs here.
_PLUGINS: Final = (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
_READ_FORMATS: Final = tuple(
    name
    for name, (factory, _) in Image.OPEN.items()
    if factory.__module__ in {plugin.__name__ for plugin in _PLUGINS}
)
FORMAT_OF_ENDING: Final = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
    ".avif": "AVIF",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
    ".jp2": "JPEG2000",
    ".j2k": "JPEG2000",
    ".jpx": "JPEG2000",
    ".gif": "GIF",
    ".heic": "HEIF",
    ".heif": "HEIF",
}
"""File endings of still pictures and Pillow's name of their format."""

# What makes a stored picture stand upright, by EXIF orientation: (transpose first, flip rows, flip columns).
_TURNS: Final = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
picture_errors: Final = (
    OSError,
    SyntaxError,
    ValueError,
    struct.error,
    zlib.error,
    EOFError,
    MemoryError,
    KeyError,
)
_HEIC_MISSING: Final = "HEIC pictures need the extra: pip install 'lethe[heic]'"


@dataclass(frozen=True, slots=True, eq=False)
class Still:
    """A still picture and all that is needed to write it back.

    Attributes:
        frame: Its ``image`` is the upright working copy, its ``native`` a `NativePicture`.
        path: Where it came from.
        format: Pillow's name of its format.
        extras: What the file says beside its pixels.
        warnings: What was wrong with the file.
    """

    frame: Frame
    path: Path
    format: str
    extras: Extras = field(default_factory=Extras)
    warnings: tuple[str, ...] = ()


@contextmanager
def open_picture(path: Path, data: bytes | None = None) -> Iterator[Image.Image]:
    """Open a picture without decoding it.

    Args:
        path: The file.
        data: Its bytes, where they are to be used instead.

    Raises:
        InputError: It is no picture we know, or larger than `MAX_PIXELS`.
    """
    formats: tuple[str, ...] = _READ_FORMATS
    if _is_heic(path):
        formats = (*formats, register_heic(path))
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter(
                "ignore"
            )  # of odd metadata: what matters is said by our own warnings
            picture = Image.open(path if data is None else io.BytesIO(data), formats=formats)
    except UnidentifiedImageError as err:
        raise InputError(path, "is not a picture, or its header is damaged") from err
    except FileNotFoundError as err:
        raise InputError(path, "there is no such file") from err
    except IsADirectoryError as err:
        raise InputError(path, "is a folder, not a file") from err
    except PermissionError as err:
        raise InputError(path, "may not be read (permission denied)") from err
    except picture_errors as err:
        raise InputError(path, "is a damaged picture: its header cannot be read") from err
    with picture:
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise InputError(
                path,
                f"claims {width} x {height} pixels; more than {MAX_PIXELS // 10**6} megapixels are refused",
            )
        yield picture


def _is_heic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return head[4:8] == b"ftyp" and head[8:12] in (
        b"heic",
        b"heix",
        b"hevc",
        b"heim",
        b"heis",
        b"mif1",
        b"msf1",
    )


def register_heic(path: Path | str) -> str:
    """Make Pillow know HEIC; returns its name of the format."""
    try:
        import pillow_heif
    except ImportError as err:
        raise InputError(path, _HEIC_MISSING) from err
    pillow_heif.register_heif_opener()
    return "HEIF"


def read_still(path: Path) -> Still:
    """Read a still picture; of a TIFF with several pages the first.

    Raises:
        InputError: It cannot be read.
    """
    warnings: list[str] = []
    with open_picture(path) as picture:
        picture_format = "JPEG" if picture.format == "MPO" else picture.format or ""
        exif = _raw_exif(picture)
        orientation = _orientation(picture, exif)
        extras = _extras(path, picture, exif, swapped=orientation >= 5)
        if getattr(picture, "n_frames", 1) > 1 and picture.format in ("TIFF", "MPO"):
            warnings.append(f"holds {getattr(picture, 'n_frames', 1)} pictures; only the first is used")
        native, is_turned = _decode(path, picture, warnings)
    if not is_turned:
        native = NativePicture(_turned(native.pixels, orientation), native.mode)
    image = working_copy(native, extras.icc)
    return Still(Frame(0, image, native=native), path, picture_format, extras, tuple(warnings))


# Reading


def _raw_exif(picture: Image.Image) -> bytes | None:
    raw = picture.info.get("exif")
    return raw if isinstance(raw, bytes) else None


def _orientation(picture: Image.Image, exif: bytes | None) -> int:
    if picture.format == "TIFF":
        value = picture.tag_v2.get(0x0112, 1)  # type: ignore[attr-defined]
        return value if value in range(1, 9) else 1
    if exif is not None:
        return exif_orientation(exif)
    xmp = picture.info.get("xmp")
    found = (
        re.search(rb'tiff:Orientation(?:\s*=\s*["\']|>)\s*([1-8])', xmp) if isinstance(xmp, bytes) else None
    )
    return int(found[1]) if found else 1


def _extras(path: Path, picture: Image.Image, exif: bytes | None, *, swapped: bool) -> Extras:
    info = picture.info
    dpi = info.get("dpi")
    xmp = info.get("xmp")
    comment = info.get("comment")
    tables: tuple[tuple[int, ...], ...] = ()
    subsampling = -1
    if isinstance(picture, JpegImagePlugin.JpegImageFile):
        tables = tuple(_table(table, swapped) for _, table in sorted(picture.quantization.items()))
        subsampling = JpegImagePlugin.get_sampling(picture)
        if swapped and subsampling == 1:
            subsampling = 0  # half the columns would become half the rows
    return Extras(
        exif=upright_exif(exif),
        icc=info.get("icc_profile") or None,
        xmp=upright_xmp(xmp if isinstance(xmp, bytes) else None),
        dpi=(float(dpi[0]), float(dpi[1]))
        if isinstance(dpi, tuple) and len(dpi) == 2 and min(dpi) > 0
        else None,
        comment=comment if isinstance(comment, bytes) else None,
        photoshop=photoshop_segment(info.get("photoshop")) or None,
        png_chunks=tuple(kept_png_chunks(path.read_bytes())) if picture.format == "PNG" else None,
        jpeg_tables=tables,
        jpeg_subsampling=subsampling,
        progressive=bool(info.get("progressive")),
        lossless=picture.format == "WEBP" and _is_lossless_webp(path),
        tiff_compression=info.get("compression") if picture.format == "TIFF" else None,
    )


def _table(table: list[int], swapped: bool) -> tuple[int, ...]:
    values = np.asarray(table).reshape(8, 8)
    return tuple(int(value) for value in (values.T if swapped else values).ravel())


def _is_lossless_webp(path: Path) -> bool:
    with path.open("rb") as file:
        return b"VP8L" in file.read(64 * 1024)


def _decode(path: Path, picture: Image.Image, warnings: list[str]) -> tuple[NativePicture, bool]:
    """The pixels, and whether the decoder has turned them upright already."""
    if _has_16_bits(path, picture):
        native = _decode_16_bits(path)
        if native is not None:
            return native, False
        warnings.append("could only be read with 8 of its 16 bits")
    if picture.mode in ("F", "I"):
        raise InputError(path, "has 32 bits a pixel; save it with 8 or 16 bits a channel first")
    try:
        picture.load()
    except picture_errors as err:
        if picture.format not in ("JPEG", "MPO"):
            raise InputError(path, "is damaged or cut off: its pixels cannot be read") from err
        return _decode_cut_jpeg(path, warnings), False
    return _native(path, picture), picture.format == "TIFF"


def _decode_cut_jpeg(path: Path, warnings: list[str]) -> NativePicture:
    """What is left of a JPEG without its end: an end marker makes its decoder fill in the rest with grey."""
    data = path.read_bytes()
    with open_picture(path, data + b"\xff\xd9" * 32 * 1024) as picture:
        try:
            picture.load()
        except picture_errors as err:
            return _decode_broken_jpeg(path, data, err, warnings)
        warnings.append("is cut off: its lower part is missing and stays grey")
        return _native(path, picture)


def _decode_broken_jpeg(path: Path, data: bytes, err: BaseException, warnings: list[str]) -> NativePicture:
    """A JPEG with bad bytes inside: OpenCV's decoder goes on where Pillow's gives up."""
    bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    if bgr is None:
        raise InputError(path, "is damaged or cut off: its pixels cannot be read") from err
    warnings.append("is damaged inside: some of its parts look wrong")
    return NativePicture(recoloured(bgr, cv2.COLOR_BGR2RGB), "RGB")


def _has_16_bits(path: Path, picture: Image.Image) -> bool:
    if picture.mode.startswith("I;16"):
        return True
    if picture.format == "PNG":
        with path.open("rb") as file:
            return file.read(25)[24:25] == b"\x10"
    if picture.format == "TIFF":
        bits = picture.tag_v2.get(258, (8,))  # type: ignore[attr-defined]
        return 16 in (bits if isinstance(bits, tuple) else (bits,)) and picture.mode in (
            "RGB",
            "RGBA",
            "RGBX",
        )
    return False


def _decode_16_bits(path: Path) -> NativePicture | None:
    pixels = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16:
        return None
    if pixels.ndim == 2:
        return NativePicture(pixels, "L")
    code, mode = (cv2.COLOR_BGR2RGB, "RGB") if pixels.shape[2] == 3 else (cv2.COLOR_BGRA2RGBA, "RGBA")
    return NativePicture(recoloured(pixels, code), mode)


def _native(path: Path, picture: Image.Image) -> NativePicture:
    mode = _native_mode(picture)
    try:
        converted = picture if picture.mode == mode else picture.convert(mode)
    except picture_errors as err:
        raise InputError(path, f"has colours of a kind that cannot be read ({picture.mode})") from err
    return NativePicture(np.array(converted), mode)


def _native_mode(picture: Image.Image) -> str:
    see_through = "transparency" in picture.info
    if picture.mode == "P" and picture.palette is not None:
        return "RGBA" if see_through or picture.palette.mode == "RGBA" else "RGB"
    if picture.mode in ("1", "L"):
        return "LA" if see_through else "L"
    if picture.mode == "RGB":
        return "RGBA" if see_through else "RGB"
    return {"LA": "LA", "La": "LA", "RGBA": "RGBA", "RGBa": "RGBA", "PA": "RGBA", "CMYK": "CMYK"}.get(
        picture.mode, "RGB"
    )


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    if orientation not in _TURNS:
        return pixels
    transpose, rows, columns = _TURNS[orientation]
    if transpose:
        pixels = pixels.swapaxes(0, 1)
    if rows:
        pixels = pixels[::-1]
    if columns:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


# Between the native picture and 8-bit BGR


# Writing


def write_still(
    fused: FusedFrame, still: Still, path: Path, *, quality: int | None = None
) -> tuple[str, ...]:
    """Write a picture.

    Args:
        fused: The picture; without patches the file is copied as it is where the format stays.
        still: What it was read as.
        path: The output; its ending decides the format.
        quality: 0 to 100 for lossy formats; None: as the input, or high.

    Returns:
        What the output could not keep.

    Raises:
        UsageError: An ending we cannot write.
        OutputError: The file cannot be written.
    """
    target = format_for(path, still)
    try:
        if not fused.patches and target == still.format:
            shutil.copyfile(still.path, path)
            return ()
        if target == "HEIF":
            register_heic(still.path)
        pixels = merged_pixels(fused, still.extras.icc)
        mode = fused.frame.native.mode
        pixels, mode, messages = fit_to_format(pixels, mode, target, still.extras.icc)
        extras = still.extras if mode == fused.frame.native.mode else without_profile(still.extras)
        same = target == still.format
        path.write_bytes(encode_picture(pixels, mode, target, extras, same_format=same, quality=quality))
    except InputError as err:
        raise OutputError(path, err.reason) from err
    except OSError as err:
        raise OutputError(path, output_reason(err)) from err
    except (ValueError, SyntaxError, KeyError, cv2.error) as err:
        raise OutputError(path, f"could not be encoded as {target} ({err})") from err
    return messages


def format_for(path: Path, still: Still) -> str:
    """The format an output gets: by its ending, or the input's where it has none or carries the same one.

    Raises:
        UsageError: The ending is none of ours.
    """
    ending = path.suffix.lower()
    if ending in FORMAT_OF_ENDING:
        return FORMAT_OF_ENDING[ending]
    if not ending or ending == still.path.suffix.lower():
        return still.format
    raise UsageError(
        f"cannot write a picture as '{ending}'; endings that work: {', '.join(FORMAT_OF_ENDING)}"
    )
