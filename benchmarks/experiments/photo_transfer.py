"""What captions and texts in other languages bring: the default recipe with less to learn from.

English captions alone, with parallel captions, with sentences in 112 languages, and captions in
all languages: the same model, steps and batch, evaluated on the validation and test images in
seven languages. Only captions that people wrote are used, nothing of `polyglance data enrich`.

    python -m benchmarks.experiments.photo_transfer --data DATA --device cuda --runs RUNS

Writes results/photo_transfer.json, which benchmarks.reports.default_model_page shows.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results_io import RESULTS, write_results
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp.config import MMPPhotoRecipe
from polyglance.recipes.mmp.train_photos import MODEL_FOLDER

STEPS, BATCH = 300, 256
SETTINGS = {
    "English captions": (("en",), ()),
    "English captions, parallel captions, Tatoeba": (("en",), ("multi30k-parallel", "tatoeba")),
    "captions in all languages, parallel captions, Tatoeba": (
        None,
        ("multi30k-parallel", "tatoeba"),
    ),
    "English captions, parallel captions": (("en",), ("multi30k-parallel",)),
}
"""Settings by name: the languages of captions, and the corpora of text."""

Variant = Callable[[MMPPhotoRecipe], MMPPhotoRecipe]
"""A change to the default recipe."""


def main() -> None:
    options = photo_parser(__doc__).parse_args()
    variants = {
        name: lambda recipe, languages=languages, texts=texts: restrict(recipe, languages, texts)
        for name, (languages, texts) in SETTINGS.items()
    }
    figures: dict[str, Any] = {}
    for name, report in train_variants(variants, options, ("compression=null",)):
        figures[name] = report
        recalls = {code: round(test["mR"], 1) for code, test in report["test"].items()}
        print(name, recalls, f"{report['seconds']} s", flush=True)
        write_variants("photo_transfer", figures, options)


def restrict(
    recipe: MMPPhotoRecipe, languages: tuple[str, ...] | None, texts: tuple[str, ...]
) -> MMPPhotoRecipe:
    """Restrict a recipe to what people wrote.

    Args:
        recipe: The default recipe.
        languages: The languages of captions; None for all.
        texts: Parts of the names of the corpora of text to train on.
    """
    return replace(
        recipe,
        image_corpora=tuple(
            replace(
                corpus, languages=languages, batch=min(corpus.batch, BATCH), extra_captions=None
            )
            for corpus in recipe.image_corpora
        ),
        class_names=None,
        text_corpora=tuple(
            replace(
                corpus,
                batch=min(corpus.batch, BATCH),
                manifest=corpus.manifest.removeprefix("enriched/"),
            )
            for corpus in recipe.text_corpora
            if any(name in corpus.manifest for name in texts)
        ),
    )


def photo_parser(description: str | None) -> argparse.ArgumentParser:
    """Build the parser of experiments with the default recipe."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="the folder of all runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results file")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    return parser


def train_variants(
    variants: Mapping[str, Variant], options: argparse.Namespace, changes: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train variants of the default recipe one after another.

    Args:
        variants: Changes to the recipe by name.
        options: The command line's options.
        changes: Changes to the recipe for all, as ``key=value``.

    Yields:
        The name and the report of each.
    """
    short = (f"loop.steps={STEPS}", "loop.save_every=0", "loop.validate_every=0")
    for number, (name, variant) in enumerate(variants.items()):
        recipe = open_recipe("polyglance-small", [*short, *changes, *options.changes])
        run = options.runs / str(number)
        report = replace(recipe, settings=variant(recipe.settings)).train(
            options.data, run, device=options.device
        )
        shutil.rmtree(run / MODEL_FOLDER, ignore_errors=True)  # half a gigabyte; figures are kept
        yield name, report


def write_variants(name: str, figures: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Write the results of all variants trained so far."""
    settings = {"steps": STEPS, "batch": BATCH, "device": options.device, "settings": figures}
    write_results(name, settings, options.out)


if __name__ == "__main__":
    main()
