"""``polyglance smalr``: what only SMALR's models can do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyglance.cli.output import parse_language

app = typer.Typer(no_args_is_help=True, help="SMALR: models of words in many languages.")


@app.callback()
def _group() -> None:
    """Keep the command's name, although there is only one."""


@app.command("add-language")
def smalr_add_language(
    run: Annotated[Path, typer.Argument(help="Run folder of a SMALR model.")],
    language: Annotated[str, typer.Argument(help="The language to add, such as it.")],
    data: Annotated[Path, typer.Option(help="Folder of the manifests and features.")],
    out: Annotated[Path, typer.Option(help="Run folder of the new model.")],
    train: Annotated[
        str | None,
        typer.Option(
            help="Manifest with captions in the language; default: the recipe's, translated."
        ),
    ] = None,
    validation: Annotated[
        str | None, typer.Option(help="Manifest that selects the best step; default: the recipe's.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Manifest to evaluate on; default: the recipe's.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Image features; default: the recipe's.")
    ] = None,
    batch: Annotated[int, typer.Option(min=2, help="Images a step.")] = 256,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 500,
    learning_rate: Annotated[float, typer.Option(help="Learning rate.")] = 4e-3,
    device: Annotated[str, typer.Option(help="Device: cpu, cuda, ...")] = "cpu",
) -> None:
    """Add a language to a trained model; what the model has learned stays as it is."""
    from dataclasses import replace

    from polyglance.recipes import report_lines
    from polyglance.recipes.smalr.add_language import (
        AddLanguageConfig,
        add_language,
        own_manifests,
        read_recipe,
    )
    from polyglance.recipes.smalr.config import FeatureSplit, PublishedCorpus
    from polyglance.vision.devices import check_device

    check_device(device)
    recipe, code = read_recipe(run), parse_language(language)
    own: dict[str, str] = {}
    if not (train and validation and test):  # those of the recipe may have to be translated
        own = own_manifests(recipe, code, data, device=device)

    def split(name: str, manifest: str | None) -> FeatureSplit:
        images: PublishedCorpus | FeatureSplit = recipe.corpus or getattr(recipe, name)
        return FeatureSplit(manifest or own[name], features or images.features)

    config = AddLanguageConfig(
        code,
        split("train", train),
        split("validation", validation),
        split("test", test),
        batch=batch,
    )
    loop = replace(config.loop, steps=steps, learning_rate=learning_rate)
    report = add_language(run, replace(config, loop=loop), data, out, device=device)
    for line in report_lines({name: report[name] for name in ("validation", "test")}):
        print(line)
