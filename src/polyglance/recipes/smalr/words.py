"""Train a model of whole words on pictures' features: SMALR, its ablations and its baselines.

One recipe covers all that SMALR is compared with (`polyglance.models.word_baselines`):
the model's name says which, and two further settings change the words before any
model sees them. A model for one language is trained once for each.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyglance.config import as_plain, load
from polyglance.evaluation.retrieval import mean_over_languages
from polyglance.models.smalr import SMALR, SMALRConfig, SMALRObjective
from polyglance.models.word_baselines import WORD_MODELS, WordModel, make_word_model
from polyglance.models.word_folder import save_words
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.common import keep, write_report
from polyglance.recipes.measuring import (
    by_language,
    checkpoint_score,
    coverage,
    encoder,
    figures,
    seen,
)
from polyglance.recipes.smalr.consistency import (
    asked_by_others,
    asked_word_by_word,
    consistency_figures,
)
from polyglance.recipes.smalr.pretraining import align_words, pretrained_latent
from polyglance.recipes.smalr.recipe import WordRecipe
from polyglance.recipes.smalr.world import World
from polyglance.training.hardening import FromEasyToHard
from polyglance.training.loop import Run, train
from polyglance.training.mixture import Mixture
from polyglance.training.smalr_tasks import CaptionGrids, DescribedPictures


def run(recipe: WordRecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured."""
    torch.set_float32_matmul_precision("high")
    world = World.open(recipe, data, device)
    keep(recipe, "words", out)
    model = _model(recipe, world.width)
    if recipe.translate_to is not None:
        report = _train(recipe, model, world.translated(recipe.translate_to), out)
    elif model.one_language:
        reports = {
            language: _train(recipe, model, world.of_language(language), out / language)
            for language in recipe.languages
        }
        report = _together(reports)
    else:
        report = _train(recipe, model, world, out)
    write_report(report, out)
    return report


def _model(recipe: WordRecipe, visual_width: int) -> WordModel:
    """The named model with the recipe's changes."""
    named = WORD_MODELS[recipe.model]
    config = {**as_plain(named.config), **recipe.shape, "visual_width": visual_width}
    objective = {**as_plain(named.objective), **recipe.objective, "triplets": recipe.triplets}
    return replace(
        named, config=load(SMALRConfig, config), objective=load(SMALRObjective, objective)
    )


def _train(recipe: WordRecipe, named: WordModel, world: World, out: Path) -> dict[str, Any]:
    """Train one model, measure it and keep it."""
    loop, device = recipe.loop, world.device
    lexicon = world.lexicon
    grids = CaptionGrids(
        world.captions["train"],
        sentences_each=recipe.sentences_each,
        languages_each=recipe.languages_each,
    )
    how: dict[str, Any] = {
        "rule": recipe.triplets,
        "easy_share": recipe.easy_share,
        "seed": loop.seed,
        "folder": out / "pretraining",
    }
    latent, moved, seconds = None, 0, 0.0
    if named.pretrained:
        latent, seconds = pretrained_latent(
            named.config,
            world.vectors.to(device),
            grids,
            recipe.pretraining,
            cache=world.cache,
            **how,
        )
        moved = sum(p.numel() for p in latent.parameters())
    elif not _has_projections(named):
        loop = replace(loop, steps=loop.steps + recipe.pretraining.steps)
    torch.manual_seed(loop.seed)
    model = make_word_model(
        named,
        lexicon.words,
        world.vectors,
        torch.from_numpy(lexicon.language_of),
        torch.from_numpy(lexicon.rank_in_language),
        steps=loop.steps,
        latent=latent,
    ).to(device)
    if isinstance(model.words, HybridEmbedding) and _has_projections(named) and latent is None:
        moved, seconds = align_words(model.words, grids, recipe.pretraining, **how)
    task = DescribedPictures(
        model, world.visuals["train"], grids, named.objective, batch=recipe.batch
    )
    finished = train(
        model,
        Mixture({"pictures": _hardening(task, recipe, loop.steps)}),
        loop,
        out,
        validate=lambda: checkpoint_score(world.measure(model, "validation")),
    )
    for needless in (
        "latest",
        "best",
        "pretraining/latest",
    ):  # the optimiser's memory is thrice the model
        shutil.rmtree(out / needless, ignore_errors=True)
    save_words(model, lexicon, out / "words", seen_by=world.seen_by)
    report = {
        "model": recipe.model,
        "words": len(lexicon),
        **_parameters(model),
        "pretraining_parameters": moved,
        **_outcome(finished),
        "pretraining_seconds": round(seconds, 1),
        "coverage": coverage(model, world.captions["test"], world.said),
        "validation": figures(world.measure(model, "validation")),
    }
    if recipe.measure_test:
        report["test"] = figures(world.measure(model, "test"))
        if recipe.consistency:
            report["consistency"] = _consistency(model, world)
    return report


def _has_projections(named: WordModel) -> bool:
    """Whether words have a layer into a universal space, which MULE's first stage is for."""
    return named.characters is None and named.config.projection != "none"


def _hardening(task: DescribedPictures, recipe: WordRecipe, steps: int) -> FromEasyToHard:
    """The task with its triplets from easy to hard."""

    def obey(rule: TripletRule) -> None:
        task.objective = replace(task.objective, triplets=rule)

    return FromEasyToHard(
        task,
        obey,
        recipe.triplets,
        candidates=task.batch * recipe.sentences_each,
        steps=round(recipe.easy_share * steps),
    )


def _parameters(model: SMALR) -> dict[str, int]:
    words = model.words
    shared = words.latent.shape[0] if isinstance(words, HybridEmbedding) else 0
    return {
        "trainable_parameters": model.trainable_parameters(),
        "word_parameters": sum(p.numel() for p in words.parameters()),
        "test_time_parameters": model.test_time_parameters(),
        "latent_tokens": shared,
    }


def _outcome(finished: Run) -> dict[str, Any]:
    return {
        "best_step": finished.best_step,
        "best_score": finished.best,
        "seconds": round(finished.seconds, 1),
    }


def _together(reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The report of one model a language: sizes add up, figures stand side by side."""
    added = ("words", "trainable_parameters", "word_parameters", "test_time_parameters", "seconds")
    first = next(iter(reports.values()))
    report: dict[str, Any] = {
        "model": first["model"],
        **{name: sum(one[name] for one in reports.values()) for name in added},
        "latent_tokens": 0,
        "pretraining_parameters": 0,
        "coverage": {code: one["coverage"][code] for code, one in reports.items()},
        "best_step": {language: one["best_step"] for language, one in reports.items()},
        "pretraining_seconds": 0.0,
    }
    for split in ("validation", "test"):
        if split in first:
            found = {language: one[split][language] for language, one in reports.items()}
            average = mean_over_languages({code: one["mR"] for code, one in found.items()})
            report[split] = {**found, "average": {"mR": average}}
    report["best_score"] = report["validation"]["average"]["mR"]
    return report


def _consistency(model: SMALR, world: World) -> dict[str, Any]:
    """CLC with translations word by word, and its upper bound: others' captions of the picture."""
    assert world.dictionaries is not None
    dictionaries, encode = world.dictionaries, encoder(model)
    base = replace(world.texts, lexicon=world.lexicon)
    pictures = {split: seen(model, world.visuals[split]) for split in ("validation", "test")}
    vectors = {split: encode(world.captions[split]) for split in ("validation", "test")}
    owners = {
        language: (
            world.captions["validation"].owners[world.captions["validation"].of_language(language)],
            world.captions["test"].owners[rows],
        )
        for language, rows in by_language(world.captions["test"])
    }

    def translate(source: str, target: str) -> Any:
        return dictionaries.numbers(base, source, target)

    def word_by_word(split: str, language: str) -> Tensor:
        captions = world.captions[split]
        return asked_word_by_word(captions, language, translate, encode, pictures[split])

    def by_others(split: str, language: str) -> Tensor:
        return asked_by_others(world.captions[split], language, vectors[split], pictures[split])

    return {
        name: consistency_figures(
            lambda language, ask=ask: ask("validation", language),  # type: ignore[misc]
            lambda language, ask=ask: ask("test", language),  # type: ignore[misc]
            owners,
        )
        for name, ask in (("dictionary", word_by_word), ("dataset", by_others))
    }
