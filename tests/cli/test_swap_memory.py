"""``lethe swap`` and the face memory, by subprocess."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_a_source_is_remembered_and_used_by_name_and_forgotten(
    lethe: Run, samples: Path, tmp_path: Path
) -> None:
    group, source = str(samples / "multi_face.jpg"), str(samples / "single_face.jpg")
    first = lethe("swap", "-s", source, "--remember", "Zoe", group, "-o", str(tmp_path / "a.png"))
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("face memory is made") == 1  # once, where and at what level
    report = tmp_path / "report.json"
    again = lethe("swap", "-s", "@Zoe", group, "-o", str(tmp_path / "b.png"), "--report", str(report))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert json.loads(report.read_text())["cache"]["artefacts"]["misses"] == 0
    assert lethe("memory", "forget", "Zoe", "--yes").returncode == 0
    gone = lethe("swap", "-s", "@Zoe", group, "-o", str(tmp_path / "c.png"))
    assert gone.returncode == 2
    assert "nobody of that name is remembered" in gone.stderr
    assert not (tmp_path / "c.png").exists()


def test_a_plain_job_makes_no_memory(lethe: Run, samples: Path, tmp_path: Path) -> None:
    source = str(samples / "single_face.jpg")
    done = lethe("swap", "-s", source, str(samples / "multi_face.jpg"), "-o", str(tmp_path / "a.png"))
    assert done.returncode == 0
    assert "memory" not in done.stderr
    assert json.loads(lethe("memory", "status", "--json").stdout)["exists"] is False


def test_contradictions_about_the_memory_are_refused(lethe: Run, samples: Path, tmp_path: Path) -> None:
    photo, output = str(samples / "single_face.jpg"), str(tmp_path / "a.png")
    for arguments in (
        ("-s", "@Zoe", "--no-remember"),
        ("-s", photo, "--remember", "Zoe", "--no-remember"),
        ("-s", "@Zoe", "-s", photo),
        ("-s", photo, "--remember", "Zoe", "--no-cache"),
    ):
        done = lethe("swap", *arguments, photo, "-o", output)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr


def test_a_rule_that_forbids_remembering_is_exit_code_3(lethe: Run, samples: Path, tmp_path: Path) -> None:
    source, output = str(samples / "single_face.jpg"), str(tmp_path / "a.png")
    assert lethe("memory", "never", "--source", str(samples)).returncode == 0
    done = lethe("swap", "-s", source, "--remember", "Zoe", str(samples / "multi_face.jpg"), "-o", output)
    assert done.returncode == 3, done.stderr
    assert not Path(output).exists()


def test_somebody_enrolled_from_a_photo_can_be_fused_by_name(
    lethe: Run, samples: Path, tmp_path: Path
) -> None:
    source, group = str(samples / "single_face.jpg"), str(samples / "multi_face.jpg")
    assert lethe("memory", "enroll", "--name", "Zoe", source).returncode == 0
    done = lethe("swap", "-s", "@Zoe", group, "-o", str(tmp_path / "a.png"))
    assert done.returncode == 0, done.stderr
    assert lethe("swap", "-s", source, group, "-o", str(tmp_path / "b.png"), "--no-remember").returncode == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_consent_to_recognition_alone_is_none_to_fusion(lethe: Run, samples: Path, tmp_path: Path) -> None:
    enrolled = lethe(
        "memory", "enroll", "--name", "Zoe", "--scope", "recognition", str(samples / "single_face.jpg")
    )
    assert enrolled.returncode == 0, enrolled.stderr
    done = lethe("swap", "-s", "@Zoe", str(samples / "multi_face.jpg"), "-o", str(tmp_path / "a.png"))
    assert done.returncode == 2
    assert "no source was kept" in done.stderr
