"""Runs the command lines as a user would: in a process of their own, in an empty folder, with no settings."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def environment(home: Path, **extra: str) -> dict[str, str]:
    """An environment without settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    own = {"HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    own |= {"XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".data")}
    return kept | own | {"NO_COLOR": "1", "COLUMNS": "100", "PYTHONUTF8": "1"} | extra


def _runner(package: str, folder: Path) -> Run:
    def run(*arguments: object, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", package, *map(os.fspath, arguments)],  # type: ignore[call-overload]
            cwd=folder,
            env=environment(folder, **extra),
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def lethe(tmp_path: Path) -> Run:
    """Runs ``lethe`` in ``tmp_path``; keyword arguments are environment variables."""
    return _runner("edge", tmp_path)


@pytest.fixture
def lethe_cloud(tmp_path: Path) -> Run:
    """Runs ``lethe-cloud`` in ``tmp_path``."""
    return _runner("cloud", tmp_path)
