"""Fixtures for all tests: packaged media, the optional folder of shared media, loaded networks."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "edge" / "samples"


@pytest.fixture(scope="session")
def samples() -> Path:
    """Folder of the packaged photos and the packaged clip."""
    return SAMPLES


@pytest.fixture(scope="session")
def shared_media() -> Path:
    """Folder of the larger media collection, which lies beside the repository where it exists."""
    folder = REPOSITORY.parent / "shared" / "media"
    if not folder.is_dir():
        pytest.skip("the larger media collection is not on this machine (../shared/media)")
    return folder
