from pathlib import Path

import pytest

from shared import errors
from shared.errors import (
    ConfigError,
    FaceFusionError,
    InputError,
    InterruptedJobError,
    MediaError,
    ModelError,
    OutputError,
    PolicyError,
    ProviderError,
    SomeInputsFailedError,
    SourceError,
    UsageError,
    VaultError,
    VaultIntegrityError,
    VaultKeyError,
    VaultLockedError,
    VaultMissingError,
)


def all_errors() -> list[type[FaceFusionError]]:
    return [
        item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, FaceFusionError)
    ]


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (FaceFusionError, 1),
        (UsageError, 2),
        (ConfigError, 2),
        (SourceError, 2),
        (PolicyError, 3),
        (MediaError, 1),
        (InputError, 1),
        (OutputError, 1),
        (ModelError, 1),
        (ProviderError, 1),
        (VaultError, 1),
        (VaultIntegrityError, 1),
        (VaultKeyError, 2),
        (VaultLockedError, 1),
        (VaultMissingError, 1),
        (InterruptedJobError, 4),
        (SomeInputsFailedError, 5),
    ],
)
def test_every_error_has_its_exit_code(kind: type[FaceFusionError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_every_error_is_in_the_tree_drawn_on_top_of_the_module() -> None:
    assert len(all_errors()) == 17
    for kind in all_errors():
        assert f"{kind.__name__} " in (errors.__doc__ or ""), kind.__name__


def test_every_name_ends_in_error() -> None:
    assert all(kind.__name__.endswith("Error") for kind in all_errors())


def test_a_media_error_names_its_file_and_keeps_both_parts() -> None:
    error = InputError("clip.mp4", "is empty")
    assert str(error) == "clip.mp4: is empty"
    assert (error.path, error.reason) == (Path("clip.mp4"), "is empty")


def test_a_batch_error_tells_how_many() -> None:
    error = SomeInputsFailedError(failed=2, total=7)
    assert str(error) == "2 of 7 inputs failed; the others are done"
    assert (error.failed, error.total) == (2, 7)


def test_a_provider_error_keeps_what_there_is() -> None:
    error = ProviderError("no", provider="CUDAExecutionProvider", available=("CPUExecutionProvider",))
    assert (error.provider, error.available) == ("CUDAExecutionProvider", ("CPUExecutionProvider",))


def test_a_source_error_need_not_come_from_a_file() -> None:
    assert SourceError("no face").path is None
    assert SourceError("no face", path=Path("a.jpg")).path == Path("a.jpg")
