"""The models that ship inside the package: where each is from, under which terms, and its contract."""

import functools
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ModelError

WEIGHTS_DIR = Path(__file__).parent / "weights"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What there is to know about a model.

    Attributes:
        name: How code and users call it.
        task: The slot it fills, for example ``detector``.
        file: File name below ``weights/``.
        size_bytes: Exact size.
        sha256: Of the file, hex.
        source: Package or project the weights come from, with its version.
        licence: SPDX identifier of the weights' licence.
        commercial: Whether the licence lets a business use it.
        contract: Inputs and outputs in one line.
        caution: What a careful reader should know; may be empty.
    """

    name: str
    task: str
    file: str
    size_bytes: int
    sha256: str
    source: str
    licence: str
    commercial: bool
    contract: str
    caution: str = ""

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return WEIGHTS_DIR / self.file

    def verify(self) -> None:
        """Read the whole file and compare size and hash.

        Raises:
            ModelError: If the file is missing or differs.
        """
        data = _read(self)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise ModelError(f"model {self.name} is damaged (wrong SHA-256): reinstall lethe")


def _read(card: ModelCard) -> bytes:
    try:
        data = card.path.read_bytes()
    except OSError as err:
        raise ModelError(f"model {card.name} is missing ({card.file}): reinstall lethe") from err
    if len(data) != card.size_bytes:
        raise ModelError(
            f"model {card.name} is damaged ({len(data)} bytes, not {card.size_bytes}): reinstall lethe"
        )
    return data


@functools.cache
def packaged_models() -> dict[str, ModelCard]:
    """Cards of the packaged models by name, in the order of the registry file."""
    table = tomllib.loads((WEIGHTS_DIR / "models.toml").read_text(encoding="utf-8"))
    return {name: ModelCard(name=name, **fields) for name, fields in table.items()}


def model_card(name: str) -> ModelCard:
    """The card of a packaged model.

    Raises:
        ModelError: If there is no such model.
    """
    try:
        return packaged_models()[name]
    except KeyError:
        known = ", ".join(packaged_models())
        raise ModelError(f"no model is called {name!r}; there are {known}") from None


def weights_path(name: str) -> Path:
    """Path of a packaged model whose size is right.

    Raises:
        ModelError: If it is unknown, missing or cut short.
    """
    card = model_card(name)
    try:
        size = card.path.stat().st_size
    except OSError as err:
        raise ModelError(f"model {name} is missing ({card.file}): reinstall lethe") from err
    if size != card.size_bytes:
        raise ModelError(f"model {name} is damaged ({size} bytes, not {card.size_bytes}): reinstall lethe")
    return card.path
