"""What helps languages in which no picture is described: the default recipe, with some left out.

Pictures are described in English, German, French and Portuguese (MSCOCO's in English
alone), and parallel captions are in these too. Measured are the others: Czech,
Chinese and Arabic on Flickr8k's validation pictures, Italian and Chinese on MSCOCO's
that are held out. Row by row more of what `polyglance data enrich` makes is added:

    polyglance data enrich DATA --out DATA/left-out --pictures flickr8k/train.jsonl \\
      --pictures coco/train.jsonl --parallel text/multi30k-parallel.jsonl.gz --emoji EMOJI \\
      --into cs --into ar --into it --into tr --into ja --into pl --into id --into ru
    python -m benchmarks.experiments.left_out_languages --data DATA --device cuda --runs RUNS
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results_io import RESULTS, write_results
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp.photo_recipe import PhotoRecipe

STEPS, BATCH = 300, 256
DESCRIBED = ("en", "de", "fr", "pt")
LEFT_OUT = {"": ("cs", "zh", "ar"), "coco/train.": ("it", "zh")}
"""By corpus, as validation names it."""

ROWS = {
    "captions and sentences as people wrote them": (),
    "and words in many languages": ("words",),
    "and captions with words of other languages": ("words", "mixed"),
    "and names of classes": ("words", "mixed", "classes"),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--enriched", default="left-out", help="folder in DATA")
    options.add_argument("--runs", type=Path, required=True)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--device", default="cpu")
    options.add_argument("--set", dest="change", action="append", default=[])
    chosen = options.parse_args()
    figures: dict[str, Any] = {}
    for number, (name, added) in enumerate(ROWS.items()):
        changes = [f"loop.steps={STEPS}", "loop.save_every=0", "loop.validate_every=0"]
        changes += ["compression=null", "test=null"]
        recipe = open_recipe("polyglance-small", [*changes, *chosen.change])
        settings = with_less(recipe.settings, added, chosen.enriched)
        report = replace(recipe, settings=settings).run(
            chosen.data, chosen.runs / str(number), device=chosen.device
        )
        figures[name] = {**report, "left_out": left_out(report["validation"])}
        print(name, figures[name]["left_out"], f"{report['seconds']} s", flush=True)
        write_results(
            "left_out_languages",
            {"steps": STEPS, "batch": BATCH, "device": chosen.device, "settings": figures},
            chosen.out,
        )


def with_less(settings: PhotoRecipe, added: tuple[str, ...], enriched: str) -> PhotoRecipe:
    """The recipe with captions in few languages, and what is added to them."""
    mixed = ("mul",) if "mixed" in added else ()
    flickr, coco = (
        replace(
            corpus,
            languages=(*languages, *mixed),
            more_captions=f"{enriched}/{corpus.manifest}" if mixed else None,
            batch=min(corpus.batch, BATCH),
        )
        for corpus, languages in zip(settings.pictures, (DESCRIBED, ("en",)), strict=True)
    )
    texts = []
    for text in settings.texts:
        plain = text.manifest.removeprefix("enriched/")
        text = replace(text, batch=min(text.batch, BATCH))
        if "words" in plain:
            if "words" in added:
                texts.append(replace(text, manifest=f"{enriched}/{plain}"))
        elif "parallel" in plain:
            manifest = f"{enriched}/{plain}" if mixed else plain
            texts.append(replace(text, manifest=manifest, languages=(*DESCRIBED, *mixed)))
        else:
            texts.append(replace(text, manifest=plain))
    naming = settings.class_names
    if naming is not None:
        naming = replace(naming, words=f"{enriched}/words.jsonl") if "classes" in added else None
    return replace(settings, pictures=(flickr, coco), texts=tuple(texts), class_names=naming)


def left_out(validation: Mapping[str, float]) -> dict[str, float]:
    """mR of the languages that were left out, and their mean."""
    found = {
        f"{corpus}{language}": validation[f"{corpus}{language}"]
        for corpus, languages in LEFT_OUT.items()
        for language in languages
    }
    return {**found, "mean": sum(found.values()) / len(found)}


if __name__ == "__main__":
    main()
