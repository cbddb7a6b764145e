"""Pixel formats: planar twins of packed ones, colour matrices, the way to BGR and back for changed pixels.

A frame stays in the format its decoder gave, as far as that is planar and little-endian; anything else is
changed once, without loss, to the planar format that holds the same samples (``bgra`` to ``gbrap``, ``nv12``
to ``yuv420p``). So the code below sees one component a plane and nothing else.
"""

from functools import lru_cache
from typing import Any, cast

import av
import numpy as np
import numpy.typing as npt
from av.video.format import VideoFormat
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

from shared.arrays import ImageBgr
from shared.frames import Patch

# FFmpeg's AVColorSpace numbers and the matrices its scaler knows under the same numbers.
_MATRICES = {1: Colorspace.ITU709, 4: Colorspace.FCC, 5: Colorspace.ITU601, 6: Colorspace.ITU601}
_MATRICES |= {7: Colorspace.SMPTE240M, 9: Colorspace.BT2020, 10: Colorspace.BT2020}
_SUBSAMPLINGS = {(1, 1): "444", (2, 1): "422", (2, 2): "420", (1, 2): "440", (4, 1): "411", (4, 4): "410"}
# To BGR: the scaler's short cut (nearest chroma), four times as fast as its exact path but a step too dark;
# see `_darkening`. Back: exact, chroma as the mean of its pixels, which undoes the nearest chroma to the bit.
_TO_BGR = Interpolation.BILINEAR
_TO_NATIVE = Interpolation.AREA | Interpolation.ACCURATE_RND


def matrix_of(frame: VideoFrame) -> Colorspace:
    """The colour matrix of a frame; where it says none, what players assume for its size."""
    return _MATRICES.get(frame.colorspace) or assumed_matrix(frame.width, frame.height)


def assumed_matrix(width: int, height: int) -> Colorspace:
    """The colour matrix players assume for a size where nothing is said."""
    return Colorspace.ITU709 if width >= 1280 or height > 576 else Colorspace.ITU601


def range_of(frame: VideoFrame) -> ColorRange:
    """Full or limited range; limited where the frame does not say."""
    if frame.format.name.startswith("yuvj") or frame.color_range == ColorRange.JPEG:
        return ColorRange.JPEG
    return ColorRange.MPEG


def subsampling_of(pixel_format: VideoFormat) -> tuple[int, int]:
    """How many luma columns and rows share one chroma sample."""
    return 16 // max(pixel_format.chroma_width(16), 1), 16 // max(pixel_format.chroma_height(16), 1)


def has_alpha(pixel_format: VideoFormat) -> bool:
    """Whether one of the components is opacity."""
    return pixel_format.has_palette or any(component.is_alpha for component in pixel_format.components)


def depth_of(pixel_format: VideoFormat) -> int:
    """Bits of the deepest component."""
    return max((component.bits for component in pixel_format.components), default=8)


@lru_cache(maxsize=64)
def planar_twin(name: str) -> str:
    """Name of the planar little-endian format that holds the samples of ``name``; itself where it is one."""
    fmt = VideoFormat(name, 16, 16)
    planes = [component.plane for component in fmt.components]
    if not (fmt.has_palette or fmt.is_big_endian or fmt.is_bit_stream or fmt.is_bayer) and len(
        set(planes)
    ) == len(planes):
        return name
    bits = min(depth_of(fmt), 16)
    depth = "" if bits <= 8 else f"{bits}le"
    if fmt.is_rgb or fmt.has_palette or fmt.is_bayer or (len(planes) == 2 and has_alpha(fmt)):
        return _existing(
            ("gbrap" if has_alpha(fmt) else "gbrp") + depth, "gbrap16le" if has_alpha(fmt) else "gbrp16le"
        )
    if len(planes) == 1:
        return _existing("gray" + depth, "gray16le")
    sampling = _SUBSAMPLINGS.get(subsampling_of(fmt), "444")
    return _existing(f"yuv{'a' if has_alpha(fmt) else ''}{sampling}p{depth}", "yuv444p16le")


def _existing(name: str, otherwise: str) -> str:
    try:
        return VideoFormat(name, 16, 16).name
    except ValueError:
        return otherwise


def plane_views(frame: VideoFrame) -> list[npt.NDArray[np.uint8] | npt.NDArray[np.uint16]]:
    """The planes of a planar frame as arrays that share its memory, shape ``(h, w)`` each."""
    views = []
    for plane, component in zip(frame.planes, _components_by_plane(frame.format), strict=True):
        dtype = np.uint8 if component.bits <= 8 else np.uint16
        rows: npt.NDArray[Any] = np.frombuffer(cast(memoryview, plane), dtype).reshape(plane.height, -1)
        views.append(rows[:, : plane.width])
    return views


def _components_by_plane(fmt: VideoFormat) -> list[av.video.format.VideoFormatComponent]:
    return sorted(fmt.components, key=lambda component: component.plane)


class BgrConverter:
    """Upright BGR pictures from native frames; keeps the scaler's tables between frames."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def to_bgr(self, frame: VideoFrame) -> ImageBgr:
        """A writable picture, shape ``(h, w, 3)``, with its own memory."""
        bgr = self._reformatter.reformat(
            frame,
            format="bgr24",
            src_colorspace=matrix_of(frame),
            src_color_range=range_of(frame),
            dst_color_range=ColorRange.JPEG,
            interpolation=_TO_BGR,
            threads=1,
        )
        plane = bgr.planes[0]
        rows = np.frombuffer(cast(memoryview, plane), np.uint8).reshape(frame.height, plane.line_size)
        return np.ascontiguousarray(rows[:, : frame.width * 3]).reshape(frame.height, frame.width, 3)


class PatchWriter:
    """Writes changed pixels into native frames and leaves all others bit for bit as they were."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def apply(self, native: VideoFrame, image: ImageBgr, patches: tuple[Patch, ...]) -> None:
        """Replace the pixels that the patches changed.

        Args:
            native: Planar frame; becomes a copy first where its decoder still refers to the memory.
            image: The fused picture, shape ``(h, w, 3)``.
            patches: What was changed in it.
        """
        native.make_writable()
        views = plane_views(native)
        for patch in patches:
            self._apply_one(native, views, image, patch)

    def _apply_one(
        self,
        native: VideoFrame,
        views: list[npt.NDArray[np.uint8] | npt.NDArray[np.uint16]],
        image: ImageBgr,
        patch: Patch,
    ) -> None:
        step_x, step_y = subsampling_of(native.format)
        rows, columns = patch.changed.shape
        # The region grows to whole chroma samples, so that no sample is split between old and new.
        x0, y0 = patch.x - patch.x % step_x, patch.y - patch.y % step_y
        x1 = min(-(-(patch.x + columns) // step_x) * step_x, native.width)
        y1 = min(-(-(patch.y + rows) // step_y) * step_y, native.height)
        mask = np.zeros((-(-(y1 - y0) // step_y) * step_y, -(-(x1 - x0) // step_x) * step_x), np.bool_)
        top, left = patch.y - y0, patch.x - x0
        np.not_equal(patch.changed, 0, out=mask[top : top + rows, left : left + columns])
        converted = plane_views(self._to_native(native, image[y0:y1, x0:x1]))
        chroma_mask = _any_in_cells(mask, step_x, step_y)
        for component in native.format.components:
            if component.is_alpha:
                continue
            source = converted[component.plane]
            height, width = source.shape
            chroma = component.is_chroma and not native.format.is_rgb
            where = (chroma_mask if chroma else mask)[:height, :width]
            x, y = (x0 // step_x, y0 // step_y) if chroma else (x0, y0)
            np.copyto(views[component.plane][y : y + height, x : x + width], source, where=where)

    def _to_native(self, native: VideoFrame, region: ImageBgr) -> VideoFrame:
        matrix, colour_range = matrix_of(native), range_of(native)
        offset = _darkening(native.format.name, matrix, colour_range)
        lighter = np.minimum(region, np.uint8(255 - offset)) + np.uint8(offset)
        return _from_bgr(self._reformatter, lighter, native.format.name, matrix, colour_range)


def _from_bgr(
    reformatter: VideoReformatter, bgr: ImageBgr, name: str, matrix: Colorspace, colour_range: ColorRange
) -> VideoFrame:
    return reformatter.reformat(
        VideoFrame.from_numpy_buffer(np.ascontiguousarray(bgr), "bgr24"),
        format=name,
        src_color_range=ColorRange.JPEG,
        dst_colorspace=matrix,
        dst_color_range=colour_range,
        interpolation=_TO_NATIVE,
        threads=1,
    )


@lru_cache(maxsize=64)
def _darkening(name: str, matrix: Colorspace, colour_range: ColorRange) -> int:
    """How much darker the short cut to BGR makes a picture of this format: measured on a ramp.

    Added before the way back, so that a patch does not stand out from its surroundings by that step.
    """
    steps = np.arange(40, 216, 11, dtype=np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(64, 64, 3)
    ramp = colours.repeat(4, 0).repeat(4, 1)
    native = _from_bgr(VideoReformatter(), ramp, name, matrix, colour_range)
    native.colorspace, native.color_range = int(matrix), int(colour_range)
    if native.format.is_rgb or len(native.planes) < 3:
        return 0
    lost = ramp.astype(np.float32) - BgrConverter().to_bgr(native)
    return round(min(max(float(lost.mean()), 0.0), 2.0))


def _any_in_cells(mask: npt.NDArray[np.bool_], step_x: int, step_y: int) -> npt.NDArray[np.bool_]:
    """For each cell of ``step_y`` by ``step_x`` pixels, whether any of its pixels is set."""
    cells = mask[::step_y, ::step_x].copy()
    for y in range(step_y):
        for x in range(step_x):
            if x or y:
                cells |= mask[y::step_y, x::step_x]
    return cells
