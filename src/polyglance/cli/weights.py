"""``polyglance weights``: pretrained weights by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import console

app = typer.Typer(no_args_is_help=True, help="Pretrained weights by name.")


@app.command("list")
def weights_list() -> None:
    """List the known weights, and whether they are installed."""
    from rich.table import Table

    from polyglance.weights import available

    table = Table("name", "description", "state", "MB", "licence", box=None, pad_edge=False)
    for status in available():
        entry = status.entry
        size = f"{entry.size / 1e6:.0f}"
        table.add_row(entry.name, entry.description, status.state, size, entry.licence)
    console().print(table)


@app.command("get")
def weights_get(name: Annotated[str, typer.Argument(help="A known name.")]) -> None:
    """Download, verify and convert weights, and print their folder."""
    from polyglance.weights import folder

    print(folder(name))


@app.command("split")
def weights_split(
    model: Annotated[
        str | None, typer.Argument(help="Model name or folder; default: the included model.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("towers"),
) -> None:
    """Split a model into text encoder, image backbone and projection heads."""
    from polyglance.export.split_model import split_model

    for folder in filter(None, split_model(model, out)):
        print(folder)
