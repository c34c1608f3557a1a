"""The command line: one verb, one function call. Whatever a verb needs is imported when it runs."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyglance import __version__
from polyglance.errors import MissingExtra, PolyglanceError, Problems

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="One space of meaning for pictures, videos and sentences in any language.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets: import, look, make.")
features_app = typer.Typer(no_args_is_help=True, help="Visual features of pictures and clips.")
text_app = typer.Typer(no_args_is_help=True, help="Words: tokenize, and vectors of them.")
vectors_app = typer.Typer(no_args_is_help=True, help="Vectors of the words of many languages.")
weights_app = typer.Typer(no_args_is_help=True, help="Pretrained weights by name.")
app.add_typer(data_app, name="data")
app.add_typer(features_app, name="features")
app.add_typer(text_app, name="text")
text_app.add_typer(vectors_app, name="vectors")
app.add_typer(weights_app, name="weights")

Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed line.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


_EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "safetensors": "train",
    "sentencepiece": "train",
    "onnx": "train",
}
"""Which extra brings a package that a verb could not find."""


def main() -> None:
    """Run the command line; a user's mistake ends it with one sentence and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack letters that we print
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except PolyglanceError as error:
        sys.exit(_failed(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_failed(PolyglanceError(f"{where}{error.strerror or error}")))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        sys.exit(_failed(MissingExtra("this command", _EXTRAS[package])))


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the contact sheet.")] = Path("demo-output"),
    query: Annotated[
        list[str] | None, typer.Option(help="Your own words, in any language; again for more.")
    ] = None,
    photos: Annotated[Path | None, typer.Option(help="A folder of your own pictures.")] = None,
    model: Annotated[str | None, typer.Option(help="A model's name or its folder.")] = None,
) -> None:
    """Search photographs that come along in fourteen languages, offline."""
    from polyglance.demo.show import run
    from polyglance.encoders import load

    run(lambda: load(model), out, _console(), folder=photos, words=query or ())


@app.command()
def evaluate(
    images: Annotated[Path, typer.Argument(help="Embeddings of pictures: .npy, .npz ...")],
    texts: Annotated[Path, typer.Argument(help="Embeddings of captions, by language.")],
    manifest: Annotated[Path, typer.Argument(help="What the rows are: see docs/metrics.md.")],
    split: Annotated[str | None, typer.Option(help="Only records of this split.")] = None,
    languages: Annotated[str | None, typer.Option(help="Only these: en,de,...")] = None,
    human: Annotated[
        str | None, typer.Option(help="Languages whose captions people wrote, for HA.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A name for the results file.")] = None,
    split_name: Annotated[str | None, typer.Option(help="What the split is called.")] = None,
    at: Annotated[str, typer.Option(help="The k of recall at k.")] = "1,5,10",
    inner_product: Annotated[
        bool, typer.Option("--inner-product", help="Score by inner product, not cosine.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the results to a file.")
    ] = None,
) -> None:
    """Measure retrieval on embeddings from disk: recall both ways, by language."""
    from polyglance.evaluation.embeddings import evaluate_files
    from polyglance.evaluation.report import terminal_table
    from polyglance.evaluation.results import write_results

    found = evaluate_files(
        images,
        texts,
        manifest,
        split=split,
        languages=_names(languages),
        human=_names(human) or (),
        model=model,
        split_name=split_name,
        ks=_whole_numbers(at, "--at"),
        cosine=not inner_product,
    )
    _console().print(terminal_table(found))
    if json_file:
        write_results(json_file, found)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or its YAML file.")],
    data: Annotated[Path, typer.Option(help="The folder that the recipe's manifests lie in.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; run again to go on.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting: loop.steps=100")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
) -> None:
    """Train by a recipe and measure; run it again to go on after a stop."""
    from polyglance.recipes import lines, open_recipe
    from polyglance.training.distribution import joined

    opened = open_recipe(recipe, change or ())
    with joined():
        report = opened.run(data, out, device=device)
    measured = ("validation", "test", "compressed")
    for line in lines({name: found for name, found in report.items() if name in measured}):
        print(line)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run whose model was compressed.")],
    out: Annotated[Path, typer.Option(help="Folder of the model; one there is replaced.")],
    name: Annotated[str, typer.Option(help="What the model is called.")] = "model",
    longest: Annotated[int, typer.Option(help="Sub-words of a text; longer ones are cut.")] = 64,
) -> None:
    """Make a model folder that searches without torch from a training run."""
    from polyglance.export.from_run import export_run

    exported = export_run(run, out, name=name, longest=longest)
    total = sum(file["bytes"] for file in exported.files.values())
    print(f"{out}: {exported.name}, {exported.width} wide, {total / 1e6:.1f} MB")


@data_app.command("formats")
def data_formats() -> None:
    """List the dataset formats that can be imported."""
    from rich.table import Table

    from polyglance.data.readers import FORMATS

    table = Table("format", "what it is", "SOURCE", box=None, pad_edge=False)
    for name, known in FORMATS.items():
        table.add_row(name, known.help, known.source)
    _console().print(table)


@data_app.command("import")
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
    _tell(result.problems)
    print(f"{out}: {result.records:,} records")


@data_app.command("show")
def data_show(
    manifest: Annotated[Path, typer.Argument(help="A manifest.")],
    samples: Annotated[int, typer.Option(min=0, help="How many records to print.")] = 3,
) -> None:
    """Count a manifest's records by language and split, and print a few."""
    from polyglance.data.summary import show, summarise

    show(summarise(manifest), _console(), samples)


@data_app.command("toy")
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


@features_app.command("extract")
def features_extract(
    source: Annotated[Path, typer.Argument(help="A manifest, a folder, a picture or a clip.")],
    out: Annotated[Path, typer.Option(help="The feature store to write or go on with.")],
    backbone: Annotated[str, typer.Option(help="The network.")] = "efficientnet-lite2",
    size: Annotated[int, typer.Option(help="Pictures are resized to this square.")] = 224,
    resize: Annotated[str, typer.Option(help="squash or centre.")] = "squash",
    grid: Annotated[int, typer.Option(help="Cells a side.")] = 7,
    labels: Annotated[int, typer.Option(help="Labels kept of each cell; 0 for none.")] = 10,
    dtype: Annotated[str, typer.Option(help="int8 or float16.")] = "int8",
    threads: Annotated[int | None, typer.Option(help="Default: all cores.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Encode pictures and clips into a feature store; run again to go on after a stop."""
    from polyglance.vision.extraction import ExtractionSettings, extract

    settings = ExtractionSettings(
        backbone=backbone,
        size=size,
        resize=resize,  # type: ignore[arg-type]  # checked by extract
        grid=grid,
        labels=labels,
        dtype=dtype,  # type: ignore[arg-type]
    )
    problems = Problems(strict=strict)
    result = extract(
        source, out, settings, threads=threads, device=device, problems=problems, quiet=quiet
    )
    _tell(problems)
    _tell_bad(result.bad)
    new = result.items - result.done_before
    rate = f", {new / result.seconds:.1f} a second" if new else ""
    print(f"{out}: {result.items - len(result.bad):,} of {result.items:,} stored{rate}")
    if len(result.bad) == result.items:
        raise typer.Exit(1)


@features_app.command("regions")
def features_regions(
    source: Annotated[Path, typer.Argument(help="Detector output: .tsv, .h5, folder of .npz.")],
    out: Annotated[Path, typer.Option(help="The feature store to write or go on with.")],
    labels: Annotated[int, typer.Option(help="Labels kept of each region.")] = 1,
    dtype: Annotated[str, typer.Option(help="int8 or float16.")] = "int8",
    quiet: Quiet = False,
) -> None:
    """Put regions that a detector computed elsewhere into a feature store."""
    from polyglance.vision.extraction import import_regions

    result = import_regions(source, out, labels=labels, dtype=dtype, quiet=quiet)  # type: ignore[arg-type]
    _tell_bad(result.bad)
    print(f"{out}: {result.items - len(result.bad):,} of {result.items:,} stored")


@features_app.command("show")
def features_show(
    store: Annotated[Path, typer.Argument(help="A feature store.")],
    samples: Annotated[int, typer.Option(min=0, help="Items whose labels to print.")] = 5,
) -> None:
    """Tell what a feature store holds and how it was made, with a few items' labels."""
    from rich.table import Table

    from polyglance.vision.labels import commonest_labels
    from polyglance.vision.store import FeatureStore

    opened = FeatureStore(store)
    info = opened.info
    print(
        f"{store}: {len(opened):,} items, {info.width} wide, {info.dtype}, {len(opened.bad):,} bad"
    )
    print(", ".join(f"{name} {value}" for name, value in info.made_by.items()))
    table = Table("item", "tokens", "what its cells are labelled, most often first", box=None)
    for key in list(opened)[:samples]:
        tokens = opened[key]
        table.add_row(key, str(len(tokens)), ", ".join(commonest_labels(tokens)))
    _console().print(table)


@text_app.command("tokenize")
def text_tokenize(
    sentences: Annotated[list[str], typer.Argument(help="What to cut up.")],
    tokenizer: Annotated[
        str, typer.Option(help="Known weights, a folder, or a SentencePiece .model file.")
    ] = "e5-small",
) -> None:
    """Show the tokens of sentences and their ids."""
    from polyglance.text import open_tokenizer

    opened = open_tokenizer(tokenizer)
    for sentence in sentences:
        encoding = opened.analyse(sentence)
        print(" ".join(encoding.tokens))
        print(" ".join(map(str, encoding.ids)))


@vectors_app.command("make")
def text_vectors_make(
    manifests: Annotated[list[Path], typer.Argument(help="Whose captions' words.")],
    out: Annotated[Path, typer.Option(help="Folder for the words and their vectors.")],
    source: Annotated[
        str, typer.Option(help="skipgram, an encoder's name, or files: cc.{language}.300.bin")
    ] = "skipgram",
    languages: Annotated[str | None, typer.Option(help="Only these: en,de,...")] = None,
    min_count: Annotated[int, typer.Option(help="Leave rarer words out.")] = 1,
    width: Annotated[int, typer.Option(help="Numbers in a vector.")] = 300,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "cpu",
    quiet: Quiet = False,
) -> None:
    """Number the words of captions and give each a vector: learned, an encoder's, or files'."""
    from polyglance.training.word_vectors import make_word_space

    space = make_word_space(
        manifests,
        source,
        languages=_names(languages),
        min_count=min_count,
        width=width,
        device=device,
        quiet=quiet,
    )
    space.save(out)
    print(f"{out}: {len(space.lexicon):,} words of {', '.join(space.lexicon.languages)}")


@vectors_app.command("near")
def text_vectors_near(
    folder: Annotated[Path, typer.Argument(help="What `text vectors make` wrote.")],
    word: Annotated[str, typer.Argument(help="A word.")],
    language: Annotated[str, typer.Option(help="The word's language.")] = "en",
    among: Annotated[
        str | None, typer.Option(help="Look in these: en,de,... (of one space, as e5's are).")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many neighbours.")] = 10,
) -> None:
    """Show the words whose vectors are nearest to a word's."""
    from polyglance.text.vector_space import WordSpace

    for found in WordSpace.open(folder).neighbours(word, language, count, among=_names(among)):
        print(f"{found.cosine:.3f}  {found.language}  {found.word}")


@weights_app.command("list")
def weights_list() -> None:
    """List the weights that are known by name, and whether they are here."""
    from rich.table import Table

    from polyglance.weights import available

    table = Table("name", "what it is", "state", "MB", "licence", box=None, pad_edge=False)
    for status in available():
        entry = status.entry
        size = f"{entry.size / 1e6:.0f}"
        table.add_row(entry.name, entry.description, status.state, size, entry.licence)
    _console().print(table)


@weights_app.command("get")
def weights_get(name: Annotated[str, typer.Argument(help="A known name.")]) -> None:
    """Fetch weights, check and convert them once, and print their folder."""
    from polyglance.weights import folder

    print(folder(name))


def _failed(error: PolyglanceError) -> int:
    print(f"polyglance: {error}", file=sys.stderr)
    return 2


def _console() -> Console:
    from rich.console import Console

    return Console()


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _whole_numbers(text: str, option: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise PolyglanceError(f"{option} takes whole numbers with commas, not {text!r}") from None


def _tell(problems: Problems, most: int = 10) -> None:
    """Name the malformed places that were skipped, and count them."""
    for problem in problems.found[:most]:
        print(f"skipped {problem}", file=sys.stderr)
    if len(problems) > most:
        print(f"skipped {len(problems) - most:,} more", file=sys.stderr)
    if problems.found:
        print(f"{len(problems):,} malformed entries were skipped in all", file=sys.stderr)


def _tell_bad(bad: dict[str, str], most: int = 10) -> None:
    for key, reason in list(bad.items())[:most]:
        print(f"skipped {key}: {reason}", file=sys.stderr)
    if len(bad) > most:
        print(f"skipped {len(bad) - most:,} more: see bad.txt in the store", file=sys.stderr)


if __name__ == "__main__":
    main()
