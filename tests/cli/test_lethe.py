"""``lethe`` itself, and the commands that need no pictures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared import __version__
from tests.cli.conftest import Run, environment

HEAVY = {"cv2", "onnxruntime", "av", "PIL", "numpy", "lmdb", "cryptography"}


def test_the_version_is_printed(lethe: Run) -> None:
    done = lethe("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"lethe {__version__}\n", "")


def test_the_help_lists_the_commands_and_what_they_do(lethe: Run) -> None:
    done = lethe("--help")
    assert done.returncode == 0
    for command in ("swap", "memory", "demo", "doctor", "config", "models"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["swap", "demo", "doctor", "config show", "config path", "models info"])
def test_every_command_has_help_with_an_example(lethe: Run, command: str) -> None:
    done = lethe(*command.split(), "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert "lethe " in done.stdout.split("Example")[1]


def test_the_help_does_not_wait_for_heavy_packages(tmp_path: Path) -> None:
    script = "import sys, edge.cli.app; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(done.stdout.split())


def test_an_unknown_command_is_a_usage_error_with_the_nearest_name(lethe: Run) -> None:
    done = lethe("swp")
    assert done.returncode == 2
    assert "swap" in done.stderr


def test_completion_can_be_asked_for(lethe: Run) -> None:
    done = lethe(_LETHE_COMPLETE="complete_bash", COMP_WORDS="lethe do", COMP_CWORD="1")
    assert done.returncode == 0
    assert done.stdout.split() == ["doctor"]


def test_settings_come_with_their_origins(lethe: Run, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[fusion]\ntier = "fast"\n')
    done = lethe("config", "show", "--json", LETHE_CONFIG=str(file), LETHE_OUTPUT_QUALITY="70")
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert shown["fusion.tier"] == {"value": "fast", "origin": f"file {file}"}
    assert shown["output.quality"] == {"value": 70, "origin": "environment LETHE_OUTPUT_QUALITY"}
    assert shown["runtime.providers"] == {"value": ["CPUExecutionProvider"], "origin": "default"}


def test_settings_are_shown_one_a_line(lethe: Run) -> None:
    done = lethe("config", "show", LETHE_FUSION_TIER="balanced")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("fusion.tier")]
    assert line.split() == ["fusion.tier", '"balanced"', "environment", "LETHE_FUSION_TIER"]


def test_the_place_of_the_settings_file_is_told(lethe: Run, tmp_path: Path) -> None:
    assert lethe("config", "path").stdout.strip() == str(tmp_path / ".config" / "lethe" / "config.toml")
    assert lethe("config", "path", LETHE_CONFIG="other.toml").stdout == "other.toml\n"


def test_the_settings_file_in_its_place_is_read(lethe: Run, tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "lethe"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[cache]\nenabled = false\n")
    shown = json.loads(lethe("config", "show", "--json").stdout)
    assert shown["cache.enabled"] == {"value": False, "origin": f"file {folder / 'config.toml'}"}


def test_a_setting_that_will_not_do_is_one_line_and_exit_2(lethe: Run) -> None:
    done = lethe("config", "show", LETHE_FUSION_TEIR="fast")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "lethe: unknown environment variable LETHE_FUSION_TEIR; did you mean LETHE_FUSION_TIER?\n"
    )


def test_the_doctor_finds_this_machine_fit(lethe: Run) -> None:
    done = lethe("doctor", "--json")
    findings = json.loads(done.stdout)["findings"]
    assert done.returncode == 0
    assert {"versions", "onnxruntime", "providers", "models", "encoders", "config"} <= {
        finding["area"] for finding in findings
    }
    assert all(finding["advice"] for finding in findings if finding["level"] != "ok")


def test_the_doctor_says_what_to_do_about_bad_settings(lethe: Run) -> None:
    done = lethe("doctor", LETHE_FUSION_TEIR="fast")
    assert done.returncode == 1
    assert "did you mean LETHE_FUSION_TIER?" in done.stdout
    assert "lethe config path" in done.stdout


def test_the_doctor_tries_the_providers_that_the_settings_ask_for(lethe: Run) -> None:
    done = lethe("doctor", "--json", LETHE_RUNTIME_PROVIDERS="NoSuchProvider")
    problems = [f for f in json.loads(done.stdout)["findings"] if f["level"] == "problem"]
    assert done.returncode == 1
    assert [f["area"] for f in problems] == ["providers"]


def test_the_packaged_models_are_listed_and_verified(lethe: Run) -> None:
    listed = json.loads(lethe("models", "list", "--json").stdout)["models"]
    verified = json.loads(lethe("models", "verify", "--json").stdout)["models"]
    assert [card["name"] for card in listed] == [entry["name"] for entry in verified]
    assert all(entry["ok"] for entry in verified)


def test_a_model_card_is_printed(lethe: Run) -> None:
    done = lethe("models", "info", "yunet")
    assert done.returncode == 0
    assert "MIT" in done.stdout


def test_an_unknown_model_is_one_line(lethe: Run) -> None:
    done = lethe("models", "info", "yunett")
    assert done.returncode == 1
    assert done.stderr.startswith("lethe: no model is called 'yunett'; there are yunet")


def test_the_node_checks_its_machine(lethe_cloud: Run) -> None:
    assert lethe_cloud("--version").stdout == f"lethe-cloud {__version__}\n"
    assert "doctor" in lethe_cloud("--help").stdout
    done = lethe_cloud("doctor", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["ok"] is True
