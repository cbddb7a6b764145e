"""Pixels of a picture file, and their way to 8-bit BGR and back.

The way back touches nothing but the pixels that the patches changed: 16 bits stay 16 bits (the change, known
to 8 bits, is added), grey stays grey, CMYK stays CMYK by the picture's own colour profile, opacity stays.
"""

import io
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from shared.arrays import ImageBgr
from shared.frames import FusedFrame

_UINT16_STEP: Final = 257  # 65535 / 255

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


def recoloured(pixels: Pixels, code: int) -> Pixels:
    """The pixels with other channels; ``code`` is one of OpenCV's ``COLOR_``."""
    recoloured: Pixels = cv2.cvtColor(pixels, code)
    return recoloured


def to_8_bits(pixels: Pixels) -> npt.NDArray[np.uint8]:
    """The same rounded to 8 bits; itself where it has no more."""
    if pixels.dtype == np.uint8:
        return pixels.astype(np.uint8, copy=False)
    return ((pixels.astype(np.uint32) + _UINT16_STEP // 2) // _UINT16_STEP).astype(np.uint8)


def working_copy(native: NativePicture, icc: bytes | None = None) -> ImageBgr:
    """The picture in 8-bit BGR, with its own memory; ``icc`` is its colour profile, for CMYK."""
    pixels = to_8_bits(native.pixels)
    if native.mode == "L":
        return recoloured(pixels, cv2.COLOR_GRAY2BGR)
    if native.mode == "LA":
        return recoloured(np.ascontiguousarray(pixels[..., 0]), cv2.COLOR_GRAY2BGR)
    if native.mode == "CMYK":
        return recoloured(_cmyk_to_rgb(pixels, icc), cv2.COLOR_RGB2BGR)
    return recoloured(pixels, cv2.COLOR_RGB2BGR if native.mode == "RGB" else cv2.COLOR_RGBA2BGR)


def _cmyk_to_rgb(pixels: npt.NDArray[np.uint8], icc: bytes | None) -> npt.NDArray[np.uint8]:
    picture = picture_of(pixels, "CMYK")
    return np.asarray(_through_profile(picture, icc, "RGB", inverse=False) or picture.convert("RGB"))


def _rgb_to_cmyk(pixels: npt.NDArray[np.uint8], icc: bytes | None) -> npt.NDArray[np.uint8]:
    picture = picture_of(pixels, "RGB")
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


def picture_of(pixels: Pixels, mode: str) -> Image.Image:
    """The pixels as a Pillow picture."""
    if pixels.dtype == np.uint16:
        return Image.fromarray(pixels)
    height, width = pixels.shape[:2]
    return Image.frombuffer(mode, (width, height), np.ascontiguousarray(pixels), "raw", mode, 0, 1)


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
        return _rgb_to_cmyk(recoloured(fused, cv2.COLOR_BGR2RGB), icc)
    grey = before.mode in ("L", "LA")
    new = recoloured(fused, cv2.COLOR_BGR2GRAY if grey else cv2.COLOR_BGR2RGB)
    if before.pixels.dtype == np.uint8:
        return new
    colours = before.pixels if before.pixels.ndim == 2 else before.pixels[..., : 1 if grey else 3].squeeze()
    colours = colours.reshape(new.shape)
    step = new.astype(np.int32) - to_8_bits(colours)
    return np.clip(colours.astype(np.int32) + step * _UINT16_STEP, 0, 65535).astype(np.uint16)


def fit_to_format(
    pixels: Pixels, mode: str, target: str, icc: bytes | None
) -> tuple[Pixels, str, tuple[str, ...]]:
    """Give up what a format cannot hold, and say so."""
    messages = []
    if pixels.dtype == np.uint16 and target not in ("PNG", "TIFF"):
        pixels = to_8_bits(pixels)
        messages.append(f"16 bits a channel became 8: {target} holds no more")
    if mode == "CMYK" and target not in ("JPEG", "TIFF"):
        pixels, mode = _cmyk_to_rgb(to_8_bits(pixels), icc), "RGB"
        messages.append(f"CMYK became RGB: {target} holds no CMYK")
    if mode in ("LA", "RGBA") and target in ("JPEG", "BMP"):
        pixels, mode = pixels[..., :-1].squeeze(-1) if mode == "LA" else pixels[..., :3], mode[:-1]
        messages.append(f"opacity dropped: {target} holds none")
    if mode == "LA" and (target in ("WEBP", "AVIF", "GIF", "HEIF") or pixels.dtype == np.uint16):
        pixels, mode = pixels[..., [0, 0, 0, 1]], "RGBA"
    compact: Pixels = np.ascontiguousarray(pixels)
    return compact, mode, tuple(messages)
