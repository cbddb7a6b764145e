import os
from pathlib import Path

import pytest

from edge.doctor import check_cameras, check_encoders, check_opencv, check_virtual_camera, examine
from shared.checks import Finding


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev"


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    return tmp_path / "class"


def add_device(dev: Path, classes: Path, node: str, name: str, *, virtual: bool = False) -> None:
    """A device node, and its entry in sysfs: a link to where it hangs in the tree of devices."""
    (dev / node).touch()
    place = dev.parent / "devices" / ("virtual" if virtual else "pci0000") / node
    place.mkdir(parents=True)
    (place / "name").write_text(f"{name}\n")
    (classes / node).symlink_to(place)


def test_no_camera_is_only_a_note(dev: Path, classes: Path) -> None:
    assert [f.level for f in check_cameras(dev, classes)] == ["note"]
    assert check_virtual_camera(dev, classes).level == "note"


def test_a_camera_is_called_by_its_name(dev: Path, classes: Path) -> None:
    add_device(dev, classes, "video0", "HD Webcam")
    assert check_cameras(dev, classes) == [Finding("cameras", "ok", f"{dev / 'video0'} (HD Webcam)")]


def test_a_camera_this_user_may_not_read_comes_with_what_to_do(
    dev: Path, classes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_device(dev, classes, "video0", "HD Webcam")
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = check_cameras(dev, classes)
    assert finding.level == "note"
    assert finding.advice is not None
    assert "usermod -aG video" in finding.advice


def test_a_virtual_camera_is_not_counted_among_the_cameras(dev: Path, classes: Path) -> None:
    add_device(dev, classes, "video0", "HD Webcam")
    add_device(dev, classes, "video9", "Dummy", virtual=True)
    assert [f.text for f in check_cameras(dev, classes)] == [f"{dev / 'video0'} (HD Webcam)"]
    assert check_virtual_camera(dev, classes) == Finding("virtual camera", "ok", str(dev / "video9"))


def test_the_encoders_of_the_installed_media_library_are_listed() -> None:
    software, hardware = check_encoders()
    assert "H.264" in software.text
    assert hardware.text.startswith("NVENC")


def test_two_opencvs_are_noted() -> None:
    finding = check_opencv({"opencv-python": "4.10", "opencv-python-headless": "4.10"})
    assert finding.level == "note"
    assert check_opencv({"opencv-python-headless": "4.10"}).level == "ok"


def test_this_machine_can_do_the_main_job(tmp_path: Path) -> None:
    findings = examine(folder=tmp_path)
    assert not [f for f in findings if f.level == "problem" and f.area != "disk"]
    assert all(f.advice for f in findings if f.level != "ok")
    assert all("\n" not in f.text for f in findings)
