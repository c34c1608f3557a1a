"""The command line. Each command calls one function, and imports what it needs when it runs."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from polyglance import __version__
from polyglance.cli import (
    ask,
    calibrate,
    classify,
    compare,
    data,
    doctor,
    encode,
    evaluate,
    explain,
    features,
    index,
    library,
    plan,
    reproduce,
    search,
    serve,
    smalr,
    text,
    weights,
)
from polyglance.cli.completion import complete_model, complete_recipe
from polyglance.cli.interrupts import InterruptibleGroup, describe_run, kept_if_interrupted
from polyglance.cli.output import console
from polyglance.errors import MissingExtraError, PolyglanceError

app = typer.Typer(
    cls=InterruptibleGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Search pictures and videos in any language: `index` a folder, then `search` or `serve`.",
)
_SEARCH, _TRAIN = "Search your pictures", "Train and compare models"
_searching: tuple[Callable[..., None], ...] = (
    serve.serve, classify.classify, ask.ask, explain.explain, encode.encode,
)  # fmt: skip
app.command(rich_help_panel=_SEARCH)(index.index)
app.command(rich_help_panel=_SEARCH, cls=search.SearchCommand)(search.search)
for command in _searching:
    app.command(rich_help_panel=_SEARCH)(command)
app.add_typer(library.app, name="library", rich_help_panel=_SEARCH)
app.command(rich_help_panel=_SEARCH)(doctor.doctor)
for command in (
    evaluate.evaluate,
    compare.compare,
    reproduce.reproduce,
    plan.plan,
    calibrate.calibrate,
):
    app.command(rich_help_panel=_TRAIN)(command)
for group, commands in {
    "data": data, "features": features, "smalr": smalr, "text": text, "weights": weights,
}.items():  # fmt: skip
    app.add_typer(commands.app, name=group, rich_help_panel=_TRAIN)

_EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "safetensors": "train",
    "sentencepiece": "train",
    "onnx": "train",
    "fastapi": "serve",
    "uvicorn": "serve",
}
"""The extra that installs a missing package."""


def main() -> None:
    """Run the command line; report a user's error in one sentence, with status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the terminal may not have all characters
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except PolyglanceError as error:
        sys.exit(_report_error(error))
    except BrokenPipeError:  # whoever reads the output has enough, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_report_error(PolyglanceError(f"{where}{error.strerror or error}")))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        sys.exit(_report_error(MissingExtraError("this command", _EXTRAS[package])))


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command(rich_help_panel=_SEARCH)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page with the hits.")] = Path(
        "demo-output"
    ),
    query: Annotated[
        list[str] | None, typer.Option(help="Your own query, in any language; repeatable.")
    ] = None,
    photos: Annotated[Path | None, typer.Option(help="A folder of your own pictures.")] = None,
    model: Annotated[
        str | None, typer.Option(autocompletion=complete_model, help="Model name or folder.")
    ] = None,
    static: Annotated[
        Path | None,
        typer.Option(help="Write a page here instead that searches inside the browser."),
    ] = None,
    onnxruntime_web: Annotated[
        Path | None,
        typer.Option(help="With --static: folder of that npm package; default: fetched once."),
    ] = None,
) -> None:
    """Search the included photographs in fourteen languages, offline."""
    if static is not None:
        from polyglance.demo.static_page import write_static_page

        _refuse("--static takes no", query=query or None, photos=photos)
        size = write_static_page(static, model=model, onnxruntime_web=onnxruntime_web)
        print(f"{static}: {size / 1e6:.1f} MB; serve it: python -m http.server -d {static}")
        return
    _refuse("without --static there is no", onnxruntime_web=onnxruntime_web)
    from polyglance.demo.show import run_demo
    from polyglance.encoders import load

    run_demo(lambda: load(model), out, console(), folder=photos, texts=query or ())


@app.command(rich_help_panel=_TRAIN)
def train(
    recipe: Annotated[
        str, typer.Argument(autocompletion=complete_recipe, help="Recipe name or YAML file.")
    ],
    data: Annotated[Path, typer.Option(help="Folder of the recipe's manifests.")],
    out: Annotated[Path, typer.Option(help="Run folder; run again to resume.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: loop.steps=100; repeatable."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
) -> None:
    """Train and evaluate a model by a recipe; run again to resume."""
    from polyglance.encoders.model_folder import is_model
    from polyglance.recipes import open_recipe, report_lines
    from polyglance.training.distributed import init_distributed

    opened = open_recipe(recipe, overrides or ())
    with kept_if_interrupted(lambda: describe_run(out)), init_distributed() as rank:
        report = opened.train(data, out, device=device)
    if rank > 0:  # the first process speaks for all
        return
    tests = ("test", "test_all_captions", "extra_tests", "translate_test")
    sections = ("validation", *tests, "compressed", "pictures", "before", "after")
    results = {name: value for name, value in report.items() if name in sections}
    if adaptation := report.get("early_adaptation"):  # the rank of the labels before and after it
        ranks = {name: adaptation[name] for name in ("rank_before", "rank_after")}
        results = {"early_adaptation": ranks, **results}
    for line in report_lines(results):
        print(line)
    if is_model(out / "model"):
        print(f"{out / 'model'}: the model, for `polyglance index --model` and `compare`")


@app.command(rich_help_panel=_TRAIN)
def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="A run folder of MMP, SMALR, UC2 or M3P; or a model, such as polyglance-small."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Model folder to write; replaced if it exists.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the model; default: model, or that of the recipe.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Truncate texts to so many tokens; default: 64.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="UC2 and M3P: the image backbone, if it has moved.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="A model: encode pictures at so many pixels a side; default: its own."),
    ] = None,
) -> None:
    """Export a training run as a model folder.

    MMP and SMALR become ONNX models that search without torch. UC2 and M3P become self-contained
    cross-encoders that re-rank and explain hits. A model is copied with all files that
    transformers, fastembed and others read.
    """
    from polyglance.encoders.model_folder import is_model

    if is_model(run):
        from polyglance.export.copy_model import copy_model

        _refuse(f"{run} is a model, not a run, and takes no", name=name, max_tokens=max_tokens,
                backbone=backbone)  # fmt: skip
        copied = copy_model(run if run.exists() else str(run), out, image_size)
        print(f"{out}: {copied.name}, {copied.width} dimensions, {_megabytes(out)} MB")
        return
    _refuse(f"{run} is not a model; only these take", image_size=image_size)
    from polyglance.cross_encoders.model_folder import export_cross_encoder, read_config
    from polyglance.export.from_run import compact_system, export_run

    if read_config(run) or read_config(run.parent):  # a run, or a stage of one
        _refuse(f"{run} is a run of UC2 or M3P, which take no", name=name, max_tokens=max_tokens)
        config = export_cross_encoder(run, out, backbone=backbone)
        dual_weight = config.dual_weight or 0.0
        print(f"{out}: re-ranker exported (dual_weight {dual_weight:g}), {_megabytes(out)} MB")
        if config.dual_weight is None:
            print(
                f"{run} has no dual_weight, so the search's own scores count nothing among the hits"
                " that are re-ranked: train with reranking.validation_embeddings, which tunes it,"
                " or with reranking.dual_weight",
                file=sys.stderr,
            )
        return
    if run.is_dir():
        reason = f"{run} is not a run of UC2 or M3P; only these take"
        _refuse(reason, backbone=backbone)
    if (system := compact_system(run)) in ("compact_reader", "fine_tune"):
        _refuse(f"{run} keeps its model's maximum length and takes no", max_tokens=max_tokens)
    if system == "compact_reader":
        _refuse(f"{run} keeps its model's name and takes no", name=name)
    exported = export_run(run, out, name=name, max_length=max_tokens)
    print(f"{out}: {exported.name}, {exported.width} dimensions, {_megabytes(out)} MB")


def _megabytes(folder: Path) -> str:
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f"{total / 1e6:.1f}"


def _refuse(why: str, **options: object) -> None:
    """Raise an error for options that would have no effect."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given:
        raise PolyglanceError(f"{why} {' or '.join(given)}: leave that out")


def _report_error(error: PolyglanceError) -> int:
    print(f"polyglance: {error}", file=sys.stderr)
    return 2
