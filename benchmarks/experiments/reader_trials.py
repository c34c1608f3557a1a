"""Settings of a reader's training, tried beside each other in short runs with several seeds.

    python -m benchmarks.experiments.reader_trials --data DATA --variant lists
        --variant groups retrieval.group_size=8 --steps 600 --seeds 3 --device cuda

A variant is a name and changes of the recipe polyglance-reader, as `polyglance train --set` takes
them; none that changes the data, which are read once. Each is trained with each seed, and re-ranks
the recipe's validation images with the weight of the cosine that is best for the variant. The
variants are compared with the first, over seeds and images. Writes results/reader_trials.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results_io import RESULTS, write_results
from polyglance.errors import PolyglanceError
from polyglance.evaluation.pair_scores import pair_scores, read_candidates
from polyglance.evaluation.retrieval import ranks_from_shortlists
from polyglance.evaluation.statistics import compare_queries, image_scores
from polyglance.models.vqa import VQAModel
from polyglance.recipes import open_recipe
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.compact_reader.data import ReaderData, load_data
from polyglance.recipes.compact_reader.evaluation import ReaderEvaluation, dual_scores
from polyglance.recipes.compact_reader.tasks import find_hard_negatives
from polyglance.recipes.compact_reader.train import initialise_model, train_reader
from polyglance.recipes.cross_encoder.evaluation import DUAL_WEIGHTS, DualScores
from polyglance.recipes.retrieval_report import rows_by_language
from polyglance.recipes.vqa.evaluation import validate
from polyglance.recipes.vqa.questions import answer_targets

Array = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--variant", nargs="+", action="append", required=True, metavar="NAME [KEY=VALUE]"
    )
    parser.add_argument("--set", action="append", default=[], help="a change of all variants")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    variants = {name: [*options.set, *changes] for name, *changes in options.variant}
    found = try_variants(
        open_variants(variants, options.steps), options.data, options.seeds, options.device
    )
    figures = {"recipe": "polyglance-reader", "set": options.set, "steps": options.steps}
    changes = {name: changes for name, *changes in options.variant}
    write_results("reader_trials", {**figures, "variants": changes, **found}, options.out)


def open_variants(
    changes: Mapping[str, Sequence[str]], steps: int, recipe: str | Path = "polyglance-reader"
) -> dict[str, ReaderRecipe]:
    """Return the settings of each variant; refuse those whose data differ."""
    variants: dict[str, ReaderRecipe] = {}
    for name, own in changes.items():
        settings: ReaderRecipe = open_recipe(recipe, own).settings
        loop = replace(settings.loop, steps=steps, validate_every=0, save_every=0)
        variants[name] = replace(settings, loop=loop, test=None, question_tests=())
    shared = {name: _shared_settings(one) for name, one in variants.items()}
    for name, settings in shared.items():
        if settings != next(iter(shared.values())):
            raise PolyglanceError(
                f"{name} has other data or answers than the first variant: change these for all by"
                " --set"
            )
    return variants


def _shared_settings(recipe: ReaderRecipe) -> ReaderRecipe:
    """Return the settings without those that a variant may have of its own."""
    plain = ReaderRecipe(captions=recipe.captions, questions=recipe.questions)
    retrieval, answering = recipe.retrieval, recipe.answering
    return replace(
        recipe,
        captions=tuple(replace(corpus, repeat=1) for corpus in recipe.captions),
        **{name: getattr(plain, name) for name in _TRAINING},
        retrieval=replace(plain.retrieval, candidates=retrieval.candidates),
        answering=replace(
            plain.answering, max_answers=answering.max_answers, min_score=answering.min_score,
            held_out=answering.held_out, lexicon_words=answering.lexicon_words,
        ),
    )  # fmt: skip


_TRAINING = ("loop", "dropout", "head_lr_multiplier", "itm_only_steps")


def try_variants(
    variants: Mapping[str, ReaderRecipe], folder: Path, seeds: int, device: str
) -> dict[str, Any]:
    """Train and validate each variant with each seed; compare them with the first."""
    recipe = next(iter(variants.values()))
    data = load_data(recipe, folder, device)
    if data.validation is None:
        raise PolyglanceError("the recipe has no validation images: set validation")
    targets = answer_targets(data.answers, data.questions.questions)
    retrieval = recipe.retrieval
    hard = {
        name: find_hard_negatives(variant.retrieval, data) for name, variant in variants.items()
    }
    evaluation = ReaderEvaluation(data, retrieval.candidates)
    dual = dual_scores(data.dual, data.validation)
    scores: dict[str, list[Array]] = {name: [] for name in variants}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    answers: dict[str, list[float]] = {name: [] for name in variants}
    for seed in range(seeds):
        for name, variant in variants.items():
            seeded = replace(variant, loop=replace(variant.loop, seed=seed))
            model = initialise_model(seeded, data, targets, device)
            before = perf_counter()
            with tempfile.TemporaryDirectory() as runs:
                train_reader(
                    seeded, model, data, targets, hard[name], evaluation, Path(runs) / "trial"
                )
            seconds[name].append(perf_counter() - before)
            scores[name].append(reranked_scores(model, data, dual, retrieval.candidates))
            if data.held_out is not None:
                answers[name].append(validate(model, data.held_out, data.answers)["score"])
            print(name, seed, scores[name][-1].mean(1), answers[name][-1:], flush=True)
    seeded_scores = {name: np.stack(some) for name, some in scores.items()}
    best = {name: int(some.mean((0, 2)).argmax()) for name, some in seeded_scores.items()}
    chosen = {name: some[:, best[name]] for name, some in seeded_scores.items()}
    first = chosen[next(iter(variants))]
    return {
        "dual_weight": {name: DUAL_WEIGHTS[number] for name, number in best.items()},
        "mR": {name: some.mean(1).tolist() for name, some in chosen.items()},
        "answers": answers,
        "seconds": seconds,
        "above_the_first": {
            name: compare_queries(some, first)._asdict()
            for name, some in chosen.items()
            if some is not first
        },
    }


def reranked_scores(model: VQAModel, data: ReaderData, dual: DualScores, candidates: int) -> Array:
    """Return each validation image's share of mR, re-ranked, as a mean over languages.

    Returns:
        ``(weights, images)``, one row for each of `DUAL_WEIGHTS`.
    """
    assert data.validation is not None
    split = data.validation.split
    model.eval()
    pairs = pair_scores(
        model.cross_encoder, split.regions, split.captions, language_ids=None,
        views=split.regions.views,
    )  # fmt: skip
    by_language = []
    for language, rows in rows_by_language(split.captions):
        images = split.captions.record_ids[rows]
        lists = read_candidates(
            dual.cosines[language], pairs, rows, candidates, tta=dual.tta_of(language)
        )
        ranks = [ranks_from_shortlists(*lists.reranked(weight), images) for weight in DUAL_WEIGHTS]
        by_language.append(
            [
                image_scores(one.image_to_text, one.text_to_image, images, one.num_images)
                for one in ranks
            ]
        )
    means: Array = np.mean(by_language, axis=0)
    return means


if __name__ == "__main__":
    main()
