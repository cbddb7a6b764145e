import io
import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms, JpegImagePlugin

from edge.picture_pixels import NativePicture
from edge.stills import MAX_PIXELS, Still, read_still, write_still
from shared.errors import InputError, OutputError, UsageError
from shared.frames import FusedFrame
from tests.edge.media_makers import patch_mask, picture, unchanged, with_patch

RGB = np.ascontiguousarray(picture(4, 72, 56)[..., ::-1])
UNDO = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def exif_bytes(orientation: int, *, thumbnail: bytes = b"") -> bytes:
    """An EXIF block with a camera name, and a thumbnail in its second directory."""
    camera = b"Odd Camera\0\0"
    first = struct.pack("<H", 2) + struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    first += struct.pack("<HHII", 0x010F, 2, len(camera), 38)
    second_at = 38 + len(camera)
    first += struct.pack("<I", second_at if thumbnail else 0)
    second = b""
    if thumbnail:
        second = struct.pack("<H", 2) + struct.pack("<HHII", 0x0201, 4, 1, second_at + 30)
        second += struct.pack("<HHII", 0x0202, 4, 1, len(thumbnail)) + struct.pack("<I", 0) + thumbnail
    return b"Exif\0\0II*\0" + struct.pack("<I", 8) + first + camera + second


def fused_and_written(path: Path, output: Path, **options: Any) -> tuple[Still, FusedFrame, tuple[str, ...]]:
    still = read_still(path)
    fused = with_patch(still.frame)
    return still, fused, write_still(fused, still, output, **options)


def outside(fused: FusedFrame) -> npt.NDArray[np.bool_]:
    return ~patch_mask(fused)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp"])
def test_every_exif_orientation_is_worked_on_upright_and_comes_out_upright(
    tmp_path: Path, ending: str, orientation: int
) -> None:
    stored = Image.fromarray(RGB)
    if UNDO[orientation] is not None:
        stored = stored.transpose(UNDO[orientation])
    path, output = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    options = {"quality": 100, "subsampling": 0} if ending == ".jpg" else {"lossless": True}
    stored.save(path, exif=exif_bytes(orientation), **options)

    still, fused, _ = fused_and_written(path, output)

    assert fused.frame.image.shape == (56, 72, 3)
    assert np.abs(still.frame.native.pixels.astype(int) - RGB).max() <= 4
    with Image.open(output) as written:
        assert written.size == (72, 56)
        assert written.getexif().get(0x0112, 1) == 1
        assert written.getexif()[0x010F].strip("\0") == "Odd Camera"
        pixels = np.asarray(written.convert("RGB")).astype(int)
    far = cv2.dilate(patch_mask(fused).astype(np.uint8), np.ones((17, 17))) == 0
    assert np.abs(pixels - RGB)[far].max() <= (8 if ending == ".jpg" else 0)


def test_orientation_nine_counts_as_one(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.jpg", exif=exif_bytes(9))
    assert read_still(tmp_path / "in.jpg").frame.image.shape == (56, 72, 3)


@pytest.mark.parametrize(
    "garbage", [b"Exif\0\0" + bytes(range(200)), b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0"]
)
def test_garbage_exif_is_no_obstacle(tmp_path: Path, garbage: bytes) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.jpg", exif=garbage)
    fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    assert read_still(tmp_path / "out.jpg").frame.image.shape == (56, 72, 3)


def test_the_exif_thumbnail_is_dropped_because_it_shows_the_old_face(tmp_path: Path) -> None:
    thumbnail = b"\xff\xd8THUMBNAIL" * 20
    Image.fromarray(RGB).save(tmp_path / "in.jpg", exif=exif_bytes(6, thumbnail=thumbnail))
    assert b"THUMBNAIL" in (tmp_path / "in.jpg").read_bytes()
    fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    assert b"THUMBNAIL" not in (tmp_path / "out.jpg").read_bytes()


def test_captions_of_a_jpeg_come_along_without_their_thumbnail(tmp_path: Path) -> None:
    resources = {1028: b"\x1c\x02\x78\0\x07caption", 1036: b"OLDFACE" * 9}
    blocks = b"".join(
        b"8BIM" + struct.pack(">HHI", number, 0, len(data)) + data + b"\0" * (len(data) % 2)
        for number, data in resources.items()
    )
    payload = b"Photoshop 3.0\0" + blocks
    segment = b"\xff\xed" + struct.pack(">H", len(payload) + 2) + payload
    Image.fromarray(RGB).save(tmp_path / "in.jpg", extra=segment)
    fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    written = (tmp_path / "out.jpg").read_bytes()
    assert b"OLDFACE" in (tmp_path / "in.jpg").read_bytes()
    assert b"caption" in written
    assert b"OLDFACE" not in written


def test_xmp_comes_along_upright_and_without_its_thumbnails(tmp_path: Path) -> None:
    xmp = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6" dc:title="kept">'
        b"<xmp:Thumbnails>OLDFACE</xmp:Thumbnails></rdf:Description></x:xmpmeta>"
    )
    Image.fromarray(RGB).save(tmp_path / "in.jpg", xmp=xmp, exif=exif_bytes(1))
    fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    written = (tmp_path / "out.jpg").read_bytes()
    assert b'tiff:Orientation="1"' in written
    assert b'dc:title="kept"' in written
    assert b"OLDFACE" not in written


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".tif", ".avif"])
def test_the_colour_profile_is_kept(tmp_path: Path, ending: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    Image.fromarray(RGB).save(tmp_path / f"in{ending}", icc_profile=profile)
    fused_and_written(tmp_path / f"in{ending}", tmp_path / f"out{ending}")
    with Image.open(tmp_path / f"out{ending}") as written:
        assert written.info["icc_profile"] == profile


def test_resolution_comment_and_png_text_are_kept(tmp_path: Path) -> None:
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("Author", "somebody")
    Image.fromarray(RGB).save(tmp_path / "in.png", dpi=(300, 300), pnginfo=text)
    Image.fromarray(RGB).save(tmp_path / "in.jpg", dpi=(300, 300), comment=b"a comment")
    fused_and_written(tmp_path / "in.png", tmp_path / "out.png")
    fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    with Image.open(tmp_path / "out.png") as written:
        assert written.info["Author"] == "somebody"
        assert round(written.info["dpi"][0]) == 300
    with Image.open(tmp_path / "out.jpg") as written:
        assert written.info["comment"] == b"a comment"
        assert written.info["dpi"] == (300, 300)


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".avif", ".tif", ".bmp", ".jp2"])
def test_a_picture_without_a_face_is_copied_byte_for_byte(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"in{ending}"
    Image.fromarray(RGB).save(path)
    still = read_still(path)
    write_still(unchanged(still.frame), still, tmp_path / f"out{ending}", quality=50)
    assert (tmp_path / f"out{ending}").read_bytes() == path.read_bytes()


def make_16_bit_png(path: Path, pixels: npt.NDArray[np.uint16]) -> None:
    height, width = pixels.shape[:2]
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[1 if pixels.ndim == 2 else pixels.shape[2]]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    gamma = chunk(b"gAMA", struct.pack(">I", 45455))
    body = chunk(b"IHDR", header) + gamma + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("ending", [".png", ".tif"])
def test_sixteen_bits_stay_sixteen_and_outside_of_patches_exact(
    tmp_path: Path, ending: str, channels: int
) -> None:
    shape = (48, 64) if channels == 1 else (48, 64, channels)
    pixels = np.random.default_rng(1).integers(0, 65536, shape).astype(np.uint16)
    path, output = tmp_path / f"in{ending}", tmp_path / f"out{ending}"
    if ending == ".png":
        make_16_bit_png(path, pixels)
    else:
        code = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}.get(channels)
        cv2.imwrite(str(path), pixels if code is None else cv2.cvtColor(pixels, code))

    _, fused, _ = fused_and_written(path, output)
    again = read_still(output)

    written = again.frame.native.pixels
    assert written.dtype == np.uint16
    np.testing.assert_array_equal(written[outside(fused)], pixels[outside(fused)])
    inside = patch_mask(fused)
    if channels > 1:
        assert np.abs(again.frame.image[inside].astype(int) - (30, 200, 60)).max() <= 1
    if channels == 4:
        np.testing.assert_array_equal(written[..., 3], pixels[..., 3])


def test_the_change_of_a_sixteen_bit_picture_keeps_its_fine_steps(tmp_path: Path) -> None:
    pixels = np.linspace(20000, 21000, 48 * 64, dtype=np.uint16).reshape(48, 64, 1).repeat(3, 2)
    make_16_bit_png(tmp_path / "in.png", pixels)
    still = read_still(tmp_path / "in.png")
    fused = with_patch(still.frame)
    region = fused.frame.image
    region[...] = ((pixels.astype(int) + 128) // 257 + 10).astype(np.uint8)  # lighter by ten steps
    write_still(fused, still, tmp_path / "out.png")
    written = read_still(tmp_path / "out.png").frame.native.pixels
    inside = patch_mask(fused)
    np.testing.assert_array_equal(written[inside].astype(int), pixels[inside].astype(int) + 2570)


@pytest.mark.parametrize(
    ("mode", "native_mode"),
    [("L", "L"), ("LA", "LA"), ("RGB", "RGB"), ("RGBA", "RGBA"), ("P", "RGB"), ("1", "L")],
)
def test_each_kind_of_png_keeps_its_channels_and_every_other_pixel(
    tmp_path: Path, mode: str, native_mode: str
) -> None:
    source = Image.fromarray(RGB)
    if mode in ("LA", "RGBA"):
        source.putalpha(Image.fromarray(np.arange(56 * 72, dtype=np.uint16).astype(np.uint8).reshape(56, 72)))
    source.convert(mode).save(tmp_path / "in.png")
    still, fused, _ = fused_and_written(tmp_path / "in.png", tmp_path / "out.png")
    again = read_still(tmp_path / "out.png")
    before, after = still.frame.native, again.frame.native
    assert (before.mode, after.mode) == (native_mode, native_mode)
    np.testing.assert_array_equal(after.pixels[outside(fused)], before.pixels[outside(fused)])
    assert (again.frame.image[patch_mask(fused)] != still.frame.image[outside(fused)][0]).any()
    if native_mode in ("LA", "RGBA"):
        np.testing.assert_array_equal(after.pixels[..., -1], before.pixels[..., -1])


def test_colours_under_full_transparency_survive(tmp_path: Path) -> None:
    pixels = np.dstack([RGB, np.zeros((56, 72), np.uint8)])
    for ending in (".png", ".webp"):
        Image.fromarray(pixels).save(tmp_path / f"in{ending}", lossless=True, exact=True)
        _, fused, _ = fused_and_written(tmp_path / f"in{ending}", tmp_path / f"out{ending}")
        after = read_still(tmp_path / f"out{ending}").frame.native.pixels
        np.testing.assert_array_equal(after[outside(fused)], pixels[outside(fused)])


def test_a_transparent_palette_colour_becomes_opacity(tmp_path: Path) -> None:
    palette = Image.fromarray(RGB).quantize(16)
    palette.save(tmp_path / "in.png", transparency=3)
    fused_and_written(tmp_path / "in.png", tmp_path / "out.png")
    hole = np.asarray(palette) == 3
    after = read_still(tmp_path / "out.png").frame.native
    assert after.mode == "RGBA"
    np.testing.assert_array_equal(after.pixels[..., 3] == 0, hole)


def test_a_cmyk_jpeg_stays_cmyk_and_shows_the_fused_colours(tmp_path: Path) -> None:
    Image.fromarray(RGB).convert("CMYK").save(tmp_path / "in.jpg", quality=100)
    _, fused, _ = fused_and_written(tmp_path / "in.jpg", tmp_path / "out.jpg")
    again = read_still(tmp_path / "out.jpg")
    assert again.frame.native.mode == "CMYK"
    core = cv2.erode(patch_mask(fused).astype(np.uint8), np.ones((5, 5))) > 0
    assert np.abs(again.frame.image[core].astype(int) - (30, 200, 60)).max() <= 12


def test_a_cmyk_picture_becomes_rgb_where_the_format_holds_none(tmp_path: Path) -> None:
    Image.fromarray(RGB).convert("CMYK").save(tmp_path / "in.jpg", quality=100)
    _, _, messages = fused_and_written(tmp_path / "in.jpg", tmp_path / "out.png")
    assert "CMYK became RGB" in messages[0]
    assert read_still(tmp_path / "out.png").frame.native.mode == "RGB"


@pytest.mark.parametrize(
    ("quality", "subsampling", "progressive"), [(60, 2, False), (85, 1, True), (92, 0, False)]
)
def test_a_jpeg_is_encoded_as_it_was(
    tmp_path: Path, quality: int, subsampling: int, progressive: bool
) -> None:
    path, output = tmp_path / "in.jpg", tmp_path / "out.jpg"
    Image.fromarray(RGB).save(path, quality=quality, subsampling=subsampling, progressive=progressive)
    fused_and_written(path, output)
    with Image.open(path) as before, Image.open(output) as after:
        assert isinstance(before, JpegImagePlugin.JpegImageFile)
        assert isinstance(after, JpegImagePlugin.JpegImageFile)
        assert after.quantization == before.quantization
        assert JpegImagePlugin.get_sampling(after) == JpegImagePlugin.get_sampling(before)
        assert after.info.get("progressive") == before.info.get("progressive")


def test_a_quality_that_is_given_is_used(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.jpg", quality=95)
    fused_and_written(tmp_path / "in.jpg", tmp_path / "small.jpg", quality=20)
    fused_and_written(tmp_path / "in.jpg", tmp_path / "large.jpg", quality=95)
    assert (tmp_path / "small.jpg").stat().st_size < (tmp_path / "large.jpg").stat().st_size / 2


def test_opacity_lost_to_a_format_is_said(tmp_path: Path) -> None:
    Image.fromarray(np.dstack([RGB, RGB[..., 0]])).save(tmp_path / "in.png")
    _, _, messages = fused_and_written(tmp_path / "in.png", tmp_path / "out.jpg")
    assert messages == ("opacity dropped: JPEG holds none",)


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".avif", ".tif", ".bmp", ".jp2", ".gif"])
def test_a_picture_can_go_into_every_format(tmp_path: Path, ending: str) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.png")
    fused_and_written(tmp_path / "in.png", tmp_path / f"out{ending}")
    again = read_still(tmp_path / f"out{ending}")
    assert np.abs(again.frame.image.astype(int) - read_still(tmp_path / "in.png").frame.image).mean() < 12


def test_content_and_not_the_name_decides_what_a_picture_is(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.png")
    for name in ("is_png.jpg", "no_ending", "clip.mp4"):
        (tmp_path / name).write_bytes((tmp_path / "in.png").read_bytes())
        still = read_still(tmp_path / name)
        assert still.format == "PNG"
        output = tmp_path / "out" / name
        output.parent.mkdir(exist_ok=True)
        write_still(with_patch(still.frame), still, output)
        assert read_still(output).format == ("JPEG" if name.endswith(".jpg") else "PNG")


def test_an_unknown_ending_is_refused_with_those_that_work(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.png")
    still = read_still(tmp_path / "in.png")
    with pytest.raises(UsageError, match=r"'\.xyz'.*\.jpg.*\.png"):
        write_still(with_patch(still.frame), still, tmp_path / "out.xyz")


def test_a_jpeg_without_its_end_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(picture(1, 320, 240)).save(buffer, "JPEG", quality=95)
    (tmp_path / "in.jpg").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) * 7 // 10])
    still = read_still(tmp_path / "in.jpg")
    assert still.frame.image.shape == (240, 320, 3)
    assert "cut off" in still.warnings[0]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.jpg", b""),
        ("text.jpg", b"this is no picture\n" * 10),
        ("html.png", b"<!doctype html>"),
        ("noise.jpg", np.random.default_rng(4).bytes(5000)),
        ("header.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
        ("cut.png", None),
    ],
)
def test_what_is_no_picture_is_refused_in_one_line(tmp_path: Path, name: str, data: bytes | None) -> None:
    if data is None:
        Image.fromarray(np.random.default_rng(1).integers(0, 255, (90, 90, 3), np.uint8)).save(
            tmp_path / "whole.png"
        )
        data = (tmp_path / "whole.png").read_bytes()[:9000]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_still(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def bomb(path: Path, width: int, height: int) -> Path:
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\0IDAT\x35\xaf\x06\x1e")
    return path


@pytest.mark.parametrize("size", [(2_000_000_000, 2_000_000_000), (30_000, 30_000)])
def test_a_picture_bomb_is_refused_by_its_header(tmp_path: Path, size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=f"more than {MAX_PIXELS // 10**6} megapixels are refused"):
        read_still(bomb(tmp_path / "bomb.png", *size))


def test_heic_without_its_extra_names_the_extra(tmp_path: Path) -> None:
    path = tmp_path / "in.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64))
    with pytest.raises(InputError) as caught:
        read_still(path)
    try:
        import pillow_heif  # noqa: F401
    except ImportError:
        assert "lethe[heic]" in str(caught.value)


def test_the_second_page_of_a_tiff_is_named_as_left_out(tmp_path: Path) -> None:
    pages = [Image.fromarray(RGB), Image.fromarray(RGB[::-1])]
    pages[0].save(tmp_path / "in.tif", save_all=True, append_images=pages[1:])
    assert "only the first" in read_still(tmp_path / "in.tif").warnings[0]


def test_a_folder_that_is_gone_is_an_output_error(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.png")
    still = read_still(tmp_path / "in.png")
    with pytest.raises(OutputError, match="folder does not exist"):
        write_still(with_patch(still.frame), still, tmp_path / "gone" / "out.png")


def test_the_working_copy_can_be_written_into_without_changing_the_native_picture(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "in.png")
    still = read_still(tmp_path / "in.png")
    still.frame.image[:] = 0
    native = still.frame.native
    assert isinstance(native, NativePicture)
    np.testing.assert_array_equal(native.pixels, RGB)


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for ending in (".jpg", ".png", ".webp", ".tif"):
        Image.fromarray(RGB).save(tmp_path / f"in{ending}")
        for name in ("one", "two"):
            fused_and_written(tmp_path / f"in{ending}", tmp_path / f"{name}{ending}")
        assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"two{ending}").read_bytes()
