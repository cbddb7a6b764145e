"""``lethe models``: the models that ship with Lethe."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from shared.commandline import new_app, stdout_console
from shared.errors import ModelError
from shared.models import ModelCard, model_card, packaged_models

app = new_app("The models that ship with Lethe: list, verify, read the card.")

_Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.command("list")
def list_models(as_json: _Json = False) -> None:
    """List the models with task, size and licence."""
    cards = list(packaged_models().values())
    if as_json:
        print(json.dumps({"models": [dataclasses.asdict(card) for card in cards]}, indent=2))
        return
    table = Table("name", "task", "size", "licence", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for card in cards:
        table.add_row(card.name, card.task, _size(card), card.licence)
    stdout_console().print(table)


@app.command()
def verify(as_json: _Json = False) -> None:
    """Compare every model with its SHA-256; leave with 1 if one differs."""
    errors = {name: _error_of(card) for name, card in packaged_models().items()}
    if as_json:
        entries = [{"name": name, "ok": error is None, "error": error} for name, error in errors.items()]
        print(json.dumps({"models": entries}, indent=2))
    else:
        for name, error in errors.items():
            print(error or f"{name}: ok")
    if any(errors.values()):
        raise typer.Exit(1)


@app.command(epilog="[bold]Example:[/bold]\n\nlethe models info yunet")
def info(
    name: Annotated[
        str, typer.Argument(help="A name from [bold]lethe models list[/bold].", show_default=False)
    ],
    as_json: _Json = False,
) -> None:
    """Print a model's card: where it is from, its licence, its inputs and outputs."""
    card = model_card(name)
    if as_json:
        print(json.dumps(dataclasses.asdict(card), indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for field in dataclasses.fields(card):
        value = getattr(card, field.name)
        if value != "":
            table.add_row(field.name, escape(str(value)))
    stdout_console().print(table)


def _error_of(card: ModelCard) -> str | None:
    try:
        card.verify()
    except ModelError as err:
        return str(err)
    return None


def _size(card: ModelCard) -> str:
    return f"{card.size_bytes / 1e6:.1f} MB"
