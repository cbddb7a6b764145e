"""Who imports whom: the arrows and homes that the design promises, read from the sources themselves."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("edge", "cloud", "shared")

# Everything else does without: it stays quick to import and easy to test.
HOMES = {
    "onnxruntime": ("shared/ort.py",),
    "av": ("edge/video/",),
    "PIL": ("edge/stills.py", "edge/animation", "edge/picture_"),
    "typer": ("edge/cli/", "cloud/__main__.py", "shared/commandline.py"),
    "rich": ("edge/cli/", "cloud/__main__.py", "shared/commandline.py"),
    "pydantic": ("shared/config.py",),
    "platformdirs": ("edge/settings.py", "edge/memory/settings.py"),
    "lmdb": ("edge/vault/",),
    "cryptography": ("edge/vault/",),
    "pyrage": ("edge/memory/bundle.py",),
    "cv2": (
        "shared/mesh/",
        "edge/demo.py",
        "edge/detector.py",
        "edge/embedder.py",
        "edge/landmarks.py",
        "edge/picture_",
        "edge/source.py",
        "edge/stills.py",
    ),
}

# The privacy table of the README says that there is no network access at all.
NETWORK = ("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "xmlrpc", "requests", "httpx", "grpc")


def _modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((REPOSITORY / package).rglob("*.py"))]


def _imported(path: Path) -> set[str]:
    """Full names of everything a module imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _importers(top: str) -> list[str]:
    """Our modules that import a package or anything below it."""
    return [
        str(path.relative_to(REPOSITORY).as_posix())
        for path in _modules()
        if any(name.split(".")[0] == top for name in _imported(path))
    ]


def _inside(modules: list[str], package: str) -> list[str]:
    return [module for module in modules if module.startswith(f"{package}/")]


def test_there_is_something_to_check() -> None:
    assert len(_modules()) > 40
    assert "shared/ort.py" in _importers("onnxruntime")


@pytest.mark.parametrize(("package", "stranger"), [("edge", "cloud"), ("cloud", "edge")])
def test_edge_and_cloud_never_import_each_other(package: str, stranger: str) -> None:
    assert _inside(_importers(stranger), package) == []


@pytest.mark.parametrize("above", ["edge", "cloud"])
def test_shared_never_looks_up(above: str) -> None:
    assert _inside(_importers(above), "shared") == []


@pytest.mark.parametrize("package", sorted(HOMES))
def test_heavy_packages_stay_in_their_homes(package: str) -> None:
    strangers = [module for module in _importers(package) if not module.startswith(HOMES[package])]

    assert strangers == []


def test_only_the_policy_can_allow_a_write_to_the_vault() -> None:
    proof = "edge.vault.decisions.POLICY_PROOF"
    holders = [str(p.relative_to(REPOSITORY).as_posix()) for p in _modules() if proof in _imported(p)]

    assert [holder for holder in holders if holder != "edge/memory/policy.py"] == []


@pytest.mark.parametrize("package", NETWORK)
def test_nothing_can_open_a_network_connection(package: str) -> None:
    assert _importers(package) == []


def test_only_the_command_line_imports_the_command_line() -> None:
    users = [
        str(path.relative_to(REPOSITORY).as_posix())
        for path in _modules()
        if any(name == "edge.cli" or name.startswith("edge.cli.") for name in _imported(path))
    ]

    assert [user for user in users if not user.startswith(("edge/cli/", "edge/__main__.py"))] == []


@pytest.mark.parametrize("module", ["tracker", "identity", "selection", "people", "pipeline", "fuser"])
def test_modules_that_decide_do_no_pictures_and_no_files(module: str) -> None:
    tops = {name.split(".")[0] for name in _imported(REPOSITORY / "edge" / f"{module}.py")}

    assert tops.isdisjoint({"cv2", "av", "PIL", "onnxruntime", "pathlib", "os", "io"})
