"""``polyglance weights``: pretrained weights by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import console

app = typer.Typer(no_args_is_help=True, help="Pretrained weights by name.")


@app.command("list")
def weights_list() -> None:
    """List the weights that are known by name, and whether they are here."""
    from rich.table import Table

    from polyglance.weights import available

    table = Table("name", "what it is", "state", "MB", "licence", box=None, pad_edge=False)
    for status in available():
        entry = status.entry
        size = f"{entry.size / 1e6:.0f}"
        table.add_row(entry.name, entry.description, status.state, size, entry.licence)
    console().print(table)


@app.command("get")
def weights_get(name: Annotated[str, typer.Argument(help="A known name.")]) -> None:
    """Fetch weights, check and convert them once, and print their folder."""
    from polyglance.weights import folder

    print(folder(name))


@app.command("unpack")
def weights_unpack(
    model: Annotated[
        str | None, typer.Argument(help="A model by name or folder; the default one without it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write into.")] = Path("towers"),
) -> None:
    """Take a model apart: an encoder of sentences, a backbone, and where they meet."""
    from polyglance.export.split_model import unpack

    for folder in filter(None, unpack(model, out)):
        print(folder)
