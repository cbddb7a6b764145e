"""``lethe swap`` as a user calls it, on the packaged photos and the packaged clip."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from tests.cli.conftest import Run, environment

REPORT_KEYS = [
    "version",
    "command",
    "inputs",
    "wall_s",
    "fps",
    "cpu_s",
    "peak_rss_bytes",
    "stages",
    "cache",
    "rungs",
    "offload",
    "dropped",
    "identities",
    "providers",
    "effective_config",
]


@pytest.fixture
def source(samples: Path) -> Path:
    return samples / "single_face.jpg"


@pytest.fixture
def group(samples: Path) -> Path:
    return samples / "multi_face.jpg"


@pytest.fixture
def clip(samples: Path) -> Path:
    return samples / "single_face.mp4"


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    path = tmp_path / "blank.png"
    Image.new("RGB", (320, 240), (90, 120, 90)).save(path)
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that no user asked for."""
    return [p.name for p in folder.rglob("*") if p.is_file() and (p.name.startswith(".") or "part" in p.name)]


def test_a_face_goes_onto_every_face_of_a_photo(
    lethe: Run, tmp_path: Path, source: Path, group: Path
) -> None:
    done = lethe("swap", "--source", source, group, "--output", "out.jpg", "--report", "report.json")
    assert done.returncode == 0, done.stderr
    assert "out.jpg  (1 frame fused)" in done.stdout
    with Image.open(group) as before, Image.open(tmp_path / "out.jpg") as after:
        assert before.size == after.size
        assert ImageChops.difference(before.convert("RGB"), after.convert("RGB")).getbbox() is not None
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report) == REPORT_KEYS
    assert report["inputs"][0]["status"] == "ok"
    assert report["inputs"][0]["frames_fused"] == 1
    assert report["command"][:2] == ["lethe", "swap"]
    assert report["effective_config"]["fusion.tier"] == {"value": "quality", "origin": "default"}
    assert report["stages"]
    assert report["providers"]
    assert leftovers(tmp_path) == []


def test_a_part_of_a_video_is_fused_with_report_and_trace(
    lethe: Run, tmp_path: Path, samples: Path, clip: Path
) -> None:
    done = lethe(
        "swap", "-s", samples / "multi_face.jpg", "--source-face", "2", clip, "-o", "out.mp4",
        "--trim", "0.5-1", "--tier", "fast", "--report", "r.json", "--trace", "t.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    (item,) = report["inputs"]
    assert 8 <= item["frames_out"] <= 16
    assert item["frames_fused"] == item["frames_out"]
    assert report["effective_config"]["fusion.tier"] == {"value": "fast", "origin": "flag --tier"}
    spans = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert len({span["name"] for span in spans}) > 2
    assert {span["args"]["frame"] for span in spans if "args" in span} >= set(range(8))


def test_json_is_all_there_is_on_stdout(lethe: Run, source: Path, group: Path) -> None:
    done = lethe("swap", "-s", source, group, "-o", "out.jpg", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    by_name = {event["event"]: event for event in events}
    assert set(by_name) == {
        "job_started",
        "source_prepared",
        "input_started",
        "input_finished",
        "job_finished",
    }
    assert by_name["input_finished"]["status"] == "ok"
    assert events[-1] == by_name["job_finished"]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_the_report_can_go_to_a_pipe(lethe: Run, source: Path, group: Path) -> None:
    done = lethe("swap", "-s", source, group, "-o", "out.jpg", "--quiet", "--report", "/dev/stdout")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)) == REPORT_KEYS


def test_quiet_is_quiet(lethe: Run, source: Path, group: Path) -> None:
    done = lethe("swap", "-s", source, group, "-o", "out.jpg", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_name_may_begin_with_a_dash(lethe: Run, tmp_path: Path, source: Path, group: Path) -> None:
    shutil.copy(group, tmp_path / "-group.jpg")
    done = lethe("swap", "-s", source, "-o", "out.jpg", "--", "-group.jpg")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jpg").exists()


def test_a_reference_chooses_one_of_several_people(
    lethe: Run, tmp_path: Path, source: Path, group: Path
) -> None:
    him = (400, 150, 560, 340)
    with Image.open(group) as picture:
        picture.crop(him).save(tmp_path / "him.png")
    done = lethe("swap", "-s", source, group, "--reference", "him.png", "-o", "out.png")
    assert done.returncode == 0, done.stderr
    with Image.open(group) as before, Image.open(tmp_path / "out.png") as after:
        changed = ImageChops.difference(before.convert("RGB"), after.convert("RGB")).getbbox()
    assert changed is not None
    assert him[0] <= changed[0] < changed[2] <= him[2]
    assert him[1] <= changed[1] < changed[3] <= him[3]


def test_a_reference_with_several_people_is_refused(lethe: Run, source: Path, group: Path) -> None:
    done = lethe("swap", "-s", source, group, "--reference", group, "-o", "out.png")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_reference_that_nobody_matches_leaves_the_picture_alone(
    lethe: Run, tmp_path: Path, samples: Path, source: Path, group: Path
) -> None:
    done = lethe("swap", "-s", source, "--reference", samples / "astronaut.png", group, "-o", "out.jpg")
    assert done.returncode == 0, done.stderr
    assert "no face fused" in done.stdout


def test_a_mapping_covers_the_person_of_its_reference(
    lethe: Run, tmp_path: Path, samples: Path, source: Path
) -> None:
    reference = tmp_path / "a=b.jpg"
    shutil.copy(source, reference)
    done = lethe("swap", "--map", f"{samples / 'grace_hopper.jpg'}={reference}", source, "-o", "out.jpg")
    assert done.returncode == 0, done.stderr
    assert "1 frame fused" in done.stdout


def test_an_input_that_is_not_there_fails(lethe: Run, tmp_path: Path, source: Path) -> None:
    done = lethe("swap", "-s", source, "none.jpg", "-o", "out.jpg")
    assert done.returncode == 1
    assert done.stderr.startswith("lethe: none.jpg: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.jpg").exists()


def test_an_output_that_cannot_be_written_fails(
    lethe: Run, tmp_path: Path, source: Path, group: Path
) -> None:
    (tmp_path / "file").touch()
    done = lethe("swap", "-s", source, group, "-o", "file/out.jpg")
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1


def test_a_provider_that_is_not_there_fails_and_says_what_there_is(
    lethe: Run, source: Path, group: Path
) -> None:
    done = lethe("swap", "-s", source, group, "-o", "out.jpg", LETHE_RUNTIME_PROVIDERS="NoSuchProvider")
    assert done.returncode == 1
    assert "NoSuchProvider is not in this ONNX Runtime (it has" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{group}", "-o", "out.jpg"], "nobody to fuse: give --source FILE"),
        (["-s", "{source}", "{group}"], "Missing option '--output'"),
        (["-s", "{source}", "-o", "out.jpg"], "Missing argument"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--sourc", "x"], "No such option: --sourc"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--faces", "match"], "add --reference FILE"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--faces", "some"], "'some'"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--trim", "5"], "write START-END"),
        (
            ["-s", "{source}", "{group}", "-o", "out.jpg", "--quality", "101"],
            "quality must lie between 0 and 100",
        ),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--codec", "divx"], "codec must be one of"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--shape-strength", "2"], "flag --shape-strength"),
        (["--map", "x.jpg", "{group}", "-o", "out.jpg"], "write SOURCE=REFERENCE"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--report", "{group}/r.json"], "nothing may be"),
        (["-s", "{source}", "{group}", "-o", "out.jpg", "--trace", "out.jpg"], "is a file of this job"),
    ],
)
def test_a_request_that_makes_no_sense_leaves_with_2(
    lethe: Run, tmp_path: Path, source: Path, group: Path, arguments: list[str], message: str
) -> None:
    done = lethe("swap", *(text.format(source=source, group=group) for text in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_a_face_is_refused(lethe: Run, tmp_path: Path, blank: Path, group: Path) -> None:
    done = lethe("swap", "-s", blank, group, "-o", "out.jpg")
    assert done.returncode == 2
    assert "blank.png" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.jpg").exists()


def test_a_source_with_several_faces_needs_a_choice(
    lethe: Run, tmp_path: Path, source: Path, group: Path
) -> None:
    done = lethe("swap", "-s", group, source, "-o", "out.jpg")
    assert done.returncode == 2
    assert "--source-face" in done.stderr
    assert not (tmp_path / "out.jpg").exists()


def test_an_output_over_its_own_input_is_refused(
    lethe: Run, tmp_path: Path, source: Path, group: Path
) -> None:
    photo = tmp_path / "photo.jpg"
    shutil.copy(group, photo)
    done = lethe("swap", "-s", source, "photo.jpg", "-o", "./photo.jpg")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert photo.read_bytes() == group.read_bytes()


def test_one_bad_file_does_not_stop_the_others(lethe: Run, tmp_path: Path, source: Path, group: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    shutil.copy(group, photos / "good.jpg")
    (photos / "empty.jpg").touch()
    (photos / "text.jpg").write_text("this is no picture")
    done = lethe("swap", "-s", source, "photos", "-o", "out", "--report", "r.json")
    assert done.returncode == 5
    assert "lethe: 2 of 3 inputs failed; the others are done" in done.stderr
    assert (tmp_path / "out" / "good.jpg").is_file()
    statuses = {
        Path(i["path"]).name: i["status"] for i in json.loads((tmp_path / "r.json").read_text())["inputs"]
    }
    assert statuses == {"good.jpg": "ok", "empty.jpg": "failed", "text.jpg": "failed"}
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["good.jpg"]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_job_leaves_with_4_and_no_half_written_file(
    tmp_path: Path, samples: Path, clip: Path, number: int
) -> None:
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        shutil.copy(clip, tmp_path / name)
    arguments = ["swap", "-s", samples / "single_face.jpg", "a.mp4", "b.mp4", "c.mp4", "-o", "out", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "edge", *arguments, "--report", "r.json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "progress":
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    assert "stopped" in errors
    assert "Traceback" not in errors
    assert leftovers(tmp_path) == []
    assert not (tmp_path / "out" / "c.mp4").exists()
    assert list(json.loads((tmp_path / "r.json").read_text())) == REPORT_KEYS
