"""``lethe demo``: the whole job on the packaged clip and portrait."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from shared.commandline import stdout_console

if TYPE_CHECKING:
    from edge.demo import DemoResult

EXAMPLES = "[bold]Examples:[/bold]\n\nlethe demo\n\nlethe demo --output /tmp/demo"


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for what is made.")
    ] = Path("lethe-demo"),
) -> None:
    """Fuse the packaged portrait into the packaged clip: a video, a side-by-side picture and a report."""
    from edge.cli.rendering import make_renderer
    from edge.demo import run_demo

    with make_renderer(as_json=False, quiet=False) as renderer:
        result = run_demo(output, renderer)
    stdout_console().print(_table(result))


def _table(result: "DemoResult") -> Table:
    """Paths and numbers of the result, each with the name of its field."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        table.add_row(field.name.replace("_", " "), Text(text))
    return table
