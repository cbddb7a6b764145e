import dataclasses
from pathlib import Path

import pytest

from shared import checks
from shared.checks import (
    Finding,
    available_memory_bytes,
    check_disk,
    check_memory,
    check_models,
    check_onnxruntime,
    check_package,
    check_providers,
)
from shared.models import model_card


def test_one_onnxruntime_is_well() -> None:
    assert check_onnxruntime({"onnxruntime": "1.20"}) == Finding("onnxruntime", "ok", "onnxruntime 1.20")


def test_two_onnxruntimes_are_a_problem_that_says_which_to_remove() -> None:
    finding = check_onnxruntime({"onnxruntime": "1.20", "onnxruntime-gpu": "1.21"})
    assert finding.level == "problem"
    assert finding.advice is not None
    assert finding.advice.startswith("`pip uninstall onnxruntime onnxruntime-gpu`")


def test_an_onnxruntime_that_pip_did_not_install_is_well() -> None:
    assert "not installed by pip" in check_onnxruntime({}).text


def test_a_package_that_is_not_there_is_a_problem() -> None:
    finding = check_package("video", "no_such_package_at_all", lambda: "never asked")
    assert finding.level == "problem"
    assert "no_such_package_at_all" in finding.text


def test_the_processor_runs_the_packaged_detector() -> None:
    (finding,) = check_providers(("CPUExecutionProvider",))
    assert finding.level == "ok"


def test_a_provider_that_the_settings_ask_for_and_is_not_there_is_a_problem() -> None:
    finding = check_providers(("NoSuchProvider",))[-1]
    assert finding.level == "problem"
    assert "NoSuchProvider is not in this ONNX Runtime" in finding.text


def test_the_packaged_models_are_whole() -> None:
    (finding,) = check_models()
    assert finding.level == "ok"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sha256": "0" * 64}, "model yunet is damaged"),
        ({"size_bytes": 1}, "model yunet is damaged"),
        ({"file": "none.onnx"}, "model yunet is missing"),
    ],
)
def test_a_damaged_model_is_a_problem(changes: dict[str, object], text: str) -> None:
    good, bad = model_card("selfie_seg"), dataclasses.replace(model_card("yunet"), **changes)  # type: ignore[arg-type]
    (finding,) = check_models([good, bad])
    assert finding.level == "problem"
    assert text in finding.text


@pytest.mark.parametrize(
    ("free", "level"), [(None, "note"), (600 << 20, "note"), (700 << 20, "ok"), (8 << 30, "ok")]
)
def test_little_memory_is_noted(free: int | None, level: str) -> None:
    assert check_memory(free).level == level


def test_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    assert available_memory_bytes(meminfo, tmp_path) == 8000000 * 1024
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 400000\ninactive_file 300000\n")
    assert available_memory_bytes(meminfo, tmp_path) == 600000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory_bytes(meminfo, tmp_path) == 8000000 * 1024


def test_a_system_that_does_not_tell_its_memory_is_noted(tmp_path: Path) -> None:
    assert available_memory_bytes(tmp_path / "none", tmp_path) is None


def test_a_folder_with_room_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: _Usage(5 << 30))
    assert check_disk("this folder", tmp_path) == Finding(
        "disk", "ok", f"this folder {tmp_path}: 5.0 GiB free"
    )


@pytest.mark.parametrize(("free", "level"), [(10 << 20, "problem"), (500 << 20, "note")])
def test_a_nearly_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: _Usage(free))
    assert check_disk("this folder", tmp_path).level == level


def test_a_folder_that_is_not_there_is_noted(tmp_path: Path) -> None:
    assert "No such file" in check_disk("this folder", tmp_path / "none").text


@dataclasses.dataclass
class _Usage:
    free: int
