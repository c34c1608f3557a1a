"""``polyglance plan``: what training by a recipe takes."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from polyglance.cli.completion import complete_recipe


def plan(
    recipe: Annotated[
        str, typer.Argument(autocompletion=complete_recipe, help="Recipe name or YAML file.")
    ],
    gpus: Annotated[int, typer.Option(help="Number of accelerators to plan for.")] = 1,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting: loop.steps=100; repeatable."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device to probe; default: cuda if there is one, else cpu.")
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Training images; default: those of the recipe's dataset.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Mean number of tokens of a caption; default: 18, 12 words for SMALR."),
    ] = None,
    words: Annotated[
        int, typer.Option(help="Words of each language's lexicon, for SMALR's models.")
    ] = 7000,
    regions: Annotated[
        int | None, typer.Option(help="Regions of an image; default: 36, or those of a grid.")
    ] = None,
    region_width: Annotated[
        int | None,
        typer.Option(help="Size of a region's vector; default: 2048, 1024 for MMP's clips."),
    ] = None,
    bandwidth: Annotated[
        float, typer.Option(help="GB/s at which each accelerator exchanges gradients.")
    ] = 100.0,
    probe_batch: Annotated[
        int | None,
        typer.Option(
            help="Largest batch to probe; default: an accelerator's share, 4 or 32 on a CPU."
        ),
    ] = None,
    probe_steps: Annotated[
        int | None, typer.Option(help="Steps to time; default: 10, 1 on a CPU.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Estimate hours, memory and disk of a recipe from a short measured probe; needs no data."""
    import torch

    from polyglance.recipes import open_recipe
    from polyglance.recipes.plan.estimate import plan_recipe
    from polyglance.recipes.plan.prepare import PlanOptions
    from polyglance.recipes.plan.report import plan_lines
    from polyglance.vision.devices import check_device

    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_device(chosen)
    options = PlanOptions(
        gpus=gpus, images=images, mean_tokens=tokens, regions=regions, region_width=region_width,
        words=words, bandwidth=bandwidth, probe_batch=probe_batch, steps=probe_steps,
    )  # fmt: skip
    opened = open_recipe(recipe, overrides or ())
    if chosen == "cpu":
        print(
            "there is no accelerator: the estimate is of this machine's CPU, and may take minutes",
            file=sys.stderr,
        )
    planned = plan_recipe(opened, options, device=chosen)
    if as_json:
        print(json.dumps(planned.as_json(), indent=2))
        return
    for line in plan_lines(planned):
        print(line)
