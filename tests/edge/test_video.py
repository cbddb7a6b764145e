import gc
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from edge.video import Trim, VideoReader, VideoWriter
from edge.video.pixels import matrix_of, planar_twin, plane_views
from edge.video.writer import PatchWriter
from shared.errors import InputError, OutputError, UsageError
from shared.frames import Frame, FusedFrame
from tests.edge.media_makers import SIZE, make_video, patch_mask, picture, turn_mp4, unchanged, with_patch


def rewrite(
    path: Path, output: Path, *, patched: Sequence[int] = (), trim: Trim | None = None, **options: Any
) -> list[str]:
    """Read a video and write it again; returns the messages."""
    with VideoReader(path, trim=trim or Trim()) as reader, VideoWriter(output, reader, **options) as writer:
        for frame in reader:
            writer.write(with_patch(frame) if frame.index in patched else unchanged(frame))
    return writer.messages


def times(path: Path, **options: Any) -> list[Fraction]:
    with VideoReader(path, **options) as reader:
        return [(frame.pts or 0) * frame.time_base for frame in reader]


def native_planes(path: Path) -> list[list[npt.NDArray[Any]]]:
    with VideoReader(path) as reader:
        return [[view.copy() for view in plane_views(frame.native)] for frame in reader]


# Time


def test_no_frame_held_back_by_the_decoder_is_lost(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(31))
    with VideoReader(path) as reader:
        frames = list(reader)
        assert reader.info.frame_count == 31
    assert [frame.index for frame in frames] == list(range(31))
    assert [frame.pts for frame in frames] == sorted(frame.pts for frame in frames)
    for frame in frames:
        assert np.abs(frame.image.astype(int) - picture(frame.index)).mean() < 6


VARIABLE = [0, 1, 2, 7, 8, 40, 41, 45, 100, 1000, 1001]


@pytest.mark.parametrize(
    ("ending", "stamps", "time_base"),
    [
        (".mp4", VARIABLE, Fraction(1, 600)),
        (".mov", VARIABLE, Fraction(1, 90000)),
        (".mkv", VARIABLE, Fraction(1, 1000)),
        (".mp4", range(0, 24 * 1001, 1001), Fraction(1, 24000)),
        (".mp4", range(0, 30 * 1001, 1001), Fraction(1, 60000)),
        (".mp4", range(20), Fraction(1, 240)),
        (".mp4", range(3), Fraction(2, 1)),
        (".mp4", [5000, 5600, 6200], Fraction(1, 15360)),
    ],
)
def test_every_frame_keeps_its_own_time(
    tmp_path: Path, ending: str, stamps: Sequence[int], time_base: Fraction
) -> None:
    path = make_video(tmp_path / f"in{ending}", stamps=stamps, time_base=time_base)
    rewrite(path, tmp_path / f"out{ending}", patched=(1,))
    expected = times(path)
    # The file made for the test notes a late start in milliseconds; the one we write is exact.
    np.testing.assert_allclose(
        [float(time) for time in expected], [stamp * float(time_base) for stamp in stamps], atol=6e-4
    )
    assert times(tmp_path / f"out{ending}") == expected


def test_the_last_frame_is_shown_as_long_as_before(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=[0, 10, 20, 90], time_base=Fraction(1, 100))
    rewrite(path, tmp_path / "out.mp4")
    with av.open(str(path)) as before, av.open(str(tmp_path / "out.mp4")) as after:
        assert before.streams.video[0].duration * before.streams.video[0].time_base == (
            after.streams.video[0].duration * after.streams.video[0].time_base
        )


def test_a_transport_stream_keeps_its_clock_and_other_files_start_at_zero(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.ts", stamps=[900000 + 3600 * n for n in range(12)], time_base=Fraction(1, 90000)
    )
    start = times(path)[0]
    assert start >= 10
    rewrite(path, tmp_path / "out.ts")
    rewrite(path, tmp_path / "out.mp4")
    assert times(tmp_path / "out.ts") == times(path)
    assert times(tmp_path / "out.mp4") == [time - start for time in times(path)]


def test_repeated_and_falling_stamps_are_moved_by_the_least(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(5), time_base=Fraction(1, 100))
    with VideoReader(path) as reader, VideoWriter(tmp_path / "out.mp4", reader) as writer:
        unit = int(Fraction(1, 100) / reader.info.time_base)
        for frame, pts in zip(reader, (0, 3, 3, 2, 9), strict=True):
            writer.write(
                FusedFrame(Frame(frame.index, frame.image, pts * unit, frame.time_base, frame.native))
            )
    tick = reader.info.time_base
    assert times(tmp_path / "out.mp4") == [
        0,
        3 * unit * tick,
        (3 * unit + 1) * tick,
        (3 * unit + 2) * tick,
        9 * unit * tick,
    ]


def test_a_bare_stream_without_stamps_gets_its_nominal_rate(tmp_path: Path) -> None:
    make_video(tmp_path / "in.h264", stamps=range(10), muxer="h264")
    rewrite(tmp_path / "in.h264", tmp_path / "out.mp4")
    assert times(tmp_path / "out.mp4") == [Fraction(n, 25) for n in range(10)]


@pytest.mark.parametrize(
    ("trim", "kept"),
    [
        (Trim(), range(25)),
        (Trim(0.28), range(7, 25)),
        (Trim(0.29), range(8, 25)),
        (Trim(end_s=0.4), range(10)),
        (Trim(0.5, 0.7), range(13, 18)),
        (Trim(0.96), range(24, 25)),
    ],
)
def test_a_trim_cuts_between_any_two_frames(tmp_path: Path, trim: Trim, kept: range) -> None:
    path = make_video(
        tmp_path / "in.mp4", stamps=range(25), options={"g": "100", "bf": "2", "preset": "ultrafast"}
    )
    with VideoReader(path, trim=trim) as reader:
        frames = list(reader)
    assert [round(frame.time_s * 25) for frame in frames] == list(kept)
    assert np.abs(frames[0].image.astype(int) - picture(kept[0])).mean() < 6

    rewrite(path, tmp_path / "out.mp4", trim=trim)
    start = Fraction(trim.start_s or 0).limit_denominator(100)
    for written, number in zip(times(tmp_path / "out.mp4"), kept, strict=True):
        assert abs(written - (Fraction(number, 25) - start)) <= Fraction(1, 10000)


def test_a_trim_beyond_the_end_says_so(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4")
    with pytest.raises(InputError, match="trim holds no frame"):
        VideoReader(path, trim=Trim(5.0))


@pytest.mark.parametrize(("start", "end"), [(-1.0, None), (2.0, 1.0), (None, 0.0)])
def test_a_trim_that_makes_no_sense_is_refused(start: float | None, end: float | None) -> None:
    with pytest.raises(UsageError, match="trim"):
        Trim(start, end)


# Pictures as they were


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_turned_video_is_read_upright_and_written_without_a_turn(tmp_path: Path, degrees: int) -> None:
    path = turn_mp4(make_video(tmp_path / "in.mp4", sounds=()), degrees)
    with VideoReader(path) as reader:
        info, first = reader.info, next(iter(reader))
    upright = np.rot90(picture(0), -degrees // 90)
    assert (info.height, info.width) == upright.shape[:2]
    assert np.abs(first.image.astype(int) - upright).mean() < 6

    rewrite(path, tmp_path / "out.mp4", patched=(2,))
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert (reader.info.width, reader.info.height) == (info.width, info.height)
        again = next(iter(reader))
    assert again.native.rotation == 0
    assert np.abs(again.image.astype(int) - upright).mean() < 6


@pytest.mark.parametrize(
    ("pixel_format", "size", "codec", "ending"),
    [
        ("yuv444p", (65, 49), "libx264", ".mp4"),
        ("yuv420p", (65, 49), "libvpx-vp9", ".webm"),
        ("yuv422p", (66, 49), "libx264", ".mkv"),
        ("yuv420p", (65, 49), "ffv1", ".mkv"),
    ],
)
def test_odd_sizes_stay(
    tmp_path: Path, pixel_format: str, size: tuple[int, int], codec: str, ending: str
) -> None:
    path = make_video(tmp_path / f"in{ending}", pixel_format=pixel_format, size=size, codec=codec)
    for output in (tmp_path / f"out{ending}", tmp_path / "other.mp4"):
        rewrite(path, output, patched=range(10), quality=95)
        with VideoReader(output) as reader:
            frames = list(reader)
        assert {frame.image.shape for frame in frames} == {(size[1], size[0], 3)}
        assert np.abs(frames[3].image[:, :8].astype(int) - picture(3, *size)[:, :8]).mean() < 8


def test_pixels_that_are_not_square_stay_so(tmp_path: Path) -> None:
    def describe(context: Any) -> None:
        context.sample_aspect_ratio = Fraction(16, 11)

    path = make_video(tmp_path / "in.mp4", describe=describe)
    rewrite(path, tmp_path / "out.mp4")
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert reader.info.sample_aspect_ratio == Fraction(16, 11)
    rewrite(turn_mp4(path, 90), tmp_path / "turned.mp4")
    with VideoReader(tmp_path / "turned.mp4") as reader:
        assert reader.info.sample_aspect_ratio == Fraction(11, 16)


@pytest.mark.parametrize(
    ("pixel_format", "colour"),
    [
        ("yuv420p", (1, 1, 1, 1)),
        ("yuv420p", (2, 6, 6, 6)),
        ("yuvj420p", (2, 1, 1, 5)),
        ("yuv420p10le", (1, 9, 16, 9)),
        ("yuv420p10le", (1, 9, 18, 9)),
        ("yuv444p", (1, 1, 1, 1)),
        ("yuv422p10le", (1, 1, 1, 1)),
        ("gray", (1, 1, 1, 1)),
    ],
)
def test_depth_range_and_colour_signalling_come_out_as_they_went_in(
    tmp_path: Path, pixel_format: str, colour: tuple[int, int, int, int]
) -> None:
    def describe(context: Any) -> None:
        context.color_range, context.color_primaries, context.color_trc, context.colorspace = colour

    path = make_video(tmp_path / "in.mp4", pixel_format=pixel_format, describe=describe)
    rewrite(path, tmp_path / "out.mp4", patched=(1, 2))
    with VideoReader(path) as before, VideoReader(tmp_path / "out.mp4") as after:
        fields = ("pixel_format", "colour_range", "colour_primaries", "colour_transfer", "colour_matrix")
        assert [getattr(after.info, name) for name in fields] == [
            getattr(before.info, name) for name in fields
        ]
        assert (after.info.colour_range, after.info.colour_primaries) == colour[:2]


def test_ten_bit_hevc_stays_ten_bit_hevc(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.mp4",
        codec="libx265",
        pixel_format="yuv420p10le",
        options={"preset": "ultrafast", "x265-params": "log-level=none"},
    )
    rewrite(path, tmp_path / "out.mp4")
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert (reader.info.codec, reader.info.pixel_format) == ("hevc", "yuv420p10le")


@pytest.mark.parametrize("codec", ["h265", "h264"])
def test_hdr_metadata_come_along(tmp_path: Path, codec: str) -> None:
    display = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"
    params = f"log-level=none:master-display={display}:max-cll=1000,400"
    path = make_video(
        tmp_path / "in.mp4",
        codec="libx265",
        pixel_format="yuv420p10le",
        options={"preset": "ultrafast", "x265-params": params},
    )
    rewrite(path, tmp_path / "out.mp4", codec=codec)
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert reader.info.hdr.mastering_display == display
        assert reader.info.hdr.content_light == "1000,400"


@pytest.mark.parametrize(
    ("codec", "pixel_format", "ending", "exact"),
    [
        ("prores_ks", "yuva444p10le", ".mov", False),
        ("libvpx-vp9", "yuva420p", ".webm", False),
        ("ffv1", "yuva420p", ".mkv", True),
    ],
)
def test_opacity_in_a_video_is_kept(
    tmp_path: Path, codec: str, pixel_format: str, ending: str, exact: bool
) -> None:
    options = (
        {"auto-alt-ref": "0"} if codec == "libvpx-vp9" else {"profile": "4"} if codec == "prores_ks" else {}
    )
    path = tmp_path / f"in{ending}"
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = *SIZE, pixel_format
        for number in range(4):
            frame = av.VideoFrame.from_ndarray(picture(number), "bgr24").reformat(format=pixel_format)
            alpha = plane_views(frame)[3]
            alpha[:, : SIZE[0] // 2] = 0
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    messages = rewrite(path, tmp_path / f"out{ending}", patched=(1,))
    planes = native_planes(tmp_path / f"out{ending}")
    for before, after in zip(native_planes(path), planes, strict=True):
        full = np.iinfo(before[3].dtype).max if before[3].dtype == np.uint8 else int(before[3].max())
        assert np.abs(after[3].astype(int) - before[3])[:, 4:28].max() <= (0 if exact else full // 50)
        assert np.abs(after[3].astype(int) - before[3])[:, 36:].max() <= (0 if exact else full // 50)
    assert not any("opacity" in message for message in messages)


def test_opacity_a_container_cannot_hold_is_named(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mkv", codec="ffv1", pixel_format="yuva420p")
    assert any("opacity dropped" in message for message in rewrite(path, tmp_path / "out.mp4"))


def test_an_interlaced_video_stays_interlaced(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", options={"flags": "+ildct+ilme", "x264-params": "tff=1"})
    with VideoReader(path) as reader:
        if not reader.info.interlaced:
            pytest.skip("this build of x264 does not encode interlaced")
    rewrite(path, tmp_path / "out.mp4")
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert reader.info.interlaced


# Untouched pixels


@pytest.mark.parametrize(
    "pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "bgr0", "yuva420p", "gray", "yuv411p"]
)
def test_outside_of_the_patches_every_native_sample_is_the_decoders(
    tmp_path: Path, pixel_format: str
) -> None:
    path = make_video(tmp_path / "in.mkv", codec="ffv1", pixel_format=pixel_format)
    rewrite(path, tmp_path / "out.mkv", patched=(1, 3), codec="ffv1")
    with VideoReader(path) as reader:
        masks = [patch_mask(with_patch(frame)) for frame in reader]
    for number, (before, after) in enumerate(
        zip(native_planes(path), native_planes(tmp_path / "out.mkv"), strict=True)
    ):
        for one, other in zip(before, after, strict=True):
            different = one != other
            if number not in (1, 3):
                assert not different.any()
                continue
            step_y, step_x = -(-SIZE[1] // one.shape[0]), -(-SIZE[0] // one.shape[1])
            allowed = masks[number].reshape(one.shape[0], step_y, one.shape[1], step_x).any((1, 3))
            assert not (different & ~allowed).any()
        assert (before[0] != after[0]).any() == (number in (1, 3))


def test_the_colours_of_a_patch_arrive(tmp_path: Path) -> None:
    for pixel_format in ("yuv420p", "yuv444p", "bgr0", "yuv420p10le"):
        path = make_video(tmp_path / f"{pixel_format}.mkv", codec="ffv1", pixel_format=pixel_format)
        rewrite(path, tmp_path / "out.mkv", patched=(2,), codec="ffv1")
        with VideoReader(tmp_path / "out.mkv") as reader:
            frame = list(reader)[2]
        core = frame.image[18:22, 15:20].reshape(-1, 3).astype(int)
        assert np.abs(core - (30, 200, 60)).max() <= 4


def test_a_patch_that_changes_nothing_visible_does_not_stand_out(tmp_path: Path) -> None:
    """The way to BGR and back must not darken or tint: a patch would show as a faint square."""
    path = make_video(tmp_path / "in.mkv", codec="ffv1", size=(320, 240))
    with VideoReader(path) as reader:
        frame = next(iter(reader))
        before = [view.astype(int) for view in plane_views(frame.native)]
        fused = with_patch(Frame(0, frame.image.copy(), native=frame.native))
        whole = type(fused.patches[0])(0, 0, frame.image, np.full((240, 320), 255, np.uint8))
        PatchWriter().apply(frame.native, frame.image, (whole,))
        after = [view.astype(int) for view in plane_views(frame.native)]
    for one, other in zip(before, after, strict=True):
        assert abs((other - one).mean()) < 0.6
        assert np.abs(other - one).max() <= 3


def test_the_decoders_own_pictures_are_never_written_into(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.mp4", stamps=range(30), options={"bf": "3", "g": "30", "preset": "ultrafast"}
    )
    clean = native_planes(path)
    with VideoReader(path) as reader:
        for frame, expected in zip(reader, clean, strict=True):
            for view, plane in zip(plane_views(frame.native), expected, strict=True):
                np.testing.assert_array_equal(view, plane)
            fused = with_patch(frame)
            PatchWriter().apply(frame.native, frame.image, fused.patches)


def test_two_runs_give_the_same_frames(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4")
    rewrite(path, tmp_path / "one.mp4", patched=(1, 2))
    rewrite(path, tmp_path / "two.mp4", patched=(1, 2))
    for one, two in zip(
        native_planes(tmp_path / "one.mp4"), native_planes(tmp_path / "two.mp4"), strict=True
    ):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("nv12", "yuv420p"),
        ("yuyv422", "yuv422p"),
        ("bgra", "gbrap"),
        ("bgr0", "gbrp"),
        ("p010le", "yuv420p10le"),
        ("rgb48be", "gbrp16le"),
        ("pal8", "gbrap"),
        ("yuv420p", "yuv420p"),
        ("gray", "gray"),
    ],
)
def test_a_packed_format_has_a_planar_twin_with_the_same_samples(name: str, twin: str) -> None:
    assert planar_twin(name) == twin


def test_an_unmarked_video_gets_the_matrix_players_assume() -> None:
    assert matrix_of(av.VideoFrame(640, 480, "yuv420p")).name == "ITU601"
    assert matrix_of(av.VideoFrame(1920, 1080, "yuv420p")).name == "ITU709"


# Containers and codecs


@pytest.mark.parametrize(
    "ending", [".mp4", ".mov", ".mkv", ".webm", ".avi", ".ts", ".flv", ".wmv", ".mpg", ".m4v"]
)
def test_every_container_takes_a_video_with_all_its_frames(tmp_path: Path, ending: str) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(25), sounds=[("aac", 0.0)])
    rewrite(path, tmp_path / f"out{ending}", patched=(3,))
    with VideoReader(tmp_path / f"out{ending}") as reader:
        frames = list(reader)
        assert reader.info.has_sound
    assert len(frames) == 25
    stamps = [frame.time_s - frames[0].time_s for frame in frames]
    np.testing.assert_allclose(stamps, np.arange(25) / 25, atol=0.0011)
    assert np.abs(frames[9].image.astype(int) - picture(9)).mean() < 10


@pytest.mark.parametrize(
    ("codec", "ending", "name"),
    [
        ("h264", ".mp4", "h264"),
        ("h265", ".mp4", "hevc"),
        ("av1", ".mkv", "libdav1d"),
        ("vp9", ".webm", "vp9"),
        ("ffv1", ".mkv", "ffv1"),
        ("prores", ".mov", "prores"),
    ],
)
def test_every_codec_can_be_asked_for(tmp_path: Path, codec: str, ending: str, name: str) -> None:
    path = make_video(tmp_path / "in.mp4", size=(128, 96))
    rewrite(path, tmp_path / f"out{ending}", codec=codec)
    with VideoReader(tmp_path / f"out{ending}") as reader:
        assert reader.info.codec == name
        assert len(list(reader)) == 10


@pytest.mark.parametrize(
    ("ending", "options", "words"),
    [
        (".webm", {"codec": "h264"}, "webm files do not take h264"),
        (".mp4", {"codec": "prores"}, "choose auto or h264, h265"),
        (".mp4", {"codec": "divx"}, "not known; choose one of"),
        (".mp4", {"quality": 101}, "not between 0 and 100"),
        (".xyz", {}, r"'\.xyz'; endings that work"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(
    tmp_path: Path, ending: str, options: dict[str, Any], words: str
) -> None:
    path = make_video(tmp_path / "in.mp4")
    with VideoReader(path) as reader, pytest.raises(UsageError, match=words):
        VideoWriter(tmp_path / f"out{ending}", reader, **options)


def test_a_higher_quality_makes_a_larger_file_with_every_codec(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", size=(128, 96))
    for codec, ending in (
        ("h264", ".mp4"),
        ("h265", ".mp4"),
        ("vp9", ".webm"),
        ("av1", ".mp4"),
        ("prores", ".mov"),
    ):
        sizes = []
        for quality in (20, 80, 100):
            rewrite(path, tmp_path / f"out{ending}", codec=codec, quality=quality)
            sizes.append((tmp_path / f"out{ending}").stat().st_size)
        assert sizes == sorted(sizes), codec


def test_an_output_without_an_ending_gets_the_inputs_container(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mkv")
    rewrite(path, tmp_path / "out")
    with VideoReader(tmp_path / "out") as reader:
        assert reader.info.format == "matroska,webm"


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "quoted" & $HOME;.mp4',
        "ünïcode_名前_😀.mp4",
        "-dash.mp4",
        "%d_%05d.mp4",
        "a:b.mp4",
        "n" * 240 + ".mp4",
    ],
)
def test_any_name_works_for_input_and_output(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_video(tmp_path / "x.mp4").rename(tmp_path / name)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    rewrite(Path(name), Path("out") / name)
    assert len(times(tmp_path / "out" / name)) == 10


# Faults


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.mp4", b"", "is empty"),
        ("text.mp4", b"no video here\n" * 50, "is not a video"),
        (
            "head.mp4",
            b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41\0\0\0\x08free",
            "holds no picture|is not a video",
        ),
        ("missing.mp4", None, "no such file"),
    ],
)
def test_what_is_no_video_is_refused_in_one_line(
    tmp_path: Path, name: str, data: bytes | None, words: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        VideoReader(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_video(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        VideoReader(tmp_path)


def test_a_playlist_cannot_pull_in_other_files(tmp_path: Path) -> None:
    make_video(tmp_path / "in.mp4")
    (tmp_path / "list.mp4").write_text(f"ffconcat version 1.0\nfile {tmp_path / 'in.mp4'}\n")
    (tmp_path / "list.m3u8").write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n")
    for name in ("list.mp4", "list.m3u8"):
        with pytest.raises(InputError):
            VideoReader(tmp_path / name)


def test_a_video_cut_short_gives_its_good_frames_and_says_so(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.mkv", stamps=range(50), options={"g": "10", "preset": "ultrafast", "crf": "1"}
    )
    data = path.read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) * 6 // 10])
    with VideoReader(tmp_path / "cut.mkv") as reader:
        frames = list(reader)
    assert 20 < len(frames) < 40
    assert [frame.time_s for frame in frames] == [n / 25 for n in range(len(frames))]
    assert np.abs(frames[15].image.astype(int) - picture(15)).mean() < 6


def test_a_cut_file_with_an_index_is_reported(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.mp4", stamps=range(50), options={"g": "10", "preset": "ultrafast", "crf": "1"}
    )
    with (
        av.open(str(path)) as source,
        av.open(str(tmp_path / "fast.mp4"), "w", container_options={"movflags": "faststart"}) as copy,
    ):
        stream = copy.add_stream_from_template(source.streams.video[0], opaque=True)
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    data = (tmp_path / "fast.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: len(data) * 7 // 10])
    with VideoReader(tmp_path / "cut.mp4") as reader:
        count = len(list(reader))
    assert 20 < count < 50
    assert any(f"{count} of 50 frames" in warning for warning in reader.warnings)


def test_damage_in_the_middle_does_not_end_a_video(tmp_path: Path) -> None:
    path = make_video(
        tmp_path / "in.mkv", stamps=range(60), options={"g": "10", "preset": "ultrafast", "crf": "1"}
    )
    data = bytearray(path.read_bytes())
    for at in range(len(data) * 45 // 100, len(data) * 55 // 100, 61):
        data[at] ^= 0x5A
    (tmp_path / "bad.mkv").write_bytes(bytes(data))
    with VideoReader(tmp_path / "bad.mkv") as reader:
        frames = list(reader)
    assert len(frames) >= 40
    assert frames[-1].time_s >= 2.0
    assert np.abs(frames[-1].image.astype(int) - picture(round(frames[-1].time_s * 25))).mean() < 8


def test_a_picture_size_that_changes_is_scaled_to_the_first(tmp_path: Path) -> None:
    make_video(tmp_path / "a.ts", time_base=Fraction(1, 90000), stamps=range(0, 36000, 3600))
    make_video(
        tmp_path / "b.ts", time_base=Fraction(1, 90000), stamps=range(36000, 72000, 3600), size=(96, 80)
    )
    (tmp_path / "in.ts").write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    with VideoReader(tmp_path / "in.ts") as reader:
        frames = list(reader)
    assert {frame.image.shape for frame in frames} == {(48, 64, 3)}
    assert len(frames) >= 18
    assert any("size changes" in warning for warning in reader.warnings)
    rewrite(tmp_path / "in.ts", tmp_path / "out.mp4", patched=range(20))


def test_an_error_inside_the_block_finishes_nothing(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4")

    def work() -> None:
        with VideoReader(path) as reader, VideoWriter(tmp_path / "out.mp4", reader) as writer:
            writer.write(unchanged(next(iter(reader))))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        work()


def test_a_disk_that_fills_up_is_an_output_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = make_video(tmp_path / "in.mp4", stamps=range(60), size=(320, 240))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"too large|disk is full"):
            rewrite(path, tmp_path / "out.mkv", codec="ffv1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_folder_that_is_not_there_is_an_output_error(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4")
    with pytest.raises(OutputError, match="folder does not exist"):
        rewrite(path, tmp_path / "gone" / "out.mp4")


def test_the_packaged_clip_comes_out_whole(samples: Path, tmp_path: Path) -> None:
    path = samples / "single_face.mp4"
    assert rewrite(path, tmp_path / "out.mp4") == []
    assert times(tmp_path / "out.mp4") == times(path)
    with VideoReader(tmp_path / "out.mp4") as reader:
        assert reader.info.frame_count == 72
        assert reader.info.has_sound


@pytest.mark.parametrize("turned", [False, True])
def test_frames_that_are_done_with_are_freed_at_once(tmp_path: Path, turned: bool) -> None:
    """Without waiting for the garbage collector, to which a frame of megabytes is one small object."""
    path = make_video(tmp_path / "in.mp4", stamps=range(60))
    if turned:
        turn_mp4(path, 90)
    gc.collect()
    gc.disable()
    try:
        with VideoReader(path) as reader, VideoWriter(tmp_path / "out.mp4", reader) as writer:
            for frame in reader:
                writer.write(with_patch(frame))
            alive = sum(isinstance(thing, av.VideoFrame) for thing in gc.get_objects())
    finally:
        gc.enable()
    assert alive <= 8  # of sixty
