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


@app.command("tiny")
def weights_tiny(
    manifests: Annotated[list[Path], typer.Argument(help="Manifests whose texts to know.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    layers: Annotated[int, typer.Option(help="Layers of the transformer.")] = 2,
    hidden_size: Annotated[int, typer.Option(help="Width, a multiple of 4.")] = 32,
    vocab_size: Annotated[int, typer.Option(help="At most so many sub-words.")] = 600,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Make a tiny untrained text encoder, to try recipes with."""
    from polyglance.nn.tiny_encoder import make_tiny_encoder
    from polyglance.records import read_manifest

    records = (record for path in manifests for record in read_manifest(path))
    texts = [
        text
        for record in records
        for text in (
            *(caption for captions in record.captions.values() for caption in captions),
            *(question.text for question in record.questions),
        )
    ]
    count = make_tiny_encoder(
        out, texts, layers=layers, hidden_size=hidden_size, vocab_size=vocab_size, seed=seed
    )
    print(f"{out}: {layers} layers, {hidden_size} wide, {count:,} sub-words")


@app.command("split")
def weights_split(
    model: Annotated[
        str | None, typer.Argument(help="Model name or folder; default: the included model.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("encoders"),
) -> None:
    """Split a model into text encoder, image backbone and projection heads."""
    from polyglance.export.split_model import split_model

    for folder in filter(None, split_model(model, out)):
        print(folder)
