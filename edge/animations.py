"""Animated pictures: GIF, WebP and APNG in, the same out, frame for frame.

Each frame is written as the smallest rectangle that holds everything that changed since the frame before;
what the files look like inside is in `edge.animation_files`. No more than two frames are in memory at a time.
"""

import logging
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import numpy as np
from PIL import Image

from edge.animation_files import FORMATS, AnimationInfo, Rgba
from edge.outputs import output_reason
from edge.picture_pixels import NativePicture, merged_pixels, working_copy
from edge.stills import open_picture, picture_errors
from shared.errors import InputError, OutputError, UsageError
from shared.frames import Frame, FusedFrame

logger = logging.getLogger(__name__)

_FORMAT_OF_ENDING: Final = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG", ".apng": "PNG"}
_MILLISECOND: Final = Fraction(1, 1000)


class AnimationReader:
    """Frames of an animated picture, composed as they are shown.

    The file is read through once on opening, for its timing and to know what of it is whole. May be iterated
    several times.

    Args:
        path: The file.

    Attributes:
        path: The file.
        info: What is known of it.
        warnings: What was wrong with it.

    Raises:
        InputError: Not one frame can be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: tuple[str, ...] = ()
        self._skipped_first = 0
        self.info = self._scan()

    def _scan(self) -> AnimationInfo:
        durations: list[float] = []
        has_alpha = False
        with open_picture(self.path) as picture:
            # An APNG may begin with a picture for programs that cannot animate; it is no frame.
            self._skipped_first = int(bool(getattr(picture, "default_image", False)))
            promised = getattr(picture, "n_frames", 1) - self._skipped_first
            for pixels, duration in self._composed(picture, promised):
                durations.append(duration)
                has_alpha = has_alpha or bool((pixels[..., 3] != 255).any())
            if not durations:
                raise InputError(self.path, "not one of its frames can be read")
            if len(durations) < promised:
                self.warnings = (f"is cut off: {len(durations)} of {promised} frames could be read",)
            return AnimationInfo(
                width=picture.width,
                height=picture.height,
                frame_count=len(durations),
                durations_ms=tuple(durations),
                loop=picture.info.get("loop"),
                has_alpha=has_alpha,
                format=picture.format or "",
                lossless=picture.format == "WEBP" and _is_lossless(self.path),
            )

    def __iter__(self) -> Iterator[Frame]:
        time_ms = 0.0
        with open_picture(self.path) as picture:
            for index, (pixels, duration) in enumerate(self._composed(picture, self.info.frame_count)):
                native = NativePicture(pixels, "RGBA")
                yield Frame(index, working_copy(native), round(time_ms), _MILLISECOND, native)
                time_ms += duration

    def _composed(self, picture: Image.Image, count: int) -> Iterator[tuple[Rgba, float]]:
        for number in range(count):
            try:
                picture.seek(number + self._skipped_first)
                pixels = np.array(picture.convert("RGBA"))
            except picture_errors as err:
                logger.debug("frame_unreadable path=%s frame=%d error=%s", self.path, number, err)
                return
            yield pixels, float(picture.info.get("duration", 0) or 0)


def _is_lossless(path: Path) -> bool:
    data = path.read_bytes()
    return b"VP8L" in data and b"VP8 " not in data


class AnimationWriter:
    """Writes one animated picture. Use as a context manager; leaving it by an exception finishes nothing.

    Args:
        path: The output; its ending decides the format, without one it is the input's.
        reader: Where the frames, their timing and everything else come from.

    Attributes:
        path: The output.
        messages: What the output could not keep.

    Raises:
        UsageError: An ending that holds no animation.
        OutputError: The file cannot be created.
    """

    def __init__(self, path: Path, reader: AnimationReader) -> None:
        self.path = path
        self.messages: list[str] = []
        self._reader = reader
        self._name = self._format_name()
        self._format = FORMATS[self._name]()
        self._before: Rgba | None = None
        self._any_fused = False
        try:
            self._file: BinaryIO = path.open("wb+")
            self._format.begin(self._file, reader.info, reader.path)
        except OSError as err:
            raise OutputError(path, output_reason(err)) from err

    def _format_name(self) -> str:
        ending = self.path.suffix.lower()
        if ending in _FORMAT_OF_ENDING:
            return _FORMAT_OF_ENDING[ending]
        if not ending or ending == self._reader.path.suffix.lower():
            return self._reader.info.format
        known = ", ".join(_FORMAT_OF_ENDING)
        raise UsageError(f"cannot write an animation as '{ending}'; endings that work: {known}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    def write(self, fused: FusedFrame) -> None:
        """Add one frame.

        Raises:
            OutputError: The file cannot be written further.
        """
        pixels: Rgba = merged_pixels(fused)
        self._any_fused = self._any_fused or bool(fused.patches)
        rows, columns = self._changed_rectangle(pixels)
        touched = (pixels != fused.frame.native.pixels).any(-1)
        duration = self._reader.info.durations_ms[fused.frame.index]
        corner = (columns.start, rows.start)
        part = np.ascontiguousarray(pixels[rows, columns])
        try:
            self._format.add(self._file, part, corner, duration, touched[rows, columns])
        except OSError as err:
            raise OutputError(self.path, output_reason(err)) from err
        self._before = pixels

    def _changed_rectangle(self, pixels: Rgba) -> tuple[slice, slice]:
        height, width = pixels.shape[:2]
        if self._before is None:
            return slice(0, height), slice(0, width)
        return self._format.rectangle((pixels != self._before).any(-1))

    def close(self) -> None:
        """Finish the file. Without a single fused frame it is the input, byte for byte.

        Raises:
            OutputError: The last of it could not be written.
        """
        if self._file.closed:
            return
        try:
            with self._file:
                self._format.end(self._file)
            if not self._any_fused and self._name == self._reader.info.format:
                shutil.copyfile(self._reader.path, self.path)
        except OSError as err:
            raise OutputError(self.path, output_reason(err)) from err
