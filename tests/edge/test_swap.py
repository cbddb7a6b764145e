"""The main job through the Python API, on the packaged media."""

import contextlib
import importlib
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import edge
from edge import JobReport, Pair, SwapOptions, Swapper, Trim, swap_files, swap_image, swap_video
from edge.people import PeopleIndex
from edge.progress import Event, InputFinished, InputStarted, JobStarted, Progress, SourcePrepared
from shared.arrays import ImageBgr
from shared.counters import CacheCounters
from shared.errors import (
    ConfigError,
    FaceFusionError,
    InputError,
    OutputError,
    SomeInputsFailedError,
    SourceError,
    UsageError,
)
from tests.edge.media_makers import make_video
from tests.real_faces import SAMPLES, clip_faces, embedding_of, faces_of, image_of

MAN, WOMAN, ADMIRAL = SAMPLES / "single_face.jpg", SAMPLES / "astronaut.png", SAMPLES / "grace_hopper.jpg"
GROUP, CLIP = SAMPLES / "multi_face.jpg", SAMPLES / "single_face.mp4"
SHORT = SwapOptions(trim=Trim(0, 0.5))

Mask = npt.NDArray[np.bool_]


def read(path: Path) -> ImageBgr:
    with Image.open(path) as picture:
        return np.ascontiguousarray(np.asarray(picture.convert("RGB"))[..., ::-1])


def change_of(output: Path) -> Mask:
    """Where a fused group photo differs from the original."""
    return (read(output) != image_of("multi_face.jpg")).any(2)


def changed_faces(changed: Mask) -> set[int]:
    """Which people of the group photo were covered, from the left, from 0."""
    found = set()
    for number, face in enumerate(faces_of("multi_face.jpg")):
        x0, y0, x1, y1 = face.xyxy.astype(int)
        if changed[y0:y1, x0:x1].mean() > 0.2:
            found.add(number)
    return found


def away_from_faces() -> Mask:
    """Pixels of the group photo that are far from every face."""
    far = np.ones(image_of("multi_face.jpg").shape[:2], bool)
    for face in faces_of("multi_face.jpg"):
        x0, y0, x1, y1 = face.xyxy
        w, h = 0.25 * (x1 - x0), 0.25 * (y1 - y0)
        far[int(y0 - h) : int(y1 + h), int(x0 - w) : int(x1 + w)] = False
    return far


def likeness(output: Path, number: int, person: Path) -> float:
    """How much face ``number`` of a fused group photo looks like the person of another photo."""
    landmarks = faces_of("multi_face.jpg")[number].landmarks
    who = embedding_of(image_of(person.name), faces_of(person.name)[0].landmarks)
    return float(embedding_of(read(output), landmarks) @ who)


@pytest.fixture
def cropped(tmp_path: Path) -> Any:
    """Makes a reference photo of one person of the group."""

    def crop(number: int) -> Path:
        x0, y0, x1, y1 = faces_of("multi_face.jpg")[number].xyxy.astype(int)
        w, h = (x1 - x0) // 2, (y1 - y0) // 2
        path = tmp_path / f"person {number}.png"
        part = image_of("multi_face.jpg")[max(y0 - h, 0) : y1 + h, max(x0 - w, 0) : x1 + w]
        Image.fromarray(part[..., ::-1]).save(path)
        return path

    return crop


@pytest.fixture
def lawn(tmp_path: Path) -> Path:
    path = tmp_path / "lawn.png"
    Image.new("RGB", (160, 120), (90, 120, 90)).save(path)
    return path


def files_in(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


# The names


def test_every_public_name_is_there() -> None:
    for name in edge.__all__:
        home = importlib.import_module(getattr(edge, name).__module__)
        assert getattr(home, name) is getattr(edge, name)
    with pytest.raises(AttributeError, match="no attribute 'swap_everything'"):
        edge.swap_everything  # noqa: B018


def test_importing_the_package_alone_loads_nothing_heavy() -> None:
    heavy = "{'cv2', 'av', 'onnxruntime', 'PIL', 'numpy'}"
    code = f"import sys, edge; sys.exit(bool({heavy} & set(sys.modules)))"
    repository = str(SAMPLES.parent.parent)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=repository, timeout=60)


# Photos


@pytest.fixture(scope="module")
def fused_group(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JobReport]:
    """The man of one photo on everybody of another."""
    output = tmp_path_factory.mktemp("group") / "out.png"
    return output, swap_files([Pair((MAN,))], [GROUP], output)


def test_everybody_in_a_photo_is_covered_and_nothing_else_is_touched(
    fused_group: tuple[Path, JobReport],
) -> None:
    output, report = fused_group
    changed = change_of(output)
    assert changed_faces(changed) == {0, 1, 2, 3, 4}
    assert not changed[away_from_faces()].any()
    (item,) = report.inputs
    assert (item.path, item.output, item.status, item.error) == (GROUP, output, "ok", None)
    assert (item.frames_in, item.frames_out, item.frames_fused, item.duration_s) == (1, 1, 1, 0.0)


def test_those_covered_look_like_the_source(fused_group: tuple[Path, JobReport]) -> None:
    for number in range(1, 5):  # the first wears sunglasses, which stay
        own = embedding_of(image_of("multi_face.jpg"), faces_of("multi_face.jpg")[number].landmarks)
        now = embedding_of(read(fused_group[0]), faces_of("multi_face.jpg")[number].landmarks)
        assert likeness(fused_group[0], number, MAN) > max(0.6, float(own @ now))


def test_a_report_of_a_photo_adds_up(fused_group: tuple[Path, JobReport]) -> None:
    report = fused_group[1]
    assert dict(report.rungs) == {"local": 1, "pass": 0}
    people = PeopleIndex(CacheCounters())
    for face in faces_of("multi_face.jpg"):
        people.see(embedding_of(image_of("multi_face.jpg"), face.landmarks))
    assert report.identities == {"seen": len(people), "remembered": 0}
    assert report.stages["fuse"]["count"] == report.stages["encode"]["count"] == 1
    assert report.cache["artefacts"]["misses"] == 1
    assert report.cache["reuse"]["misses"] == 5
    assert set(report.providers.values()) == {"CPUExecutionProvider"}
    assert {"yunet", "facemesh478", "mobilefacenet192"} <= set(report.providers)
    assert report.fps == pytest.approx(1 / report.wall_s)
    assert not report.interrupted
    assert report.spans == ()


def test_the_same_job_gives_the_same_bytes(fused_group: tuple[Path, JobReport], tmp_path: Path) -> None:
    swap_image(MAN, GROUP, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == fused_group[0].read_bytes()


def test_a_photo_in_memory_gives_the_same_picture(fused_group: tuple[Path, JobReport]) -> None:
    given = image_of("multi_face.jpg").copy()
    out = Swapper([Pair((MAN,))]).swap_array(given)
    np.testing.assert_array_equal(out, read(fused_group[0]))
    np.testing.assert_array_equal(given, image_of("multi_face.jpg"))


def test_without_caches_a_photo_is_the_same(fused_group: tuple[Path, JobReport], tmp_path: Path) -> None:
    swap_image(MAN, GROUP, tmp_path / "out.png", SwapOptions(caches=False))
    np.testing.assert_array_equal(read(tmp_path / "out.png"), read(fused_group[0]))


def test_the_cheapest_tier_fuses_as_well(tmp_path: Path) -> None:
    swap_image(MAN, GROUP, tmp_path / "out.png", SwapOptions(tier="fast"))
    assert changed_faces(change_of(tmp_path / "out.png")) == {0, 1, 2, 3, 4}


def test_a_photo_without_a_face_comes_out_byte_for_byte(lawn: Path, tmp_path: Path) -> None:
    report = swap_image(MAN, lawn, tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes() == lawn.read_bytes()
    assert (report.status, report.frames_in, report.frames_out, report.frames_fused) == ("ok", 1, 1, 0)


def test_several_photos_of_one_person_make_one_source(tmp_path: Path) -> None:
    small = tmp_path / "small.png"
    Image.open(MAN).resize((286, 281)).save(small)
    events: list[Event] = []
    swap_files([Pair((small, MAN))], [GROUP], tmp_path / "out.png", events=events.append)
    told = {e.path: e.advice for e in events if isinstance(e, SourcePrepared)}
    assert set(told) == {small, MAN}
    assert likeness(tmp_path / "out.png", 4, MAN) > 0.6


def test_events_tell_the_job_from_beginning_to_end(tmp_path: Path) -> None:
    events: list[Event] = []
    swap_files([Pair((MAN,))], [GROUP], tmp_path / "out.png", events=events.append)
    assert [type(e) for e in events] == [JobStarted, SourcePrepared, InputStarted, InputFinished]
    assert events[2] == InputStarted(GROUP, 0, 1, 1, 0.0)
    assert events[3] == InputFinished(GROUP, tmp_path / "out.png", "ok", 1, None, ())


# Who is covered


def test_two_people_are_covered_by_two_others_in_one_pass(cropped: Any, tmp_path: Path) -> None:
    pairs = [Pair((WOMAN,), cropped(3)), Pair((MAN,), cropped(1))]
    report = swap_files(pairs, [GROUP], tmp_path / "out.png")
    report.raise_for_status()
    assert changed_faces(change_of(tmp_path / "out.png")) == {1, 3}
    assert likeness(tmp_path / "out.png", 1, MAN) > 0.6 > likeness(tmp_path / "out.png", 1, WOMAN)
    assert likeness(tmp_path / "out.png", 3, WOMAN) > 0.5 > likeness(tmp_path / "out.png", 3, MAN)
    assert report.cache["artefacts"]["misses"] == 2


def test_who_matches_no_reference_gets_the_source_for_anybody(cropped: Any, tmp_path: Path) -> None:
    pairs = [Pair((MAN,)), Pair((WOMAN,), cropped(3))]
    swap_files(pairs, [GROUP], tmp_path / "out.png")
    assert changed_faces(change_of(tmp_path / "out.png")) == {0, 1, 2, 3, 4}
    assert likeness(tmp_path / "out.png", 3, WOMAN) > 0.5
    assert likeness(tmp_path / "out.png", 4, MAN) > 0.6


def test_only_the_one_who_matches_is_covered(cropped: Any, tmp_path: Path) -> None:
    options = SwapOptions(faces="match")
    swap_files([Pair((MAN,), cropped(2))], [GROUP], tmp_path / "out.png", options)
    assert changed_faces(change_of(tmp_path / "out.png")) == {2}


def test_a_threshold_nobody_reaches_covers_nobody(cropped: Any, tmp_path: Path) -> None:
    options = SwapOptions(faces="match", match_threshold=1.0)
    report = swap_files([Pair((MAN,), WOMAN)], [GROUP], tmp_path / "out.png", options)
    assert report.inputs[0].frames_fused == 0
    assert not change_of(tmp_path / "out.png").any()


def test_only_the_largest_face_is_covered(tmp_path: Path) -> None:
    swap_files([Pair((MAN,))], [GROUP], tmp_path / "out.png", SwapOptions(faces="largest"))
    assert changed_faces(change_of(tmp_path / "out.png")) == {4}


# Requests that make no sense


def test_nobody_to_fuse_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="give at least one source"):
        Swapper([])


def test_matching_without_a_reference_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match="at least one reference"):
        Swapper([Pair((MAN,))], SwapOptions(faces="match"))


@pytest.mark.parametrize(
    ("photos", "message"),
    [
        (("lawn.png",), r"lawn\.png: no face found"),
        (("gone.jpg",), r"source .*gone\.jpg: "),
        ((GROUP,), r"multi_face\.jpg: shows 5 faces"),
        ((MAN, WOMAN), "shows another person than"),
        ((MAN, "lawn.png"), r"lawn\.png: no face found"),
    ],
)
def test_a_source_that_cannot_serve_is_refused_before_anything_is_written(
    lawn: Path, tmp_path: Path, photos: tuple[str | Path, ...], message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        swap_files([Pair(tuple(tmp_path / p for p in photos))], [GROUP], tmp_path / "out" / "out.png")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == ["lawn.png"]


def test_a_reference_without_a_face_or_with_many_is_refused_as_a_reference(
    lawn: Path, tmp_path: Path
) -> None:
    for reference, message in ((lawn, "reference .*no face found"), (GROUP, "reference .*shows 5 faces")):
        with pytest.raises(SourceError, match=message) as caught:
            swap_files([Pair((MAN,), reference)], [GROUP], tmp_path / "out.png")
        assert "--source-face" not in str(caught.value)


def test_one_face_of_a_source_with_several_can_be_chosen(tmp_path: Path) -> None:
    swap_image(GROUP, MAN, tmp_path / "out.png", SwapOptions(source_face=4))
    face = faces_of("single_face.jpg")[0]
    chosen = embedding_of(image_of("multi_face.jpg"), faces_of("multi_face.jpg")[3].landmarks)
    assert float(embedding_of(read(tmp_path / "out.png"), face.landmarks) @ chosen) > 0.6


@pytest.mark.parametrize("where", ["input", "source", "link"])
def test_an_output_over_a_file_the_job_reads_is_refused(tmp_path: Path, where: str) -> None:
    photo, source = tmp_path / "photo.png", tmp_path / "source.jpg"
    Image.open(GROUP).save(photo)
    source.write_bytes(MAN.read_bytes())
    (tmp_path / "link.png").symlink_to(photo)
    output = {"input": photo, "source": source, "link": tmp_path / "link.png"}[where]
    before = {path: path.read_bytes() for path in (photo, source)}
    with pytest.raises(UsageError, match="choose another output"):
        swap_files([Pair((source,))], [photo], output)
    assert {path: path.read_bytes() for path in (photo, source)} == before


# Batches


def test_one_broken_input_does_not_stop_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(MAN.read_bytes())
    (folder / "b.jpg").write_bytes(b"this is no picture")
    (folder / "c.jpg").write_bytes(b"")
    (folder / "d.jpg").write_bytes(GROUP.read_bytes())
    report = swap_files([Pair((WOMAN,))], [folder], tmp_path / "out")
    assert {i.path.name: i.status for i in report.inputs} == {
        "a.jpg": "ok",
        "b.jpg": "failed",
        "c.jpg": "failed",
        "d.jpg": "ok",
    }
    assert files_in(tmp_path / "out") == ["a.jpg", "d.jpg"]
    for item in report.inputs:
        assert (item.error is None) == (item.output is not None) == (item.status == "ok")
        assert item.error is None or (item.path.name in item.error and "\n" not in item.error)
    # The person is prepared once, and found again for every input.
    assert report.cache["artefacts"]["misses"] == 1
    with pytest.raises(SomeInputsFailedError, match="2 of 4"):
        report.raise_for_status()


def test_a_single_input_that_fails_raises_from_the_simple_functions(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(FaceFusionError, match=r"empty\.jpg: "):
        swap_image(MAN, tmp_path / "empty.jpg", tmp_path / "out.jpg")
    assert files_in(tmp_path) == ["empty.jpg"]


def test_a_folder_without_pictures_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError):
        swap_files([Pair((MAN,))], [tmp_path / "in"], tmp_path / "out")


def test_inputs_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for name, photo in (("a", MAN), ("b", ADMIRAL)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "photo.jpg").write_bytes(photo.read_bytes())
    inputs = [tmp_path / "a" / "photo.jpg", tmp_path / "b" / "photo.jpg"]
    report = swap_files([Pair((WOMAN,))], inputs, tmp_path / "out")
    outputs = {item.output for item in report.inputs}
    assert len(outputs) == 2
    assert sorted(read(o).shape for o in outputs if o is not None) == [(562, 572, 3), (600, 512, 3)]


def test_an_output_over_another_input_of_the_batch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "photo.jpg").write_bytes(MAN.read_bytes())
    (tmp_path / "photo.jpg").write_bytes(ADMIRAL.read_bytes())
    inputs = [tmp_path / "a" / "photo.jpg", tmp_path / "photo.jpg"]
    with pytest.raises(UsageError, match="is also an input"):
        swap_files([Pair((WOMAN,))], inputs, tmp_path)
    assert (tmp_path / "photo.jpg").read_bytes() == ADMIRAL.read_bytes()


# Outputs that cannot be written


@contextlib.contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A disk that is soon full, as far as a process can tell."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("photo", "name"), [(GROUP, "out.png"), (CLIP, "out.mp4"), (CLIP, "out.mkv")])
def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path: Path, photo: Path, name: str) -> None:
    output = tmp_path / name
    output.write_bytes(b"what was there before")
    with no_file_larger_than(8192):
        report = swap_files([Pair((WOMAN,))], [photo], output, SHORT)
    (item,) = report.inputs
    assert item.status == "failed"
    assert item.error is not None
    assert item.error.startswith(f"{output}: ")
    assert "too large" in item.error or "full" in item.error
    assert files_in(tmp_path) == [name]
    assert output.read_bytes() == b"what was there before"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FaceFusionError, match="a part of its path is a file"):
        swap_image(MAN, GROUP, tmp_path / "file" / "out.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    report = swap_files([Pair((MAN,))], [GROUP], closed / "out.png")
    assert "permission denied" in (report.inputs[0].error or "")


def test_a_still_that_does_not_fit_its_ending_fails_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises((OutputError, UsageError)) as caught:
        swap_image(MAN, GROUP, tmp_path / "out.xyz")
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == []


# Videos


@dataclass(frozen=True)
class Film:
    """What a player sees of a video file."""

    pictures: list[npt.NDArray[np.uint8]]
    times_s: list[float]
    sound: list[bytes]

    @classmethod
    def of(cls, path: Path) -> "Film":
        pictures, times = [], []
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                pictures.append(np.asarray(frame.to_ndarray(format="bgr24"), np.uint8))
                times.append(float(frame.time or 0))
        with av.open(str(path)) as container:
            sound = [bytes(packet) for packet in container.demux(audio=0) if packet.size]
        return cls(pictures, times, sound)


@pytest.fixture(scope="module")
def fused_clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JobReport, list[Event]]:
    """The astronaut on the man of the packaged clip, from beginning to end."""
    output = tmp_path_factory.mktemp("clip") / "out.mp4"
    events: list[Event] = []
    options = SwapOptions(tier="balanced", keep_spans=True)
    report = swap_files([Pair((WOMAN,))], [CLIP], output, options, events=events.append)
    return output, report, events


def test_a_video_keeps_its_frames_times_and_sound(fused_clip: tuple[Path, JobReport, list[Event]]) -> None:
    before, after = Film.of(CLIP), Film.of(fused_clip[0])
    assert len(before.pictures) == len(after.pictures) == 72
    np.testing.assert_allclose(after.times_s, before.times_s, atol=1e-4)
    assert after.sound == before.sound


def test_in_a_video_the_face_changes_and_the_background_does_not(
    fused_clip: tuple[Path, JobReport, list[Event]],
) -> None:
    before, after = Film.of(CLIP), Film.of(fused_clip[0])
    off = [np.abs(a.astype(int) - b).mean(2) for a, b in zip(before.pictures, after.pictures, strict=True)]
    assert all(o[150:260, 250:340].mean() > 5 for o in off)
    assert all(o[:, :140].mean() < 1.5 for o in off)


def test_a_report_of_a_video_adds_up(fused_clip: tuple[Path, JobReport, list[Event]]) -> None:
    _, report, _ = fused_clip
    (item,) = report.inputs
    assert (item.frames_in, item.frames_out, item.frames_fused) == (72, 72, 72)
    assert item.duration_s == pytest.approx(2.4, abs=0.1)
    assert dict(report.rungs) == {"local": 72, "pass": 0}
    assert report.stages["fuse"]["count"] == report.stages["encode"]["count"] == 72
    assert 72 <= report.stages["landmarks"]["count"] < 100
    assert report.stages["detect"]["count"] < 30
    assert report.cache["track"]["hits"] >= 60
    assert report.cache["reuse"]["hits"] + report.cache["reuse"]["misses"] == 72
    assert report.identities["seen"] == 1
    assert 0 < report.fps == pytest.approx(72 / report.wall_s)
    assert {span.frame for span in report.spans if span.stage == "fuse"} == set(range(72))


def test_progress_is_told_and_ends_with_the_last_frame(
    fused_clip: tuple[Path, JobReport, list[Event]],
) -> None:
    progress = [e for e in fused_clip[2] if isinstance(e, Progress)]
    assert progress[-1].frames_done == progress[-1].frames_total == 72
    done = [e.frames_done for e in progress]
    assert done == sorted(set(done))
    assert all(e.fps > 0 for e in progress)


@pytest.fixture(scope="module")
def short_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first half second, fused without loss."""
    output = tmp_path_factory.mktemp("short") / "out.mkv"
    report = swap_files([Pair((WOMAN,))], [CLIP], output, SwapOptions(trim=Trim(0, 0.5), codec="ffv1"))
    report.raise_for_status()
    return output


def test_outside_of_the_face_every_pixel_of_a_lossless_video_is_the_inputs_own(short_clip: Path) -> None:
    def luma(path: Path, count: int) -> list[npt.NDArray[np.uint8]]:
        with av.open(str(path)) as container:
            frames = [f for f, _ in zip(container.decode(video=0), range(count), strict=False)]
            return [np.asarray(f.to_ndarray()[: f.height], np.uint8) for f in frames]

    after = luma(short_clip, 1000)
    assert len(after) == 15
    for one, other in zip(luma(CLIP, len(after)), after, strict=True):
        changed = np.argwhere(one != other)
        (top, left), (bottom, right) = changed.min(0), changed.max(0)
        # The head of the man is at (221..373, 105..302) on the first frame.
        assert 60 < top < bottom < 360
        assert 150 < left < right < 450
        assert len(changed) > 5000


def test_two_runs_of_a_video_show_the_same(short_clip: Path, tmp_path: Path) -> None:
    options = SwapOptions(trim=Trim(0, 0.5), codec="ffv1")
    swap_video(WOMAN, CLIP, tmp_path / "again.mkv", options)
    one, two = Film.of(short_clip), Film.of(tmp_path / "again.mkv")
    assert one.times_s == two.times_s
    for a, b in zip(one.pictures, two.pictures, strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_caches_a_video_shows_about_the_same(short_clip: Path, tmp_path: Path) -> None:
    options = SwapOptions(trim=Trim(0, 0.5), codec="ffv1", caches=False)
    report = swap_files([Pair((WOMAN,))], [CLIP], tmp_path / "out.mkv", options)
    assert {level: c["hits"] for level, c in report.cache.items() if level != "identity"} == {
        "track": 0,
        "reuse": 0,
        "artefacts": 0,
    }
    for a, b in zip(Film.of(short_clip).pictures, Film.of(tmp_path / "out.mkv").pictures, strict=True):
        assert np.abs(a[105:302, 221:373].astype(int) - b[105:302, 221:373]).mean() < 2.0


def test_a_video_without_a_face_is_passed_on(tmp_path: Path) -> None:
    source = make_video(tmp_path / "bars.mp4", size=(160, 120))
    report = swap_files([Pair((WOMAN,))], [source], tmp_path / "out.mkv", SwapOptions(codec="ffv1"))
    (item,) = report.inputs
    assert (item.status, item.frames_in, item.frames_out, item.frames_fused) == ("ok", 10, 10, 0)
    assert dict(report.rungs) == {"local": 0, "pass": 10}
    with av.open(str(source)) as one, av.open(str(tmp_path / "out.mkv")) as two:
        for a, b in zip(one.decode(video=0), two.decode(video=0), strict=True):
            np.testing.assert_array_equal(a.to_ndarray(), b.to_ndarray())


def test_an_animated_picture_is_fused(tmp_path: Path) -> None:
    frames = [Image.fromarray(image[..., ::-1]).resize((320, 180)) for image, _ in clip_faces(3)]
    frames[0].save(tmp_path / "in.webp", save_all=True, append_images=frames[1:], duration=80, lossless=True)
    report = swap_image(WOMAN, tmp_path / "in.webp", tmp_path / "out.webp")
    assert (report.frames_in, report.frames_out, report.frames_fused) == (3, 3, 3)
    assert report.duration_s == pytest.approx(0.24)
    with Image.open(tmp_path / "out.webp") as picture:
        assert picture.n_frames == 3  # type: ignore[attr-defined]


def test_a_broken_video_fails_with_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "cut.mp4").write_bytes(CLIP.read_bytes()[:2000])
    report = swap_files([Pair((WOMAN,))], [tmp_path / "cut.mp4"], tmp_path / "out.mp4")
    assert report.inputs[0].status == "failed"
    assert "cut.mp4" in (report.inputs[0].error or "")
    assert files_in(tmp_path) == ["cut.mp4"]


# Stopping


def test_a_stopped_video_leaves_no_output(tmp_path: Path) -> None:
    stop = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Progress):
            stop.set()

    before = set(threading.enumerate())
    report = swap_files([Pair((WOMAN,))], [CLIP, GROUP], tmp_path / "out", events=on_event, stop=stop)
    assert report.interrupted
    assert [i for i in report.inputs if i.status == "ok"] == []
    assert files_in(tmp_path) == []
    assert set(threading.enumerate()) <= before


def test_a_job_stopped_between_two_inputs_keeps_and_reports_the_finished_one(tmp_path: Path) -> None:
    stop = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, InputStarted) and event.index == 0:
            stop.set()

    report = swap_files([Pair((WOMAN,))], [MAN, GROUP], tmp_path / "out", events=on_event, stop=stop)
    assert report.interrupted
    written = files_in(tmp_path / "out") if (tmp_path / "out").exists() else []
    # Whether the open input is finished or dropped, files and report agree.
    assert written == [i.output.name for i in report.inputs if i.output is not None]
    assert "multi_face.jpg" not in written


def test_a_job_stopped_before_it_begins_writes_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    report = swap_files([Pair((WOMAN,))], [MAN], tmp_path / "out.png", stop=stop)
    assert report.interrupted
    assert files_in(tmp_path) == []
