"""Checks of a machine that both sides share: Python, packages, ONNX Runtime, models, memory and disk.

A check looks and reports; it changes nothing and never raises for what it finds.
"""

import importlib
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

from shared import __version__
from shared.errors import FaceFusionError, ModelError
from shared.models import ModelCard, packaged_models
from shared.ort import CPU, RuntimeConfig, SessionPool, available_providers, onnxruntime_module

Level: TypeAlias = Literal["ok", "note", "problem"]

_GIB = 1 << 30
# Comes with every build, forwards to a web service, and never runs a local network.
_REMOTE_PROVIDER = "AzureExecutionProvider"
# Fusing 1080p video stays below this.
_WORKING_MEMORY_BYTES = 700 << 20
# A minute of 1080p takes about 100 MiB; below the lower one not even a photo job is safe.
_ROOMY_DISK_BYTES = _GIB
_LEAST_DISK_BYTES = 50 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: What it belongs to, for example ``models``.
        level: ``ok``; ``note`` for what is worth knowing; ``problem`` for what stops the main job.
        text: What was found, in one line.
        advice: What to do about it; None where there is nothing to do.
    """

    area: str
    level: Level
    text: str
    advice: str | None = None


def check_versions() -> Finding:
    """Lethe, Python and the system."""
    system = f"{platform.system()} {platform.machine()}"
    return Finding("versions", "ok", f"lethe {__version__}, Python {platform.python_version()}, {system}")


def check_package(area: str, module: str, describe: Callable[[], str]) -> Finding:
    """Whether a package imports, and what ``describe`` says of it then."""
    try:
        importlib.import_module(module)
        return Finding(area, "ok", describe())
    except ImportError as err:
        return Finding(
            area,
            "problem",
            f"Python package {module} does not import: {_first_line(err)}",
            "reinstall lethe: `pip install --force-reinstall 'lethe[cpu]'`",
        )


def installed_distributions(prefix: str) -> dict[str, str]:
    """Version of every installed distribution whose name begins with ``prefix``."""
    names = ((d.metadata["Name"] or "", d.version) for d in metadata.distributions())
    return {name.lower(): version for name, version in names if name.lower().startswith(prefix)}


def check_onnxruntime(installed: Mapping[str, str]) -> Finding:
    """ONNX Runtime is there, and only once: its distributions overwrite each other's files.

    Args:
        installed: Version by distribution, for example ``{"onnxruntime-gpu": "1.20"}``.
    """
    listed = " and ".join(f"{name} {version}" for name, version in sorted(installed.items()))
    if len(installed) > 1:
        return Finding(
            "onnxruntime",
            "problem",
            f"{listed} are installed together and overwrite each other",
            f"`pip uninstall {' '.join(sorted(installed))}`, then "
            "`pip install 'lethe[cpu]'` or `'lethe[gpu]'`",
        )
    try:
        module = onnxruntime_module()
    except ModelError:
        return Finding(
            "onnxruntime",
            "problem",
            "neither onnxruntime nor onnxruntime-gpu can be imported",
            "`pip install 'lethe[cpu]'`, or `'lethe[gpu]'` for an NVIDIA card; never both",
        )
    return Finding("onnxruntime", "ok", listed or f"onnxruntime {module.__version__} (not installed by pip)")


def check_providers(wanted: tuple[str, ...]) -> list[Finding]:
    """Start the packaged detector on every execution provider.

    Args:
        wanted: The providers the settings ask for; one of these that does not start stops the main job.
    """
    try:
        available = available_providers()
    except ModelError:
        return []  # check_onnxruntime has said it
    local = [name for name in available if name != _REMOTE_PROVIDER]
    return [_check_provider(name, name in wanted) for name in dict.fromkeys([*local, *wanted])]


def _check_provider(name: str, is_wanted: bool) -> Finding:
    try:
        SessionPool(RuntimeConfig(providers=(name,))).get("yunet")
    except FaceFusionError as err:
        stops = is_wanted or name == CPU
        advice = (
            "ask for another one in `runtime.providers` (see `lethe config path`)"
            if stops
            else "nothing, unless you want to use it: then install its driver and libraries"
        )
        return Finding("providers", "problem" if stops else "note", _first_line(err), advice)
    return Finding("providers", "ok", f"{name} runs the packaged detector")


def check_models(cards: Iterable[ModelCard] | None = None) -> list[Finding]:
    """Compare the packaged models with their SHA-256; one finding if all are well."""
    cards = list(packaged_models().values() if cards is None else cards)
    damaged = []
    for card in cards:
        try:
            card.verify()
        except ModelError as err:
            damaged.append(
                Finding("models", "problem", str(err).split(":")[0], "reinstall lethe: its files are damaged")
            )
    return damaged or [Finding("models", "ok", f"{len(cards)} packaged models, every SHA-256 matches")]


def check_cores() -> Finding:
    """How many cores this process may use."""
    count = usable_cores()
    cores = "1 core" if count == 1 else f"{count} cores"
    if count == 1:
        return Finding("processor", "note", f"{cores} usable", "video is slow: stages cannot overlap")
    return Finding("processor", "ok", f"{cores} usable")


def usable_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_memory(available_bytes: int | None) -> Finding:
    """Whether the working memory suffices.

    Args:
        available_bytes: From ``available_memory_bytes``.
    """
    if available_bytes is None:
        return Finding("memory", "note", "this system does not say how much memory is free")
    text = f"{_size(available_bytes)} free"
    if available_bytes < _WORKING_MEMORY_BYTES:
        return Finding("memory", "note", text, "1080p video takes up to 700 MiB: close other programs")
    return Finding("memory", "ok", text)


def available_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory a new program can take, within this container's limit; None where the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit = int((cgroup / "memory.max").read_text())
        # What the page cache holds counts as used there, but gives way.
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        used = int((cgroup / "memory.current").read_text()) - int(stat["inactive_file"])
    except (OSError, KeyError, ValueError):  # no container, or no limit ("max")
        return free
    return min(free, max(limit - used, 0))


def check_disk(label: str, folder: Path) -> Finding:
    """Whether a folder can be written to and has room."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as err:
        return Finding("disk", "note", f"{label} {folder}: {err.strerror}", "write to another folder")
    text = f"{label} {folder}: {_size(free)} free"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("disk", "note", f"{text}, but not writable", "write to another folder")
    if free < _LEAST_DISK_BYTES:
        return Finding("disk", "problem", text, "make room, or write to another disk")
    if free < _ROOMY_DISK_BYTES:
        return Finding("disk", "note", text, "make room before fusing long videos")
    return Finding("disk", "ok", text)


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"


def _first_line(err: BaseException) -> str:
    return (str(err).splitlines() or [type(err).__name__])[0]
