from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from edge.animations import AnimationReader, AnimationWriter
from shared.errors import InputError, OutputError, UsageError
from tests.edge.media_makers import patch_mask, picture, unchanged, with_patch

FORMATS = [".gif", ".webp", ".png"]
DURATIONS = [80, 20, 500, 40, 40, 130]


def rgba_frames(*, alpha: bool) -> list[Image.Image]:
    frames = []
    for number in (0, 1, 1, 3, 4, 5):  # the second and the third are equal
        colours = np.ascontiguousarray(picture(number)[..., ::-1] // 32 * 32)
        opacity = np.full((48, 64, 1), 255, np.uint8)
        if alpha:
            opacity[number : 10 + number * 4, 5:40] = 0
        frames.append(Image.fromarray(np.dstack([colours, opacity])))
    return frames


def make_animation(path: Path, *, alpha: bool = False, loop: int | None = 3) -> Path:
    """Write an animation whose every frame has a pixel of its own, so that none is folded away."""
    frames = rgba_frames(alpha=alpha)
    for number, frame in enumerate(frames):
        frame.putpixel((60, 40), (number * 32, 0, 0, 255))
    options: dict[str, Any] = {"loop": loop} if loop is not None else {}
    if path.suffix == ".webp":
        options |= {"lossless": True, "exact": True}
    if path.suffix == ".gif":
        options["disposal"] = 2
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=DURATIONS, **options)
    return path


def write_again(path: Path, output: Path, patched: tuple[int, ...] = (1, 4)) -> list[npt.NDArray[np.bool_]]:
    """Write an animation again with patches in some frames; returns where each was changed."""
    reader, masks = AnimationReader(path), []
    with AnimationWriter(output, reader) as writer:
        for frame in reader:
            fused = with_patch(frame) if frame.index in patched else unchanged(frame)
            masks.append(patch_mask(fused))
            writer.write(fused)
    return masks


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("loop", [None, 0, 3])
@pytest.mark.parametrize("alpha", [False, True])
def test_count_timing_loop_and_opacity_come_out_as_they_went_in(
    tmp_path: Path, ending: str, loop: int | None, alpha: bool
) -> None:
    path = make_animation(tmp_path / f"in{ending}", alpha=alpha, loop=loop)
    write_again(path, tmp_path / f"out{ending}")
    before, after = AnimationReader(path).info, AnimationReader(tmp_path / f"out{ending}").info
    assert after == before
    assert before.frame_count == 6
    assert before.durations_ms == tuple(DURATIONS)
    assert before.duration_s == sum(DURATIONS) / 1000
    assert before.has_alpha == alpha


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("alpha", [False, True])
def test_pixels_nobody_fused_are_exact(tmp_path: Path, ending: str, alpha: bool) -> None:
    path = make_animation(tmp_path / f"in{ending}", alpha=alpha)
    masks = write_again(path, tmp_path / f"out{ending}")
    for before, after, mask in zip(
        AnimationReader(path), AnimationReader(tmp_path / f"out{ending}"), masks, strict=True
    ):
        one, other = before.native.pixels, after.native.pixels
        assert after.pts == before.pts
        np.testing.assert_array_equal(other[..., 3], one[..., 3])
        seen = ~mask & (one[..., 3] > 0)
        np.testing.assert_array_equal(other[seen], one[seen])
        fused = mask & (one[..., 3] > 0)
        if fused.any():
            assert np.abs(other[fused][:, :3].astype(int) - (60, 200, 30)).max() <= 8


@pytest.mark.parametrize("ending", FORMATS)
def test_equal_frames_are_not_folded_into_one(tmp_path: Path, ending: str) -> None:
    path = make_animation(tmp_path / f"in{ending}")
    reader = AnimationReader(path)
    with AnimationWriter(tmp_path / f"out{ending}", reader) as writer:
        frames = list(reader)
        for frame in frames:
            frame.native.pixels[...] = frames[0].native.pixels
            frame.image[...] = frames[0].image
            writer.write(with_patch(frame))
    assert AnimationReader(tmp_path / f"out{ending}").info.frame_count == 6


@pytest.mark.parametrize("ending", FORMATS)
def test_an_animation_without_a_face_is_copied_byte_for_byte(tmp_path: Path, ending: str) -> None:
    path = make_animation(tmp_path / f"in{ending}")
    write_again(path, tmp_path / f"out{ending}", patched=())
    assert (tmp_path / f"out{ending}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("ending", FORMATS)
def test_one_format_goes_into_another(tmp_path: Path, ending: str) -> None:
    path = make_animation(tmp_path / "in.png", alpha=True)
    write_again(path, tmp_path / f"out{ending}")
    after = AnimationReader(tmp_path / f"out{ending}").info
    assert (after.frame_count, after.durations_ms, after.loop) == (6, tuple(DURATIONS), 3)


def test_frames_carry_their_time_in_milliseconds(tmp_path: Path) -> None:
    reader = AnimationReader(make_animation(tmp_path / "in.gif"))
    assert [frame.pts for frame in reader] == [0, 80, 100, 600, 640, 680]
    assert [frame.time_s for frame in reader][2] == 0.1


def test_more_colours_than_a_palette_holds_leave_the_rest_of_a_gif_still(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    palette = rng.integers(0, 256, (200, 3), np.uint8)
    frames = [Image.fromarray(palette[rng.integers(0, 200, (48, 64))]) for _ in range(3)]
    frames[0].save(tmp_path / "in.gif", save_all=True, append_images=frames[1:], duration=50, loop=0)
    reader = AnimationReader(tmp_path / "in.gif")
    with AnimationWriter(tmp_path / "out.gif", reader) as writer:
        for frame in reader:
            fused = with_patch(frame)
            fused.frame.image[9:24, 13:30] = rng.integers(0, 256, (15, 17, 3), np.uint8)
            writer.write(fused)
    outside = np.ones((48, 64), np.bool_)
    outside[9:24, 13:30] = False
    for before, after in zip(reader, AnimationReader(tmp_path / "out.gif"), strict=True):
        difference = np.abs(before.image[outside].astype(int) - after.image[outside])
        assert (difference.max(-1) == 0).mean() > 0.5
        assert difference.mean() < 4


def test_an_apng_with_a_picture_for_old_programs_leaves_it_out_of_the_count(tmp_path: Path) -> None:
    frames = rgba_frames(alpha=False)
    frames[0].save(
        tmp_path / "in.png",
        save_all=True,
        append_images=frames[3:],
        duration=[70, 80, 90],
        default_image=True,
    )
    reader = AnimationReader(tmp_path / "in.png")
    assert reader.info.frame_count == 3
    write_again(tmp_path / "in.png", tmp_path / "out.png", patched=(0, 1))
    assert AnimationReader(tmp_path / "out.png").info.durations_ms == (70, 80, 90)


def test_a_cut_animation_gives_its_whole_frames_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frames = [Image.fromarray(rng.integers(0, 255, (48, 64, 3), np.uint8)) for _ in range(6)]
    frames[0].save(tmp_path / "in.gif", save_all=True, append_images=frames[1:], duration=50)
    data = (tmp_path / "in.gif").read_bytes()
    (tmp_path / "cut.gif").write_bytes(data[: len(data) * 6 // 10])
    reader = AnimationReader(tmp_path / "cut.gif")
    assert 2 <= reader.info.frame_count <= 4
    assert len(list(reader)) == reader.info.frame_count


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    reader = AnimationReader(make_animation(tmp_path / "in.gif"))
    with pytest.raises(UsageError, match=r"\.gif, \.webp"):
        AnimationWriter(tmp_path / "out.jpg", reader)


def test_a_folder_that_is_gone_is_an_output_error(tmp_path: Path) -> None:
    reader = AnimationReader(make_animation(tmp_path / "in.gif"))
    with pytest.raises(OutputError, match="folder does not exist"):
        AnimationWriter(tmp_path / "gone" / "out.gif", reader)


def test_what_is_no_animation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.gif").write_bytes(b"GIF89a")
    with pytest.raises(InputError):
        AnimationReader(tmp_path / "in.gif")


@pytest.mark.parametrize("name", ["headpose_woman.gif", "classroom.gif"])
def test_a_real_gif_keeps_its_timing_and_its_looks(shared_media: Path, tmp_path: Path, name: str) -> None:
    path = shared_media / "video" / name
    masks = write_again(path, tmp_path / "out.gif", patched=(1, 2, 3))
    assert AnimationReader(tmp_path / "out.gif").info == AnimationReader(path).info
    for before, after, mask in zip(
        AnimationReader(path), AnimationReader(tmp_path / "out.gif"), masks, strict=True
    ):
        assert np.abs(before.image[~mask].astype(int) - after.image[~mask]).mean() < 1.0
