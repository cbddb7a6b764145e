"""Makes ``docs/models.md`` from the cards of the packaged models.

python scripts/make_models_table.py
"""

from pathlib import Path

from shared.models import ModelCard, packaged_models

PAGE = Path(__file__).resolve().parent.parent / "docs" / "models.md"

_HEAD = """# Models

Made by `python scripts/make_models_table.py` from `shared/weights/models.toml`; a test keeps the two in step.

These weights are part of the package, so Lethe downloads nothing. `lethe models list`, `lethe models info
NAME` and `lethe models verify` show the same facts for the installed copy; every load compares the size.
The licence notices are in [shared/weights/NOTICE.md](../shared/weights/NOTICE.md).

| name | task | size | licence | commercial use by licence |
| --- | --- | --- | --- | --- |
"""

_TAIL = """
## The mesh

`shared/weights/face_mesh_canonical.npz` is no network: points, triangles and texture coordinates of
MediaPipe's canonical face (Apache-2.0), read once in a process. See [mesh_engine.md](mesh_engine.md).

## What is not here

No generator network is packaged: the fusion itself is geometry, see [mesh_engine.md](mesh_engine.md).
The recognisers here tell people apart; they cannot feed a generator that was trained on another recogniser.
"""


def models_page() -> str:
    """The whole page."""
    cards = list(packaged_models().values())
    return _HEAD + "".join(map(_row, cards)) + "".join(map(_card, cards)) + _TAIL


def _row(card: ModelCard) -> str:
    size = f"{card.size_bytes / 1e6:.1f} MB"
    return (
        f"| `{card.name}` | {card.task} | {size} | {card.licence} | {'yes' if card.commercial else 'no'} |\n"
    )


def _card(card: ModelCard) -> str:
    lines = [
        f"\n## {card.name}\n",
        f"- Source: {card.source}",
        f"- Licence: {card.licence}",
        f"- File: `shared/weights/{card.file}`, {card.size_bytes} bytes",
        f"- SHA-256: `{card.sha256}`",
        f"- Contract: {card.contract}",
    ]
    if card.caution:
        lines.append(f"- Caution: {card.caution}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(models_page(), encoding="utf-8")
    print(PAGE.name)
