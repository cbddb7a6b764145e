"""What kind a file is, by its content: names lie, and a wrong guess costs the job.

A file is looked at in steps, each cheap: its first bytes, then the header of the picture or the streams of
the video. Nothing is decoded.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from edge.stills import FORMAT_OF_ENDING, open_picture
from edge.video.containers import KINDS
from edge.video.reader import main_video_stream, open_input
from shared.errors import InputError

MediaKind: TypeAlias = Literal["still", "animation", "video"]

_HEAD_BYTES: Final = 4096
_ANIMATED_FORMATS: Final = ("GIF", "WEBP", "PNG")
_PICTURE_STARTS: Final = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
    b"BM",
    b"\0\0\0\x0cjP  ",
    b"\xff\x4f\xff\x51",
)
_PICTURE_BRANDS: Final = frozenset(
    {b"avif", b"avis", b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"}
)
_SOUND_BRANDS: Final = frozenset({b"M4A ", b"M4B ", b"M4P "})
_VIDEO_STARTS: Final = (
    b"\x1aE\xdf\xa3",  # Matroska, WebM
    b"FLV\x01",
    b"0&\xb2u\x8ef\xcf\x11",  # ASF
    b"\0\0\x01\xba",  # MPEG program stream
    b"\0\0\x01\xb3",
    b"\0\0\0\x01",  # bare H.264 or HEVC
)
_MP4_BOXES: Final = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip", b"pnot"})
_MEDIA_ENDINGS: Final = frozenset(FORMAT_OF_ENDING) | frozenset(KINDS)
_KNOWN_PICTURES: Final = "JPEG, PNG, WebP, AVIF, HEIC, TIFF, BMP, JPEG 2000, GIF"
_SKIPPED_NAMES: Final = frozenset({"thumbs.db", "desktop.ini"})


def probe_kind(path: Path) -> MediaKind:
    """What a file is.

    Raises:
        InputError: Nothing we can read, with the reason.
    """
    head = _read_head(path)
    if _is_text(head):
        raise InputError(path, "is a text file or web page, not a picture or video")
    if _starts_like_picture(head):
        return _probe_picture(path)
    return _probe_video(path)


def _read_head(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(path, "is a device or pipe, not a file")  # reading might never end
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError as err:
        raise InputError(path, "there is no such file") from err
    except IsADirectoryError as err:
        raise InputError(path, "is a folder, not a file") from err
    except PermissionError as err:
        if path.is_dir():  # what Windows says of a folder
            raise InputError(path, "is a folder, not a file") from err
        raise InputError(path, "may not be read (permission denied)") from err
    except OSError as err:
        raise InputError(path, f"cannot be read ({err.strerror})") from err
    if not head:
        raise InputError(path, "is empty (0 bytes)")
    return head


def _is_text(head: bytes) -> bool:
    """Playlists count as text too: they name other files, which an input must not pull in."""
    if b"\0" in head:
        return False
    try:
        text = head.decode("utf-8", "strict")
    except UnicodeDecodeError as err:
        if err.start < len(head) - 4:  # not just a letter cut in two at the end
            return False
        text = head[: err.start].decode("utf-8")
    return not re.search(r"[\x01-\x08\x0e-\x1f]", text)


def _starts_like_picture(head: bytes) -> bool:
    if head.startswith(_PICTURE_STARTS):
        return True
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return True
    return head[4:8] == b"ftyp" and head[8:12] in _PICTURE_BRANDS


def _probe_picture(path: Path) -> MediaKind:
    with open_picture(path) as picture:
        animated = picture.format in _ANIMATED_FORMATS and getattr(picture, "n_frames", 1) > 1
    return "animation" if animated else "still"


def _probe_video(path: Path) -> MediaKind:
    wanted = "a picture" if path.suffix.lower() in FORMAT_OF_ENDING else "a picture or video"
    try:
        container = open_input(path)
    except InputError as err:
        raise InputError(path, f"is not {wanted} that can be read, or it is damaged") from err
    with container:
        if _is_picture_demuxer(container.format.name):
            raise InputError(
                path, f"is not a picture of a kind we know ({_KNOWN_PICTURES}), or it is damaged"
            )
        stream = main_video_stream(container)
        if stream is not None and stream.codec_context.width and stream.codec_context.height:
            return "video"
        if container.streams.audio and path.suffix.lower() not in FORMAT_OF_ENDING and stream is None:
            raise InputError(path, "holds sound but no picture")
    raise InputError(path, f"is not {wanted} that can be read, or it is damaged")


def _is_picture_demuxer(name: str) -> bool:
    return name.endswith("_pipe") or name.startswith("image2")


def list_inputs(paths: Sequence[Path]) -> list[Path]:
    """The files behind what the user named, folders opened.

    A file that was named is kept whatever it is, so that what is wrong with it gets said. In folders, files
    are taken that have an ending of ours or begin like a picture or video; hidden ones and the system's are
    not. Names come in natural order (2 before 10). A file named twice counts once.

    Raises:
        InputError: A folder that cannot be read or holds nothing of use.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - unlike its twin it never raises
            found[path] = None
            continue
        inside = sorted(_media_in(path), key=_natural_key)
        if not inside:
            raise InputError(path, "is a folder without a picture or video in it")
        found.update(dict.fromkeys(inside))
    return list(found)


def _media_in(folder: Path) -> Iterator[Path]:
    def refuse(err: OSError) -> None:
        raise InputError(err.filename or folder, f"is a folder that cannot be read ({err.strerror})") from err

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent) / name
            if not name.startswith(".") and name.lower() not in _SKIPPED_NAMES and _may_be_media(path):
                yield path


def _may_be_media(path: Path) -> bool:
    if path.suffix.lower() in _MEDIA_ENDINGS:
        return True
    try:
        head = _read_head(path)
    except InputError:
        return False
    return not _is_text(head) and (_starts_like_picture(head) or _starts_like_video(head))


def _starts_like_video(head: bytes) -> bool:
    if head[4:8] in _MP4_BOXES:
        return head[8:12] not in _SOUND_BRANDS
    if head[:4] == b"RIFF":
        return head[8:12] == b"AVI "
    transport_stream = head[:1] == b"\x47" and head[188:189] == b"\x47"
    camcorder_stream = head[4:5] == b"\x47" and head[196:197] == b"\x47"
    return head.startswith(_VIDEO_STARTS) or transport_stream or camcorder_stream


def _natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Digits compare as numbers, everything else without regard to case."""
    parts = re.split(r"(\d+)", str(path).casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
