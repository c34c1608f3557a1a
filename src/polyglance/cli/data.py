"""``polyglance data``: datasets."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.output import Quiet, Strict, console, counted, language_code, tell
from polyglance.errors import PolyglanceError, Problems, printable

if TYPE_CHECKING:
    from polyglance.data.translate import TranslationReport

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
    from polyglance.data.import_dataset import import_dataset
    from polyglance.data.readers import ReadOptions

    options = ReadOptions(images, language, split, extension, untrimmed, flat)
    result = import_dataset(format, source, out, options, strict=strict, quiet=quiet)
    tell(result.problems)
    print(f"{out}: {counted(result.records, 'record')}")


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
    from polyglance.recipes.mmp.enrich import SWITCHED, enrich
    from polyglance.text.translation.translators import Apertium

    written = enrich(
        data,
        out,
        pictures=pictures or (),
        parallel=parallel or (),
        emoji=emoji,
        switched=[language_code(language) for language in into or SWITCHED],
        translators=[Apertium("en", language) for language in translate or ()],
        device=device,
        quiet=quiet,
    )
    for name, records in written.items():
        print(f"{out / name}: {counted(records, 'record')}")


@app.command("translate")
def data_translate(
    manifest: Annotated[Path, typer.Argument(help="A manifest.")],
    to: Annotated[list[str], typer.Option(help="Language to translate into; repeat it.")],
    out: Annotated[Path, typer.Option(help="The manifest to write, .jsonl or .jsonl.gz.")],
    translator: Annotated[
        list[str],
        typer.Option(
            help="apertium, words, or a model's folder, models/{source}-{target} for one each pair;"
            " repeat it: the first that has the languages translates."
        ),
    ],
    source: Annotated[str, typer.Option("--from", help="Language of the captions.")] = "en",
    dictionaries: Annotated[
        list[str] | None, typer.Option(help="Where words are looked up. Else Debian's FreeDict.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Keeps translations. Else in the user's cache folder.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Captions at once. Else what suits the translator.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where models compute: cpu, cuda.")] = "cpu",
    shortest: Annotated[
        float, typer.Option(help="Least length of a translation to its text.")
    ] = 0.4,
    longest: Annotated[float, typer.Option(help="Most length of a translation to its text.")] = 2.5,
    copied: Annotated[
        float, typer.Option(help="Most of a translation's words, 0 to 1, that are its text's too.")
    ] = 0.6,
    repeats: Annotated[int, typer.Option(min=1, help="Most times a phrase is said in a row.")] = 2,
    margin: Annotated[
        float, typer.Option(help="How much likelier another language is, as a logarithm.")
    ] = 3.0,
    examples: Annotated[
        list[Path] | None, typer.Option(help="Manifest to learn the languages from; repeat it.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Compare meanings: embedding, or round-trip.")
    ] = None,
    least: Annotated[
        float | None, typer.Option(help="Least likeness of meanings. Else 0.7; round-trip 0.4.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Model for --check embedding. Else the default model.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write counts and examples, JSON.")] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Translate the captions of a manifest; those that people wrote stay as they are."""
    from polyglance.data.translate import (
        NothingToTranslate,
        embedding_check,
        languages_lacking,
        round_trip_check,
        standard_checks,
        translate_manifest,
    )
    from polyglance.records import atomic_write
    from polyglance.text.dictionary_files import FREEDICT
    from polyglance.text.translation import TranslationCache
    from polyglance.text.translation.registry import open_first

    opening = partial(
        open_first, translator, dictionaries=dictionaries or (FREEDICT,), device=device
    )
    if not manifest.is_file():
        raise PolyglanceError(f"there is no manifest {printable(str(manifest))}: give one")
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise PolyglanceError(
            f"--out takes a name that ends in .jsonl or .jsonl.gz, not {out.name!r}"
        )
    if check not in (None, "embedding", "round-trip"):
        raise PolyglanceError(f"--check takes embedding or round-trip, not {check!r}")
    if least is not None and check is None:
        raise PolyglanceError(
            "--least is the likeness of meanings, which nothing compares: add --check embedding or"
            " --check round-trip"
        )
    if encoder is not None and check != "embedding":
        raise PolyglanceError(
            "--encoder is the model of --check embedding, which is not asked for: add that"
        )
    checks = standard_checks(
        shortest=shortest,
        longest=longest,
        repeats=repeats,
        margin=margin,
        copied=copied,
        examples=examples or (),
    )
    source, targets = language_code(source), [language_code(language) for language in to]
    needed = {source, *languages_lacking(manifest, targets)}
    opened = [
        opening(source=source, target=language)
        if language in needed
        else NothingToTranslate(source, language)
        for language in targets
    ]
    problems = Problems(strict=strict)
    with TranslationCache.open(cache) as kept:
        if check == "embedding":
            from polyglance.encoders import load

            checks.append(embedding_check(load(encoder), least=0.7 if least is None else least))
        elif check == "round-trip":
            back = [
                opening(source=language, target=source)
                for language in targets
                if language in needed
            ]
            threshold = 0.4 if least is None else least
            checks.append(round_trip_check(back, least=threshold, cache=kept, quiet=quiet))
        result = translate_manifest(
            manifest,
            out,
            opened,
            cache=kept,
            checks=checks,
            batch=batch,
            problems=problems,
            quiet=quiet,
        )
    tell(problems)
    _tell_translated(result)
    if report:
        with atomic_write(report) as file:
            json.dump(result.to_json(), file, ensure_ascii=False, indent=2)
            file.write("\n")


def _tell_translated(result: TranslationReport, most: int = 10) -> None:
    """What became of each language, and what could not be translated."""
    print(f"{result.out}: {counted(result.records, 'record')}")
    for language, about in result.languages.items():
        already = ""
        if about.already:
            had = "record has" if about.already == 1 else "records have"
            already = f"{about.already:,} {had} captions in it already"
        if not about.texts:
            print(f"{language}: nothing to translate, {already}")
            continue
        dropped = ", ".join(f"{count:,} {name}" for name, count in about.dropped.items() if count)
        print(
            f"{language}: {about.captions:,} captions by {about.translator}; of {about.texts:,}"
            f" texts {about.cached:,} from the cache, dropped: {dropped or 'none'}"
            + (f"; {already}" if already else "")
        )
        for text, why in list(about.failed.items())[:most]:
            print(f"not translated into {language}: {printable(text)} ({why})", file=sys.stderr)
        if len(about.failed) > most:
            more = len(about.failed) - most
            print(f"not translated into {language}: {more:,} more", file=sys.stderr)
