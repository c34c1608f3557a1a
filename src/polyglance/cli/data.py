"""``polyglance data``: import, inspect, make and translate datasets."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance.cli.completion import complete_format, complete_language
from polyglance.cli.manifests import data_hold_out, data_merge
from polyglance.cli.output import Quiet, Strict, console, parse_language, pluralize, print_skipped
from polyglance.cli.pair_captions import pair_captions
from polyglance.errors import PolyglanceError, Problems, printable

if TYPE_CHECKING:
    from polyglance.data.translate import TranslationReport

app = typer.Typer(no_args_is_help=True, help="Datasets: import, inspect, make, translate.")
app.command("pair-captions")(pair_captions)
app.command("merge")(data_merge)
app.command("hold-out")(data_hold_out)


@app.command("formats")
def data_formats() -> None:
    """List the dataset formats that can be imported."""
    from rich.table import Table

    from polyglance.data.readers import FORMATS

    table = Table("format", "description", "SOURCE", box=None, pad_edge=False)
    for name, entry in FORMATS.items():
        table.add_row(name, entry.help, entry.source)
    console().print(table)


@app.command("import")
def data_import(
    format: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_format, help="A format of `polyglance data formats`."
        ),
    ],
    source: Annotated[Path, typer.Argument(help="The dataset's file or folder.")],
    out: Annotated[Path, typer.Option(help="Manifest to write.")],
    images: Annotated[
        str, typer.Option(help="Folder of the pictures or videos; `parquet` writes them.")
    ] = "",
    language: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_language, help="Language of texts, if the files do not say."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split of records, if the files do not say.")
    ] = None,
    extension: Annotated[str, typer.Option(help="Suffix of video files named by id.")] = ".mp4",
    untrimmed: Annotated[
        bool, typer.Option("--untrimmed", help="Videos are full uploads, not trimmed clips.")
    ] = False,
    flat: Annotated[bool, typer.Option("--flat", help="All pictures are in one folder.")] = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Convert a dataset from its published format to a manifest (JSON lines)."""
    from polyglance.data.import_dataset import import_dataset
    from polyglance.data.readers import ReadOptions

    options = ReadOptions(images, language, split, extension, untrimmed, flat)
    result = import_dataset(format, source, out, options, strict=strict, quiet=quiet)
    print_skipped(result.problems)
    print(f"{out}: {pluralize(result.records, 'record')}")


@app.command("show")
def data_show(
    manifest: Annotated[
        Path,
        typer.Argument(help="A manifest, or a folder with captions in files beside its pictures."),
    ],
    samples: Annotated[int, typer.Option(min=0, help="Number of records to print.")] = 3,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Count subtitles' tokens by that of an encoder; default: words."),
    ] = None,
) -> None:
    """Count a manifest's records, captions and subtitles by language, and print a few."""
    from polyglance.data.captioned_pictures import MANIFEST, find_captions, read_captioned_pictures
    from polyglance.data.summary import print_summary, summarise_manifest

    format, place = find_captions(manifest)
    records = place if format == MANIFEST else read_captioned_pictures(place)[0]
    if tokenizer is None:
        summary = summarise_manifest(records)
    else:
        from polyglance.text import open_tokenizer

        encode = open_tokenizer(tokenizer).encode
        summary = summarise_manifest(
            records, lambda text, _: len(encode(text, add_special_tokens=False))
        )
    print_summary(summary, console(), samples)


@app.command("toy")
def data_toy(
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")],
    pictures: Annotated[int, typer.Option(help="Number of pictures.")] = 500,
    clips: Annotated[int, typer.Option(help="Number of clips.")] = 50,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    size: Annotated[int, typer.Option(help="Side of the pictures in pixels.")] = 64,
) -> None:
    """Make a toy dataset: pictures, regions, clips, captions, questions, dictionaries.

    `polyglance features regions FOLDER/regions --out STORE` makes a feature store of the regions,
    `polyglance weights tiny FOLDER/train.jsonl --out ENCODER` an encoder that knows the words.
    """
    from polyglance.data.toy import write_dataset

    for name, count in write_dataset(folder, pictures, clips, seed, size=size).items():
        print(f"{folder / name}: {count:,}")


@app.command("shard")
def data_shard(
    manifest: Annotated[Path, typer.Argument(help="A manifest of images.")],
    out: Annotated[
        Path, typer.Option(help="Folder and name: shards/train writes shards/train-000000.tar ...")
    ],
    size: Annotated[int, typer.Option(min=1, help="Greatest size of a tar in MB.")] = 1000,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that check images; default: one a core.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a manifest's images into tars of WebDataset's layout, with an index.

    Training recipes read them where `tars` names them, such as `tars: shards/train-*.tar`.
    Damaged images are left out.
    """
    from polyglance.data.tar_writer import write_tars
    from polyglance.vision.decoding import default_workers

    count = default_workers() if workers is None else workers
    result = write_tars(manifest, out, max_bytes=size * 1_000_000, workers=count, quiet=quiet)
    for reason in result.damaged.values():
        print(f"left out: {printable(reason)}", file=sys.stderr)
    print(f"{out}-*.tar: {pluralize(result.images, 'image')} in {pluralize(result.tars, 'tar')}")


@app.command("index")
def data_index(
    tars: Annotated[
        str, typer.Argument(help="Folder, tar, pattern such as 'train-{000000..000099}.tar'.")
    ],
    cache: Annotated[
        Path | None, typer.Option(help="Folder for the index if it cannot lie beside the tars.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Decode every image and note damaged ones.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Index tars that others made, which training otherwise does at its first use."""
    from polyglance.data.tars import TarSet, build_index

    index = build_index(TarSet(tars), cache, quiet=quiet, check=check)
    damaged = f", {pluralize(len(index.damaged), 'damaged image')}" if index.damaged else ""
    count = pluralize(len(index.tars), "tar")
    print(f"{index.folder}: {pluralize(len(index), 'image')} in {count}{damaged}")


@app.command("enrich")
def data_enrich(
    data: Annotated[Path, typer.Argument(help="Folder of the corpora.")],
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    pictures: Annotated[
        list[str] | None, typer.Option(help="Manifest of pictures in that folder; repeatable.")
    ] = None,
    parallel: Annotated[
        list[str] | None, typer.Option(help="Manifest of translations; repeatable.")
    ] = None,
    into: Annotated[
        list[str] | None,
        typer.Option(
            help="Language to code-switch into; repeatable. Default: those with few captions."
        ),
    ] = None,
    emoji: Annotated[
        Path | None, typer.Option(help="Folder of the npm package cldr-annotations-full.")
    ] = None,
    translate: Annotated[
        list[str] | None, typer.Option(help="Language to translate into with Apertium; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device for word vectors: cpu, cuda, ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Make captions and words in more languages from English captions, with dictionaries."""
    from polyglance.recipes.mmp.enrich import SWITCH_LANGUAGES, enrich
    from polyglance.text.translation.translators import Apertium

    written = enrich(
        data,
        out,
        pictures=pictures or (),
        parallel=parallel or (),
        emoji=emoji,
        switch_languages=[parse_language(language) for language in into or SWITCH_LANGUAGES],
        translators=[Apertium("en", language) for language in translate or ()],
        device=device,
        quiet=quiet,
    )
    for name, records in written.items():
        print(f"{out / name}: {pluralize(records, 'record')}")


@app.command("translate")
def data_translate(
    manifest: Annotated[Path, typer.Argument(help="A manifest.")],
    to: Annotated[list[str], typer.Option(help="Language to translate into; repeatable.")],
    out: Annotated[Path, typer.Option(help="Manifest to write, .jsonl or .jsonl.gz.")],
    translator: Annotated[
        list[str],
        typer.Option(
            help="Translator: words, apertium or a model folder, {source}-{target}; repeatable."
        ),
    ],
    source: Annotated[str, typer.Option("--from", help="Language of the captions.")] = "en",
    dictionaries: Annotated[
        list[str] | None,
        typer.Option(help="Dictionaries for words; default: Debian's FreeDict; repeatable."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Translation cache; default: in the user's cache folder.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Batch size; default: the translator's.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
    min_length_ratio: Annotated[
        float, typer.Option(help="Minimum length of a translation relative to its text.")
    ] = 0.4,
    max_length_ratio: Annotated[
        float, typer.Option(help="Maximum length of a translation relative to its text.")
    ] = 2.5,
    max_copied: Annotated[
        float, typer.Option(help="Maximum share of words copied from the text, 0 to 1.")
    ] = 0.6,
    max_repeats: Annotated[
        int, typer.Option(min=1, help="Maximum number of times a phrase occurs in a row.")
    ] = 2,
    margin: Annotated[
        float,
        typer.Option(
            help="Drop a translation if another language is likelier by this log-probability."
        ),
    ] = 3.0,
    examples: Annotated[
        list[Path] | None, typer.Option(help="Manifest to train language detection on; repeatable.")
    ] = None,
    check: Annotated[
        str | None, typer.Option(help="Compare meanings: embedding or round-trip.")
    ] = None,
    min_similarity: Annotated[
        float | None,
        typer.Option(help="Minimum similarity for --check; default: 0.7, round-trip 0.4."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Model for --check embedding; default: the included model.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write counts and examples to this JSON file.")
    ] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Translate the captions of a manifest; human captions are kept."""
    from polyglance.data.translate import (
        NoTranslator,
        embedding_check,
        languages_to_translate,
        round_trip_check,
        standard_checks,
        translate_manifest,
    )
    from polyglance.records import atomic_write
    from polyglance.text.dictionary_files import FREEDICT_FOLDER
    from polyglance.text.translation import TranslationCache
    from polyglance.text.translation.registry import open_first_translator

    open_translator = partial(
        open_first_translator,
        translator,
        dictionaries=dictionaries or (FREEDICT_FOLDER,),
        device=device,
    )
    if not manifest.is_file():
        raise PolyglanceError(
            f"there is no manifest {printable(str(manifest))}: name an existing one"
        )
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise PolyglanceError(
            f"--out takes a name that ends in .jsonl or .jsonl.gz, not {out.name!r}"
        )
    if check not in (None, "embedding", "round-trip"):
        raise PolyglanceError(f"--check takes embedding or round-trip, not {check!r}")
    if min_similarity is not None and check is None:
        raise PolyglanceError(
            "--min-similarity needs a comparison of meanings: add --check embedding or --check"
            " round-trip"
        )
    if encoder is not None and check != "embedding":
        raise PolyglanceError(
            "--encoder is the model of --check embedding: add that, or leave --encoder out"
        )
    checks = standard_checks(
        min_length_ratio=min_length_ratio,
        max_length_ratio=max_length_ratio,
        max_repeats=max_repeats,
        margin=margin,
        max_copied=max_copied,
        examples=examples or (),
    )
    source, targets = parse_language(source), [parse_language(language) for language in to]
    needed = {source, *languages_to_translate(manifest, targets)}
    translators = [
        open_translator(source=source, target=language)
        if language in needed
        else NoTranslator(source, language)
        for language in targets
    ]
    problems = Problems(strict=strict)
    with TranslationCache.open(cache) as translation_cache:
        if check == "embedding":
            from polyglance.encoders import load

            checks.append(
                embedding_check(
                    load(encoder), min_similarity=0.7 if min_similarity is None else min_similarity
                )
            )
        elif check == "round-trip":
            back_translators = [
                open_translator(source=language, target=source)
                for language in targets
                if language in needed
            ]
            threshold = 0.4 if min_similarity is None else min_similarity
            checks.append(
                round_trip_check(
                    back_translators, min_chrf=threshold, cache=translation_cache, quiet=quiet
                )
            )
        result = translate_manifest(
            manifest,
            out,
            translators,
            cache=translation_cache,
            checks=checks,
            batch_size=batch,
            problems=problems,
            quiet=quiet,
        )
    print_skipped(problems)
    _print_report(result)
    if report:
        with atomic_write(report) as file:
            json.dump(result.to_json(), file, ensure_ascii=False, indent=2)
            file.write("\n")


def _print_report(result: TranslationReport, max_named: int = 10) -> None:
    """Print the counts of each language, and the first texts that failed."""
    print(f"{result.out}: {pluralize(result.records, 'record')}")
    for language, counts in result.languages.items():
        existing = ""
        if counts.existing:
            had = "record has" if counts.existing == 1 else "records have"
            existing = f"{counts.existing:,} {had} captions in it already"
        if not counts.texts:
            print(f"{language}: nothing to translate, {existing}")
            continue
        dropped = ", ".join(f"{count:,} {name}" for name, count in counts.dropped.items() if count)
        print(
            f"{language}: {counts.captions:,} captions by {counts.translator}; of {counts.texts:,}"
            f" texts {counts.cached:,} from the cache, dropped: {dropped or 'none'}"
            + (f"; {existing}" if existing else "")
        )
        for text, reason in list(counts.failed.items())[:max_named]:
            print(f"not translated into {language}: {printable(text)} ({reason})", file=sys.stderr)
        if len(counts.failed) > max_named:
            more = len(counts.failed) - max_named
            print(f"not translated into {language}: {more:,} more", file=sys.stderr)
