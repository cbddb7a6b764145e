"""``lethe config``: what is set, and where it came from."""

import json
import os
from typing import Annotated, Any

import typer
from rich.table import Table

from shared.commandline import new_app, stdout_console

app = new_app("Shows the settings: defaults, file, LETHE_* variables.")


@app.command(
    epilog="[bold]Examples:[/bold]\n\nlethe config show\n\nLETHE_FUSION_TIER=fast lethe config show --json"
)
def show(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Print each setting, its value and where it came from."""
    from edge.settings import load

    effective = load(os.environ).effective()
    if as_json:
        print(json.dumps(effective, indent=2))
    else:
        stdout_console().print(_table(effective))


def _table(effective: dict[str, dict[str, Any]]) -> Table:
    table = Table("setting", "value", "origin", box=None, pad_edge=False)
    for key, entry in effective.items():
        style = "dim" if entry["origin"] == "default" else ""
        table.add_row(key, json.dumps(entry["value"], ensure_ascii=False), entry["origin"], style=style)
    return table


@app.command(epilog='[bold]Example:[/bold]\n\n"$EDITOR" "$(lethe config path)"')
def path() -> None:
    """Print where the settings file lies; it need not exist."""
    from edge.settings import settings_file

    print(settings_file(os.environ))
