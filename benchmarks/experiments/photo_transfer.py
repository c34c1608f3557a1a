"""What languages and texts do for photo search: the default recipe with less to learn from.

Nothing that `polyglance data enrich` makes is used here, but captions as people wrote them.

English captions alone, with parallel captions added, with sentences in 112
languages added, and all languages: the same model, steps and batch, measured on
the validation and the test pictures in seven languages.

    python -m benchmarks.experiments.photo_transfer --data DATA --device cuda --runs RUNS
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results_io import RESULTS, write_results
from polyglance.recipes import open_recipe

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
"""The languages of captions, and the texts beside them."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--runs", type=Path, required=True)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--device", default="cpu")
    options.add_argument("--set", dest="change", action="append", default=[])
    chosen = options.parse_args()
    figures: dict[str, Any] = {}
    for number, (name, (languages, texts)) in enumerate(SETTINGS.items()):
        changes = [f"loop.steps={STEPS}", "loop.save_every=0", "loop.validate_every=0"]
        recipe = open_recipe("polyglance-small", [*changes, "compression=null", *chosen.change])
        settings = recipe.settings
        settings = replace(
            settings,
            pictures=tuple(
                replace(
                    corpus,
                    languages=languages,
                    batch=min(corpus.batch, BATCH),
                    more_captions=None,
                )
                for corpus in settings.pictures
            ),
            class_names=None,
            texts=tuple(
                replace(
                    text,
                    batch=min(text.batch, BATCH),
                    manifest=text.manifest.removeprefix("enriched/"),
                )
                for text in settings.texts
                if any(known in text.manifest for known in texts)
            ),
        )
        report = replace(recipe, settings=settings).run(
            chosen.data, chosen.runs / str(number), device=chosen.device
        )
        figures[name] = report
        recalls = {language: round(found["mR"], 1) for language, found in report["test"].items()}
        print(name, recalls, f"{report['seconds']} s", flush=True)
        write_results(
            "photo_transfer",
            {"steps": STEPS, "batch": BATCH, "device": chosen.device, "settings": figures},
            chosen.out,
        )


if __name__ == "__main__":
    main()
