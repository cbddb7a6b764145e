"""The command line ``lethe-cloud``; also ``python -m cloud``."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from shared import __version__
from shared.commandline import new_app, run_app, tell_findings

app = new_app("The node that generates faces for many edges. This version checks the machine it will run on.")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lethe-cloud {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and leave.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of ``lethe-cloud`` itself."""


@app.command(epilog="[bold]Examples:[/bold]\n\nlethe-cloud doctor\n\nlethe-cloud doctor --json")
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check this machine and say what to do about each finding.

    Leaves with 1 if a node could not run here.
    """
    # Here and not on top: nobody waits for numpy to read the help.
    from shared.checks import (
        available_memory_bytes,
        check_cores,
        check_disk,
        check_memory,
        check_models,
        check_onnxruntime,
        check_providers,
        check_versions,
        installed_distributions,
    )
    from shared.ort import CPU

    findings = [
        check_versions(),
        check_onnxruntime(installed_distributions("onnxruntime")),
        *check_providers((CPU,)),
        *check_models(),
        check_cores(),
        check_memory(available_memory_bytes()),
        check_disk("temporary files", Path(tempfile.gettempdir())),
    ]
    tell_findings(findings, as_json=as_json)


def main() -> NoReturn:
    """Run ``lethe-cloud`` and exit."""
    sys.exit(run_app(app, "lethe-cloud"))


if __name__ == "__main__":
    main()
