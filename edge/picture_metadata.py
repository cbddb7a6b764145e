"""What a picture file says beside its pixels, and what of it goes into the altered picture.

Kept: EXIF, colour profile, XMP, resolution, comments, PNG text. Changed: the orientation becomes "upright",
because the pixels are; previews inside EXIF and XMP are taken out, because they show the picture as it was.

EXIF is changed in place, byte by byte. Writing it anew from parsed values would break maker notes, which
point at absolute places in the block.
"""

import re
import struct
import zlib
from collections.abc import Iterator

EXIF_PREFIX = b"Exif\0\0"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_ORIENTATION = 0x0112
_THUMBNAIL_OFFSET = 0x0201
_THUMBNAIL_LENGTH = 0x0202
_SHORT = 3
_PHOTOSHOP_THUMBNAILS = (1033, 1036)
# Chunks that describe the pixels' colours or the picture as a whole, and fit any pixel format.
_KEPT_PNG_CHUNKS = frozenset(
    {
        b"cHRM",
        b"gAMA",
        b"iCCP",
        b"sRGB",
        b"cICP",
        b"mDCV",
        b"cLLI",
        b"pHYs",
        b"tIME",
        b"tEXt",
        b"zTXt",
        b"iTXt",
    }
)
_XMP_KEYWORD = b"XML:com.adobe.xmp\0"


def upright_exif(raw: bytes | None) -> bytes | None:
    """The EXIF block with orientation 1 and without its thumbnail.

    Args:
        raw: Block with or without its ``Exif`` prefix.

    Returns:
        The block without prefix; None where there is none or it is not readable.
    """
    if not raw:
        return None
    block = bytearray(raw.removeprefix(EXIF_PREFIX))
    try:
        _make_upright(block)
    except (struct.error, IndexError, ValueError):
        return None
    return bytes(block)


def exif_orientation(raw: bytes | None) -> int:
    """Orientation 1 to 8; 1 where nothing sensible is said."""
    if not raw:
        return 1
    block = raw.removeprefix(EXIF_PREFIX)
    try:
        order = _byte_order(block)
        for tag, at in _entries(block, order, _first_directory(block, order)):
            if tag == _ORIENTATION:
                value = struct.unpack_from(order + "H", block, at + 8)[0]
                return value if 1 <= value <= 8 else 1
    except (struct.error, IndexError, ValueError):
        return 1
    return 1


def _byte_order(block: bytes | bytearray) -> str:
    order = {b"II": "<", b"MM": ">"}.get(bytes(block[:2]))
    if order is None or struct.unpack_from(order + "H", block, 2)[0] != 42:
        raise ValueError("not an EXIF block")
    return order


def _first_directory(block: bytes | bytearray, order: str) -> int:
    return int(struct.unpack_from(order + "I", block, 4)[0])


def _entries(block: bytes | bytearray, order: str, directory: int) -> Iterator[tuple[int, int]]:
    """Tag and position of each entry of a directory."""
    count = struct.unpack_from(order + "H", block, directory)[0]
    for number in range(count):
        at = directory + 2 + 12 * number
        yield struct.unpack_from(order + "H", block, at)[0], at


def _make_upright(block: bytearray) -> None:
    order = _byte_order(block)
    directory = _first_directory(block, order)
    count = struct.unpack_from(order + "H", block, directory)[0]
    for tag, at in _entries(block, order, directory):
        if tag == _ORIENTATION:
            struct.pack_into(order + "HIHH", block, at + 2, _SHORT, 1, 1, 0)
    link = directory + 2 + 12 * count
    if link + 4 > len(block):
        return
    thumbnail = struct.unpack_from(order + "I", block, link)[0]
    if thumbnail:
        _blank_thumbnail(block, order, thumbnail)
        struct.pack_into(order + "I", block, link, 0)


def _blank_thumbnail(block: bytearray, order: str, directory: int) -> None:
    values = {
        tag: struct.unpack_from(order + "I", block, at + 8)[0]
        for tag, at in _entries(block, order, directory)
    }
    start, length = values.get(_THUMBNAIL_OFFSET, 0), values.get(_THUMBNAIL_LENGTH, 0)
    if not start or not length:
        return
    if start + length >= len(block):
        del block[start:]
    else:
        block[start : start + length] = bytes(length)


def upright_xmp(raw: bytes | None) -> bytes | None:
    """The XMP packet with orientation 1 and without thumbnails; None where there is none."""
    if not raw:
        return None
    packet = re.sub(rb'(tiff:Orientation\s*=\s*["\'])\d+', rb"\g<1>1", raw)
    packet = re.sub(rb"(<tiff:Orientation>)\s*\d+", rb"\g<1>1", packet)
    return re.sub(rb"<(xmp|xap):Thumbnails\b.*?</\1:Thumbnails>", b"", packet, flags=re.S)


def photoshop_segment(resources: object) -> bytes:
    """The JPEG segment of Photoshop's resources (captions and credits among them) without their thumbnails.

    Args:
        resources: Resource number to content, as Pillow gives it.

    Returns:
        The whole segment with its marker; empty where nothing is left or it would not fit one segment.
    """
    if not isinstance(resources, dict):
        return b""
    blocks = b"".join(
        b"8BIM" + struct.pack(">HHI", number, 0, len(content)) + content + b"\0" * (len(content) % 2)
        for number, content in resources.items()
        if isinstance(content, bytes) and number not in _PHOTOSHOP_THUMBNAILS
    )
    payload = b"Photoshop 3.0\0" + blocks
    if not blocks or len(payload) > 0xFFFF - 2:
        return b""
    return b"\xff\xed" + struct.pack(">H", len(payload) + 2) + payload


def kept_png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Type and content of the chunks of a PNG file that go into an altered one."""
    chunks = []
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        length = struct.unpack_from(">I", data, at)[0]
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"eXIf":
            exif = upright_exif(content)
            if exif is not None:
                chunks.append((kind, exif))
        elif kind == b"iTXt" and content.startswith(_XMP_KEYWORD):
            # Uncompressed only: the two bytes after the keyword are compression flag and method.
            if content[len(_XMP_KEYWORD) : len(_XMP_KEYWORD) + 1] == b"\0":
                chunks.append((kind, upright_xmp(content) or b""))
        elif kind in _KEPT_PNG_CHUNKS:
            chunks.append((kind, content))
    return chunks


def png_chunks(
    *, exif: bytes | None, icc: bytes | None, xmp: bytes | None, dpi: tuple[float, float] | None
) -> list[tuple[bytes, bytes]]:
    """The same things as PNG chunks, for a picture that was no PNG."""
    chunks = []
    if icc:
        chunks.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(icc)))
    if dpi:
        across, down = (round(value / 0.0254) for value in dpi)
        chunks.append((b"pHYs", struct.pack(">IIB", across, down, 1)))
    if exif:
        chunks.append((b"eXIf", exif))
    if xmp:
        chunks.append((b"iTXt", _XMP_KEYWORD + b"\0\0\0\0" + xmp))
    return chunks


def with_png_chunks(png: bytes, chunks: list[tuple[bytes, bytes]]) -> bytes:
    """A PNG file with more chunks right behind its header."""
    header = len(PNG_SIGNATURE) + 25
    packed = b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    return png[:header] + packed + png[header:]
