"""Looks at this machine and says what stands in the way of a job, and what to do about it."""

import importlib
import importlib.util
import os
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from shared.checks import (
    Finding,
    available_memory_bytes,
    check_cores,
    check_disk,
    check_memory,
    check_models,
    check_onnxruntime,
    check_package,
    check_providers,
    check_versions,
    installed_distributions,
)
from shared.ort import CPU

_SOFTWARE_ENCODERS = {"H.264": "libx264", "H.265": "libx265", "VP9": "libvpx-vp9", "AV1": "libsvtav1"}
_HARDWARE_ENCODERS = ("h264_nvenc", "hevc_nvenc", "av1_nvenc")


def examine(*, wanted_providers: tuple[str, ...] = (CPU,), folder: Path | None = None) -> list[Finding]:
    """Look at everything but the settings, which only a command line reads.

    Args:
        wanted_providers: Execution providers the settings ask for.
        folder: Where outputs would go; the current folder if None.
    """
    return [
        check_versions(),
        check_package("numpy", "numpy", lambda: f"numpy {_module('numpy').__version__}"),
        check_opencv(installed_distributions("opencv-")),
        check_package("video", "av", _describe_pyav),
        check_package("stills", "PIL", _describe_pillow),
        check_onnxruntime(installed_distributions("onnxruntime")),
        *check_providers(wanted_providers),
        *check_models(),
        *check_encoders(),
        *check_cameras(),
        check_virtual_camera(),
        check_cores(),
        check_memory(available_memory_bytes()),
        check_disk("this folder", folder or Path.cwd()),
        check_disk("temporary files", Path(tempfile.gettempdir())),
    ]


def _module(name: str) -> Any:
    # By name: a doctor has to live through the absence of what it looks for.
    return importlib.import_module(name)


def check_opencv(installed: dict[str, str]) -> Finding:
    """OpenCV imports, and is there only once: its distributions overwrite each other's files.

    Args:
        installed: Version by distribution.
    """
    if len(installed) > 1:
        return Finding(
            "opencv",
            "note",
            f"{' and '.join(sorted(installed))} are installed together and overwrite each other",
            "keep one: opencv-python-headless on Linux, opencv-python elsewhere",
        )
    return check_package("opencv", "cv2", lambda: f"OpenCV {_module('cv2').__version__}")


def _describe_pyav() -> str:
    av = _module("av")
    libraries = ("libavcodec", "libavformat", "libswscale")
    versions = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in libraries)
    return f"PyAV {av.__version__} with {', '.join(versions)}"


def _describe_pillow() -> str:
    features = _module("PIL.features")
    formats = [name for name in ("webp", "avif") if features.check(name)]
    if importlib.util.find_spec("pillow_heif"):
        formats.append("heic")
    return f"Pillow {_module('PIL').__version__} with {', '.join(formats) or 'neither WebP nor AVIF'}"


def check_encoders() -> list[Finding]:
    """Which video encoders there are; hardware ones are started to know."""
    try:
        av = _module("av")
    except ImportError:
        return []  # reported with the packages
    there = [name for name, encoder in _SOFTWARE_ENCODERS.items() if _encoder_exists(av, encoder)]
    missing = [name for name in _SOFTWARE_ENCODERS if name not in there]
    hardware = [encoder for encoder in _HARDWARE_ENCODERS if _encoder_starts(av, encoder)]
    return [_software_finding(there, missing), _hardware_finding(hardware)]


def _software_finding(there: list[str], missing: list[str]) -> Finding:
    advice = "install the PyAV wheel from PyPI, which brings them: `pip install --force-reinstall av`"
    if not there:
        return Finding("encoders", "problem", "no video encoder at all", advice)
    if missing:
        return Finding("encoders", "note", f"{', '.join(there)}; not {', '.join(missing)}", advice)
    return Finding("encoders", "ok", ", ".join(there))


def _hardware_finding(there: list[str]) -> Finding:
    if there:
        return Finding("encoders", "ok", f"NVENC: {', '.join(there)}")
    return Finding(
        "encoders",
        "note",
        "NVENC does not start",
        "nothing without an NVIDIA card; with one, update its driver",
    )


def _encoder_exists(av: Any, encoder: str) -> bool:
    try:
        av.codec.Codec(encoder, "w")
    except ValueError:  # PyAV's UnknownCodecError is one
        return False
    return True


def _encoder_starts(av: Any, encoder: str) -> bool:
    """Hardware encoders are part of every build; only opening one tells whether the card is there."""
    try:
        context = av.CodecContext.create(encoder, "w")
        context.width, context.height, context.pix_fmt = 640, 480, "yuv420p"
        context.time_base = Fraction(1, 25)
        context.open()
    except (ValueError, OSError, RuntimeError):
        return False
    return True


def check_cameras(dev: Path = Path("/dev"), classes: Path = Path("/sys/class/video4linux")) -> list[Finding]:
    """Which cameras there are and whether this user may read them; none is opened."""
    nodes = [node for node in sorted(dev.glob("video*")) if not _is_virtual(node.name, classes)]
    if not nodes:
        return [Finding("cameras", "note", "no camera", "only needed for live video")]
    return [_check_camera(node, classes) for node in nodes]


def _check_camera(node: Path, classes: Path) -> Finding:
    try:
        name = f"{node} ({(classes / node.name / 'name').read_text().strip()})"
    except OSError:
        name = str(node)
    if not os.access(node, os.R_OK | os.W_OK):
        return Finding(
            "cameras",
            "note",
            f"{name} may not be read by this user",
            'add yourself to its group: `sudo usermod -aG video "$USER"`, then log in again',
        )
    return Finding("cameras", "ok", name)


def _is_virtual(node: str, classes: Path) -> bool:
    """Devices without hardware, such as v4l2loopback's, hang below ``/sys/devices/virtual``."""
    return "virtual" in (classes / node).resolve().parts


def check_virtual_camera(dev: Path = Path("/dev"), classes: Path = Path("/sys/class/video4linux")) -> Finding:
    """Whether there is a virtual camera that other programs can look at."""
    nodes = [str(node) for node in sorted(dev.glob("video*")) if _is_virtual(node.name, classes)]
    if nodes:
        return Finding("virtual camera", "ok", ", ".join(nodes))
    return Finding(
        "virtual camera",
        "note",
        "none",
        "only needed to feed other programs; on Linux: `sudo modprobe v4l2loopback`",
    )
