"""``polyglance data``: datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.telling import Quiet, Strict, console, tell

app = typer.Typer(no_args_is_help=True, help="Datasets: import, look, make.")


@app.command("formats")
def data_formats() -> None:
    """List the dataset formats that can be imported."""
    from rich.table import Table

    from polyglance.data.readers import FORMATS

    table = Table("format", "what it is", "SOURCE", box=None, pad_edge=False)
    for name, known in FORMATS.items():
        table.add_row(name, known.help, known.source)
    console().print(table)


@app.command("import")
def data_import(
    format: Annotated[str, typer.Argument(help="One of `polyglance data formats`.")],
    source: Annotated[Path, typer.Argument(help="The dataset's file or folder.")],
    out: Annotated[Path, typer.Option(help="The manifest to write.")],
    images: Annotated[str, typer.Option(help="Folder of the pictures or videos.")] = "",
    language: Annotated[
        str | None, typer.Option(help="Of texts whose files name no language.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of records whose files name no split.")] = None,
    extension: Annotated[str, typer.Option(help="How video files named by id end.")] = ".mp4",
    untrimmed: Annotated[
        bool, typer.Option("--untrimmed", help="Videos are whole uploads, not clips.")
    ] = False,
    flat: Annotated[bool, typer.Option("--flat", help="All pictures lie in one folder.")] = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Turn a dataset in its published format into a manifest, one record a line."""
    from polyglance.data.importing import import_dataset
    from polyglance.data.readers import ReadOptions

    options = ReadOptions(images, language, split, extension, untrimmed, flat)
    result = import_dataset(format, source, out, options, strict=strict, quiet=quiet)
    tell(result.problems)
    print(f"{out}: {result.records:,} records")


@app.command("show")
def data_show(
    manifest: Annotated[Path, typer.Argument(help="A manifest.")],
    samples: Annotated[int, typer.Option(min=0, help="How many records to print.")] = 3,
) -> None:
    """Count a manifest's records by language and split, and print a few."""
    from polyglance.data.summary import show, summarise

    show(summarise(manifest), console(), samples)


@app.command("toy")
def data_toy(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")],
    pictures: Annotated[int, typer.Option(help="How many.")] = 500,
    clips: Annotated[int, typer.Option(help="How many.")] = 50,
    seed: Annotated[int, typer.Option(help="The same seed makes the same world.")] = 0,
    size: Annotated[int, typer.Option(help="Side of the pictures in pixels.")] = 64,
) -> None:
    """Make a toy world: pictures, clips, captions, questions, dictionaries, alignments."""
    from polyglance.data.toy import write

    for name, count in write(folder, pictures, clips, seed, size=size).items():
        print(f"{folder / name}: {count:,}")


@app.command("enrich")
def data_enrich(
    data: Annotated[Path, typer.Argument(help="The folder of the corpora.")],
    out: Annotated[Path, typer.Option(help="The folder to write to.")],
    pictures: Annotated[
        list[str] | None, typer.Option(help="Manifest of pictures in that folder; repeat it.")
    ] = None,
    parallel: Annotated[
        list[str] | None, typer.Option(help="Manifest of translations; repeat it.")
    ] = None,
    into: Annotated[
        list[str] | None,
        typer.Option(help="Language to put words into; repeat it. Else those that few caption in."),
    ] = None,
    emoji: Annotated[
        Path | None, typer.Option(help="The unpacked npm package cldr-annotations-full.")
    ] = None,
    translate: Annotated[
        list[str] | None, typer.Option(help="Language to translate into by Apertium; repeat it.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where words are compared: cpu, cuda.")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Make captions and words in more languages out of English captions, by dictionaries."""
    from polyglance.languages import normalise_language
    from polyglance.recipes.enriching import SWITCHED, enrich
    from polyglance.text.translators import Apertium

    written = enrich(
        data,
        out,
        pictures=pictures or (),
        parallel=parallel or (),
        emoji=emoji,
        switched=[normalise_language(language) for language in into or SWITCHED],
        translators=[Apertium("en", language) for language in translate or ()],
        device=device,
        quiet=quiet,
    )
    for name, records in written.items():
        print(f"{out / name}: {records:,} records")
