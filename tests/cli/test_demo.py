from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.slow
def test_the_demo_makes_what_it_says(lethe: Run, tmp_path: Path) -> None:
    done = lethe("demo", "--output", "demo folder")
    assert done.returncode == 0, done.stderr
    made = {path.suffix for path in (tmp_path / "demo folder").iterdir()}
    assert {".mp4", ".json"} <= made
    assert "demo folder" in done.stdout
