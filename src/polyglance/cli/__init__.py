"""The command line: one verb, one function call. Whatever a verb needs is imported when it runs."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from polyglance import __version__
from polyglance.cli import (
    ask,
    data,
    encode,
    evaluate,
    explain,
    features,
    index,
    library,
    search,
    serve,
    text,
    weights,
)
from polyglance.cli.output import console
from polyglance.errors import MissingExtraError, PolyglanceError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="One space of meaning for pictures, videos and sentences in any language.",
)
app.command()(index.index)
app.command()(encode.encode)
app.command()(search.search)
app.command()(ask.ask)
app.command()(explain.explain)
app.command()(serve.serve)
app.command()(evaluate.evaluate)
for group, verbs in {
    "library": library, "data": data, "features": features, "text": text, "weights": weights,
}.items():  # fmt: skip
    app.add_typer(verbs.app, name=group)

_EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "safetensors": "train",
    "sentencepiece": "train",
    "onnx": "train",
    "fastapi": "serve",
    "uvicorn": "serve",
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
        sys.exit(_failed(MissingExtraError("this command", _EXTRAS[package])))


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

    run(lambda: load(model), out, console(), folder=photos, words=query or ())


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
    from polyglance.training.distributed import init_distributed

    opened = open_recipe(recipe, change or ())
    with init_distributed():
        report = opened.run(data, out, device=device)
    measured = ("validation", "test", "translate_test", "compressed")
    figures = {name: found for name, found in report.items() if name in measured}
    if "adaptation" in report:  # where it brought the words of labels
        ranks = ("rank_before", "rank_after")
        figures = {"adaptation": {name: report["adaptation"][name] for name in ranks}, **figures}
    for line in lines(figures):
        print(line)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run whose model reads words or was compressed.")],
    out: Annotated[Path, typer.Option(help="Folder of the model; one there is replaced.")],
    name: Annotated[
        str | None, typer.Option(help="What the model is called; model without it.")
    ] = None,
    longest: Annotated[
        int | None, typer.Option(help="(Sub-)words of a text; longer ones are cut; 64 without it.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Of UC2 or M3P: the store of features it was trained on.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The network that made them, if it lies elsewhere now.")
    ] = None,
) -> None:
    """Make a model folder that searches without torch from a training run.

    Of a run of UC2 or M3P, one that reads hits again, with all that it needs but torch.
    """
    from polyglance.export.from_run import LONGEST, export_run
    from polyglance.recipes.cross_encoder.folder import export_pair_model, is_pair_run

    if is_pair_run(run):
        _refuse(f"{run} is a run of UC2 or M3P, which take no", name=name, longest=longest)
        told = export_pair_model(run, out, backbone=backbone, features=features)
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        print(f"{out}: reads hits again, trusts their order by {told.trust:g}, {size / 1e6:.1f} MB")
        return
    if run.is_dir():
        reason = f"{run} is no run of UC2 or M3P, which alone take"
        _refuse(reason, features=features, backbone=backbone)
    exported = export_run(
        run, out, name=name or "model", longest=LONGEST if longest is None else longest
    )
    total = sum(file["bytes"] for file in exported.files.values())
    print(f"{out}: {exported.name}, {exported.width} wide, {total / 1e6:.1f} MB")


def _refuse(why: str, **options: object) -> None:
    """Options that would do nothing."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise PolyglanceError(f"{why} {' or '.join(given)}: leave that out")


def _failed(error: PolyglanceError) -> int:
    print(f"polyglance: {error}", file=sys.stderr)
    return 2
