"""What helps languages without image captions: the default recipe with some languages left out.

Images have captions in English, German, French and Portuguese (MSCOCO's in English only), and
parallel captions are in these too. The others are evaluated: Czech, Chinese and Arabic on
Flickr8k's validation images, Italian and Chinese on MSCOCO's held-out ones. Each setting adds
more of what `polyglance data enrich` makes:

    polyglance data enrich DATA --out DATA/left-out --pictures flickr8k/train.jsonl \\
      --pictures coco/train.jsonl --parallel text/multi30k-parallel.jsonl.gz --emoji EMOJI \\
      --into cs --into ar --into it --into tr --into ja --into pl --into id --into ru
    python -m benchmarks.experiments.left_out_languages --data DATA --device cuda --runs RUNS

Writes results/left_out_languages.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.experiments.photo_transfer import (
    BATCH,
    photo_parser,
    train_variants,
    write_variants,
)
from polyglance.recipes.mmp.config import MMPPhotoRecipe

CAPTION_LANGUAGES = ("en", "de", "fr", "pt")
LEFT_OUT = {"": ("cs", "zh", "ar"), "coco/train.": ("it", "zh")}
"""Languages without captions, by the prefix that validation gives a corpus."""

SETTINGS = {
    "captions and sentences as people wrote them": (),
    "and words in many languages": ("words",),
    "and captions with words of other languages": ("words", "mixed"),
    "and names of classes": ("words", "mixed", "classes"),
}
"""What each setting adds."""


def main() -> None:
    parser = photo_parser(__doc__)
    parser.add_argument("--enriched", default="left-out", help="folder in DATA")
    options = parser.parse_args()
    variants = {
        name: lambda recipe, added=added: restrict(recipe, added, options.enriched)
        for name, added in SETTINGS.items()
    }
    figures: dict[str, Any] = {}
    for name, report in train_variants(variants, options, ("compression=null", "test=null")):
        figures[name] = {**report, "left_out": left_out_recalls(report["validation"])}
        print(name, figures[name]["left_out"], f"{report['seconds']} s", flush=True)
        write_variants("left_out_languages", figures, options)


def restrict(recipe: MMPPhotoRecipe, added: tuple[str, ...], enriched: str) -> MMPPhotoRecipe:
    """Restrict a recipe to captions in few languages.

    Args:
        recipe: The default recipe.
        added: What is added to them: words, mixed captions, classes.
        enriched: The folder of what `polyglance data enrich` made.
    """
    mixed = ("mul",) if "mixed" in added else ()
    flickr, coco = (
        replace(
            corpus,
            languages=(*languages, *mixed),
            extra_captions=f"{enriched}/{corpus.manifest}" if mixed else None,
            batch=min(corpus.batch, BATCH),
        )
        for corpus, languages in zip(
            recipe.image_corpora, (CAPTION_LANGUAGES, ("en",)), strict=True
        )
    )
    texts = []
    for corpus in recipe.text_corpora:
        manifest = corpus.manifest.removeprefix("enriched/")
        corpus = replace(corpus, batch=min(corpus.batch, BATCH))
        if "words" in manifest:
            if "words" in added:
                texts.append(replace(corpus, manifest=f"{enriched}/{manifest}"))
        elif "parallel" in manifest:
            path = f"{enriched}/{manifest}" if mixed else manifest
            texts.append(replace(corpus, manifest=path, languages=(*CAPTION_LANGUAGES, *mixed)))
        else:
            texts.append(replace(corpus, manifest=manifest))
    class_names = recipe.class_names
    if class_names is not None:
        words = f"{enriched}/words.jsonl"
        class_names = replace(class_names, words=words) if "classes" in added else None
    return replace(
        recipe, image_corpora=(flickr, coco), text_corpora=tuple(texts), class_names=class_names
    )


def left_out_recalls(validation: Mapping[str, float]) -> dict[str, float]:
    """Return mR of the languages that were left out, and their mean."""
    recalls = {
        f"{corpus}{language}": validation[f"{corpus}{language}"]
        for corpus, languages in LEFT_OUT.items()
        for language in languages
    }
    return {**recalls, "mean": sum(recalls.values()) / len(recalls)}


if __name__ == "__main__":
    main()
