"""The application ``lethe`` and its commands."""

from typing import Annotated

import typer

from edge.cli import config, demo, doctor, memory, models, swap
from shared import __version__
from shared.commandline import new_app

app = new_app(
    "Fuses a consented face into photos and videos, on this machine.\n\n"
    "Begin with [bold]lethe demo[/bold]; [bold]lethe doctor[/bold] says what is missing."
)
app.command("swap", help=swap.HELP, no_args_is_help=True, epilog=swap.EXAMPLES)(swap.swap)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(memory.app, name="memory")
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"lethe {__version__}")
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
    """Options of ``lethe`` itself."""
