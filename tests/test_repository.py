"""What the files around the code claim: made tables, hashes, commands, and no trace of one machine."""

import hashlib
import re
import runpy
import subprocess
from pathlib import Path

import pytest
import typer.main

from edge.cli.app import app
from shared.models import WEIGHTS_DIR, ModelCard, packaged_models

REPOSITORY = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh.md")


def _tracked() -> list[Path]:
    """Files of the repository; skips where it is no checkout."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def _texts() -> dict[str, str]:
    texts = {}
    for path in _tracked():
        try:
            texts[str(path.relative_to(REPOSITORY))] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return texts


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_models_page_is_what_its_script_makes() -> None:
    made = runpy.run_path(str(REPOSITORY / "scripts" / "make_models_table.py"))["models_page"]()

    assert (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8") == made


@pytest.mark.parametrize("card", packaged_models().values(), ids=lambda card: card.name)
def test_a_packaged_model_is_the_one_of_its_card(card: ModelCard) -> None:
    assert card.path.stat().st_size == card.size_bytes
    assert _sha256(card.path) == card.sha256


def test_no_weights_are_packaged_without_a_card_and_a_notice() -> None:
    files = {path.name for path in WEIGHTS_DIR.iterdir() if path.suffix in (".onnx", ".npz")}
    cards = {card.file for card in packaged_models().values()}
    notice = (WEIGHTS_DIR / "NOTICE.md").read_text(encoding="utf-8")

    assert files - cards == {"face_mesh_canonical.npz"}
    assert [name for name in sorted(files) if f"`{name}`" not in notice] == []


def test_the_samples_are_those_whose_source_is_noted(samples: Path) -> None:
    page = (samples / "SOURCES.md").read_text(encoding="utf-8")
    noted = dict(re.findall(r"^\| (\S+) \|.* ([0-9a-f]{64}) \|$", page, re.MULTILINE))

    assert noted == {path.name: _sha256(path) for path in samples.iterdir() if path.suffix != ".md"}


# In pieces, so that this file does not find itself.
@pytest.mark.parametrize(
    "pattern",
    [
        "/ho" + r"me/\w",
        "/ro" + r"ot/\w",
        "/wo" + "rk/",
        "index" + "-url",
        "python" + r"hosted\.org",
        "registry" + r"\.npm",
        r"pypi" + r"\.org/simple",
    ],
)
def test_no_file_names_a_machines_paths_or_package_hosts(pattern: str) -> None:
    found = [name for name, text in _texts().items() if re.search(pattern, text)]

    assert found == []


@pytest.mark.parametrize("name", READMES)
def test_commands_of_the_readme_exist(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    root = typer.main.get_command(app)
    commands = dict(getattr(root, "commands", {}))
    named = {
        (command, sub or None)
        for command, sub in re.findall(
            r"^(?:\$ )?lethe ([a-z]+)(?: (list|verify|info|show|path)\b)?", text, re.M
        )
    }

    assert named
    for command, sub in named:
        assert command in commands
        assert sub is None or sub in commands[command].commands


@pytest.mark.parametrize("name", READMES)
def test_options_of_the_readme_exist(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    commands = getattr(typer.main.get_command(app), "commands", {})
    known = {option for command in commands.values() for param in command.params for option in param.opts}
    known |= {"--help", "--version", "--install-completion"}
    table = re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE)

    assert table
    assert [option for option in table if option not in known] == []
    documented = {param.opts[0] for param in commands["swap"].params if param.param_type_name == "option"}
    assert documented - set(table) - {"--help"} == set()


def _pages() -> list[Path]:
    return [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]

    assert [link for link in local if not (page.parent / link).exists()] == []
