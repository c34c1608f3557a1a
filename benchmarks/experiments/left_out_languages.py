"""How the default recipe does in languages without captions: Dutch, Persian, Vietnamese left out.

Three runs of the same length from the pretrained encoders: with captions in all languages; without
Dutch, Persian and Vietnamese ones, whose words and sentences stay; and with captions in their place
that a translator made, who learned these languages from Tatoeba's sentences alone. Each is
evaluated on the pictures held out of training that have captions in these languages.

    python -m benchmarks.experiments.left_out_languages --data DATA --runs RUNS --device cuda

DATA is the default model's (benchmarks/experiments/default_model_data.py), and has translations in
`left-out/nl.jsonl` and `left-out/fa.jsonl` for the third run, which is skipped without them.
Writes results/left_out_languages.json, which benchmarks.reports.default_model_page shows.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.experiments.default_model_data import read_translations
from benchmarks.experiments.photo_transfer import photo_parser
from benchmarks.results_io import write_results
from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import RetrievalResult
from polyglance.evaluation.statistics import compare_queries, image_scores
from polyglance.models.mmp_folder import load_mmp
from polyglance.recipes import open_recipe
from polyglance.recipes.image_sources import place_pixels
from polyglance.recipes.mmp.config import BACKBONE_MODULE, MMPPhotoRecipe
from polyglance.recipes.mmp.evaluation import RetrievalSplit, retrieval_by_language
from polyglance.recipes.mmp.train_photos import MODEL_FOLDER
from polyglance.records import read_manifest, write_manifest
from polyglance.vision.efficientnet import EfficientNetLite

LANGUAGES = ("nl", "fa", "vi")
HELD_OUT, TRANSLATED = "coco/held-out", "left-out"
"""Folders in DATA."""
ALL, LEFT_OUT, REPLACED = "captions in all languages", "left out", "left out, translated"
STEPS, BATCH = 500, 384
WEIGHTS = {"en": 8.0, "mul": 2.0, "zh": 2.0}
"""How often captions of MSCOCO in a language are drawn; in all others once."""
CHANGES = (
    f"loop.steps={STEPS}", "loop.save_every=0", "loop.validate_every=0", "initialise_from=null",
    "compression=null", "test=null",
)  # fmt: skip


def main() -> None:
    options = photo_parser(__doc__).parse_args()
    recipe = open_recipe("polyglance-small", [*CHANGES, *options.changes])
    variants = {ALL: small_batches(recipe.settings)}
    variants[LEFT_OUT] = without_languages(variants[ALL], options.data)
    translated: Counter[str] = Counter()
    if (options.data / TRANSLATED).is_dir():
        variants[REPLACED] = with_translations(variants[ALL], options.data)
        for captions in read_translations(options.data / TRANSLATED).values():
            translated.update([*captions])
    figures: dict[str, Any] = {}
    results: dict[str, dict[str, RetrievalResult]] = {}
    for number, (name, settings) in enumerate(variants.items()):
        run = options.runs / str(number)
        report = replace(recipe, settings=settings).train(options.data, run, device=options.device)
        results[name] = evaluate_held_out(run / MODEL_FOLDER, options.data, options.device)
        shutil.rmtree(run / MODEL_FOLDER)  # half a gigabyte; figures are kept
        figures[name] = {
            "held_out": {code: result.mean_recall for code, result in results[name].items()},
            "validation": report["validation"],
            "seconds": report["seconds"],
        }
        print(name, figures[name], flush=True)
        settings_of_all = {"steps": settings.loop.steps, "batch": BATCH, "device": options.device}
        comparisons = compare(results)
        write_results(
            "left_out_languages",
            {
                **settings_of_all,
                "translated": translated,
                "runs": figures,
                "comparisons": comparisons,
            },
            options.out,
        )


def small_batches(recipe: MMPPhotoRecipe) -> MMPPhotoRecipe:
    """Return a recipe with smaller batches, and with English drawn more often.

    With translations an image has captions in many languages, all drawn as often as a single one.
    """
    flickr8k, coco = (
        replace(corpus, batch=min(corpus.batch, BATCH)) for corpus in recipe.image_corpora
    )
    return replace(recipe, image_corpora=(flickr8k, replace(coco, language_weights=WEIGHTS)))


def without_languages(recipe: MMPPhotoRecipe, data: Path) -> MMPPhotoRecipe:
    """Return a recipe without captions in the languages that are evaluated."""
    corpora = []
    for corpus in recipe.image_corpora:
        captions = {r.image: set(r.captions) for r in read_manifest(data / corpus.manifest)}
        if corpus.extra_captions is not None:
            for record in read_manifest(data / corpus.extra_captions):
                captions.get(record.image, set()).update(record.captions)
        present = set().union(*captions.values())
        corpora.append(replace(corpus, languages=tuple(sorted(present.difference(LANGUAGES)))))
    return replace(recipe, image_corpora=tuple(corpora))


def with_translations(recipe: MMPPhotoRecipe, data: Path) -> MMPPhotoRecipe:
    """Return a recipe with translations instead of the captions in these languages.

    Args:
        recipe: With captions in all languages; its last corpus is MSCOCO's.
        data: Holds the translations; the manifest with them is written beside MSCOCO's.
    """
    *others, coco = recipe.image_corpora
    translated = read_translations(data / TRANSLATED)
    path = Path(coco.manifest).with_name("train-left-out.jsonl")
    kept = (
        replace(
            record,
            captions={
                **{code: own for code, own in record.captions.items() if code not in LANGUAGES},
                **translated.get(record.image, {}),
            },
        )
        for record in read_manifest(data / coco.manifest)
    )
    write_manifest(data / path, (record for record in kept if record.captions or record.labels))
    return replace(recipe, image_corpora=(*others, replace(coco, manifest=str(path))))


def evaluate_held_out(folder: Path, data: Path, device: str) -> dict[str, RetrievalResult]:
    """Return the recall of a trained model on the held-out pictures of each language.

    Args:
        folder: Of the model, with its image backbone.
        data: The data folder.
        device: Where to evaluate.
    """
    trained = load_mmp(folder)
    size = int(trained.features.made_by[0]["size"])
    backbone = EfficientNetLite(folder / BACKBONE_MODULE, BACKBONE_MODULE, size, device=device)
    results = {}
    for code in LANGUAGES:
        manifest = data / HELD_OUT / f"{code}.jsonl"
        records = list(read_manifest(manifest))
        captions = CaptionTable.build(
            records, trained.tokenizer, languages=(code,), max_tokens=trained.max_text_tokens
        )
        sources = [manifest.parent / str(record.image) for record in records]
        pixels = place_pixels(sources, size, backbone, min_crop_area=1.0, device=device)
        split = RetrievalSplit(pixels, captions)
        results[code] = retrieval_by_language(trained.model.to(device), split)[code]
    return results


def compare(results: Mapping[str, Mapping[str, RetrievalResult]]) -> dict[str, Any]:
    """Compare each run with the one before it, by language, over pictures."""
    found: dict[str, Any] = {}
    for (before, old), (after, new) in pairwise(results.items()):
        found[f"{after} - {before}"] = {
            code: compare_queries([_scores(new[code])], [_scores(old[code])])._asdict()
            for code in LANGUAGES
        }
    return found


def _scores(result: RetrievalResult) -> Any:
    ranks = result.ranks
    assert ranks is not None
    assert ranks.image_ids is not None
    assert ranks.num_images is not None
    return image_scores(ranks.image_to_text, ranks.text_to_image, ranks.image_ids, ranks.num_images)


if __name__ == "__main__":
    main()
