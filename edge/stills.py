"""Still pictures: in with everything they hold, out with only the changed pixels changed.

A picture without a patch is copied byte for byte where the format stays, the only way to leave a JPEG as it
was. Otherwise the changed pixels are written into the native picture: 16 bits stay 16 bits (the change, known
to 8 bits, is added), grey stays grey, CMYK stays CMYK (the changed pixels take the way back through the
picture's own colour profile), opacity is never touched. A palette picture becomes RGB, because new colours do
not fit its palette.

JPEG is encoded with the quantisation tables and subsampling of the input, so it loses no more than it had.
Pictures stand upright when they come out, and their orientation tag says so.
"""

import io
import logging
import re
import shutil
import struct
import warnings as python_warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageCms,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    MpoImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from edge.outputs import output_reason
from edge.picture_metadata import (
    EXIF_PREFIX,
    exif_orientation,
    kept_png_chunks,
    png_chunks,
    upright_exif,
    upright_xmp,
    with_png_chunks,
)
from shared.arrays import ImageBgr
from shared.errors import InputError, OutputError, UsageError
from shared.frames import Frame, FusedFrame

logger = logging.getLogger(__name__)

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
_DEFAULT_QUALITY: Final = {"JPEG": 95, "WEBP": 92, "AVIF": 85, "HEIF": 90}
_UINT16_STEP: Final = 257  # 65535 / 255
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

Pixels: TypeAlias = npt.NDArray[Any]
"""Pixels of a file, uint8 or uint16, shape ``(h, w)`` or ``(h, w, c)``."""


@dataclass(frozen=True, slots=True, eq=False)
class NativePicture:
    """A picture in the form its file holds it, upright.

    Attributes:
        pixels: Shape ``(h, w)`` for grey, else ``(h, w, c)``; uint8 or uint16; channels as ``mode`` says.
        mode: ``L``, ``LA``, ``RGB``, ``RGBA`` or ``CMYK``.
    """

    pixels: Pixels
    mode: str


@dataclass(frozen=True, slots=True)
class Extras:
    """What is kept of a file beside its pixels, already fit for the upright, altered picture.

    Attributes:
        exif: EXIF block without prefix.
        icc: Colour profile.
        xmp: XMP packet.
        dpi: Resolution across and down.
        comment: JPEG comment.
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
    png_chunks: tuple[tuple[bytes, bytes], ...] | None = None
    jpeg_tables: tuple[tuple[int, ...], ...] = ()
    jpeg_subsampling: int = -1
    progressive: bool = False
    lossless: bool = False
    tiff_compression: str | None = None


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
        formats = (*formats, _register_heic(path))
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


def _register_heic(path: Path | str) -> str:
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
    return NativePicture(_recoloured(bgr, cv2.COLOR_BGR2RGB), "RGB")


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
    return NativePicture(_recoloured(pixels, code), mode)


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


def working_copy(native: NativePicture, icc: bytes | None = None) -> ImageBgr:
    """The picture in 8-bit BGR, with its own memory; ``icc`` is its colour profile, for CMYK."""
    pixels = _to_8_bits(native.pixels)
    if native.mode == "L":
        return _recoloured(pixels, cv2.COLOR_GRAY2BGR)
    if native.mode == "LA":
        return _recoloured(np.ascontiguousarray(pixels[..., 0]), cv2.COLOR_GRAY2BGR)
    if native.mode == "CMYK":
        return _recoloured(_cmyk_to_rgb(pixels, icc), cv2.COLOR_RGB2BGR)
    return _recoloured(pixels, cv2.COLOR_RGB2BGR if native.mode == "RGB" else cv2.COLOR_RGBA2BGR)


def _recoloured(pixels: Pixels, code: int) -> Pixels:
    recoloured: Pixels = cv2.cvtColor(pixels, code)
    return recoloured


def _to_8_bits(pixels: Pixels) -> npt.NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return pixels.astype(np.uint8, copy=False)
    return ((pixels.astype(np.uint32) + _UINT16_STEP // 2) // _UINT16_STEP).astype(np.uint8)


def _cmyk_to_rgb(pixels: npt.NDArray[np.uint8], icc: bytes | None) -> npt.NDArray[np.uint8]:
    picture = _picture_of(pixels, "CMYK")
    return np.asarray(_through_profile(picture, icc, "RGB", inverse=False) or picture.convert("RGB"))


def _rgb_to_cmyk(pixels: npt.NDArray[np.uint8], icc: bytes | None) -> npt.NDArray[np.uint8]:
    picture = _picture_of(pixels, "RGB")
    return np.asarray(_through_profile(picture, icc, "CMYK", inverse=True) or picture.convert("CMYK"))


def _through_profile(
    picture: Image.Image, icc: bytes | None, mode: str, *, inverse: bool
) -> Image.Image | None:
    """Convert between a CMYK profile and sRGB; None where there is no usable profile."""
    if not icc:
        return None
    try:
        own = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        screen = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        source, target = (screen, own) if inverse else (own, screen)
        return ImageCms.profileToProfile(picture, source, target, outputMode=mode)
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None


def merged_pixels(fused: FusedFrame, icc: bytes | None = None) -> Pixels:
    """The native pixels with the patches' changed pixels replaced; alpha and all else as it was.

    Args:
        fused: Its frame's ``native`` is a `NativePicture`.
        icc: Colour profile, for CMYK.
    """
    native: NativePicture = fused.frame.native
    pixels = native.pixels.copy()
    for patch in fused.patches:
        height, width = patch.changed.shape
        rows, columns = slice(patch.y, patch.y + height), slice(patch.x, patch.x + width)
        changed = patch.changed != 0
        region = NativePicture(native.pixels[rows, columns], native.mode)
        new = _in_native_form(np.ascontiguousarray(fused.frame.image[rows, columns]), region, icc)
        target = pixels[rows, columns]
        if target.ndim == 2:
            np.copyto(target, new, where=changed)
        else:
            colours = new.shape[2] if new.ndim == 3 else 1
            np.copyto(target[..., :colours], new.reshape(height, width, colours), where=changed[..., None])
    return pixels


def _in_native_form(fused: ImageBgr, before: NativePicture, icc: bytes | None) -> Pixels:
    """A fused region in the channels and depth of the native picture, without alpha."""
    if before.mode == "CMYK":
        return _rgb_to_cmyk(_recoloured(fused, cv2.COLOR_BGR2RGB), icc)
    grey = before.mode in ("L", "LA")
    new = _recoloured(fused, cv2.COLOR_BGR2GRAY if grey else cv2.COLOR_BGR2RGB)
    if before.pixels.dtype == np.uint8:
        return new
    colours = before.pixels if before.pixels.ndim == 2 else before.pixels[..., : 1 if grey else 3].squeeze()
    colours = colours.reshape(new.shape)
    step = new.astype(np.int32) - _to_8_bits(colours)
    return np.clip(colours.astype(np.int32) + step * _UINT16_STEP, 0, 65535).astype(np.uint16)


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
        pixels = merged_pixels(fused, still.extras.icc)
        mode = fused.frame.native.mode
        pixels, mode, messages = _fit_to_format(pixels, mode, target, still.extras.icc)
        path.write_bytes(_encoded(pixels, mode, target, still, quality))
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


def _fit_to_format(
    pixels: Pixels, mode: str, target: str, icc: bytes | None
) -> tuple[Pixels, str, tuple[str, ...]]:
    """Give up what a format cannot hold, and say so."""
    messages = []
    if pixels.dtype == np.uint16 and target not in ("PNG", "TIFF"):
        pixels = _to_8_bits(pixels)
        messages.append(f"16 bits a channel became 8: {target} holds no more")
    if mode == "CMYK" and target not in ("JPEG", "TIFF"):
        pixels, mode = _cmyk_to_rgb(_to_8_bits(pixels), icc), "RGB"
        messages.append(f"CMYK became RGB: {target} holds no CMYK")
    if mode in ("LA", "RGBA") and target in ("JPEG", "BMP"):
        pixels, mode = pixels[..., :-1].squeeze(-1) if mode == "LA" else pixels[..., :3], mode[:-1]
        messages.append(f"opacity dropped: {target} holds none")
    if mode == "LA" and (target in ("WEBP", "AVIF", "GIF", "HEIF") or pixels.dtype == np.uint16):
        pixels, mode = pixels[..., [0, 0, 0, 1]], "RGBA"
    compact: Pixels = np.ascontiguousarray(pixels)
    return compact, mode, tuple(messages)


def _picture_of(pixels: Pixels, mode: str) -> Image.Image:
    if pixels.dtype == np.uint16:
        return Image.fromarray(pixels)
    height, width = pixels.shape[:2]
    return Image.frombuffer(mode, (width, height), np.ascontiguousarray(pixels), "raw", mode, 0, 1)


def _encoded(pixels: Pixels, mode: str, target: str, still: Still, quality: int | None) -> bytes:
    extras = still.extras
    if mode != "CMYK" and fused_from_cmyk(still):
        extras = _without_profile(extras)
    if target == "PNG":
        return _encoded_png(pixels, mode, extras)
    if target == "TIFF" and pixels.dtype == np.uint16 and pixels.ndim == 3:
        return _encoded_tiff_16(pixels, extras)
    if target == "HEIF":
        _register_heic(still.path)
    options = _SAVE_OPTIONS.get(target, _no_options)(extras, target == still.format, quality)
    buffer = io.BytesIO()
    picture = _picture_of(pixels, mode)
    if target == "GIF" and mode == "RGB":
        picture = picture.quantize(256, method=Image.Quantize.MEDIANCUT)
    picture.save(buffer, target, **{key: value for key, value in options.items() if value is not None})
    return buffer.getvalue()


def fused_from_cmyk(still: Still) -> bool:
    """Whether the picture's colour profile is one for CMYK."""
    return bool(still.frame.native.mode == "CMYK")


def _without_profile(extras: Extras) -> Extras:
    return Extras(exif=extras.exif, xmp=extras.xmp, dpi=extras.dpi, comment=extras.comment)


def _encoded_png(pixels: Pixels, mode: str, extras: Extras) -> bytes:
    if pixels.dtype == np.uint16:
        bgr = (
            pixels
            if pixels.ndim == 2
            else _recoloured(pixels, cv2.COLOR_RGB2BGR if mode == "RGB" else cv2.COLOR_RGBA2BGRA)
        )
        ok, encoded = cv2.imencode(".png", bgr)
        if not ok:
            raise ValueError("16-bit PNG")
        png = encoded.tobytes()
    else:
        buffer = io.BytesIO()
        _picture_of(pixels, mode).save(buffer, "PNG")
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
