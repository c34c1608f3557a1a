"""Train UC2: early adaptation, pre-training by four objectives, fine-tuning for retrieval.

The paper's settings are settings here: fine-tuned on English, on each language or on
all (Table 1, ``fine_tuning.languages``), asked in English by translation
(``translate_test``), without VTLM, MRTM or both (Table 3, ``pretraining.mixture``),
pivoting on English instead of pictures (Table 4, ``pretraining.pivot``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polyglance.config import as_plain
from polyglance.models.uc2 import UC2
from polyglance.recipes.common import write_report
from polyglance.recipes.pairs.measuring import measure, report_test, validate
from polyglance.recipes.pairs.region_splits import ENGLISH
from polyglance.recipes.pairs.uc2_recipe import (
    Adaptation,
    FineTuning,
    Pretraining,
    Shares,
    UC2Recipe,
)
from polyglance.recipes.pairs.uc2_world import World
from polyglance.recipes.pairs.untrained import begin_with_stage, untrained_uc2
from polyglance.recipes.stages import learning_faster, matching_steps, run_stage, stage_loop
from polyglance.training.early_adaptation import EarlyAdaptation, adaptation_figures
from polyglance.training.loop import Validate
from polyglance.training.mismatches import lookalikes
from polyglance.training.mixture import Mixture, Task
from polyglance.training.uc2_tasks import (
    PictureMatching,
    PictureRanking,
    PictureWords,
    RegionNames,
    TranslatedWords,
)


def run(recipe: UC2Recipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured."""
    torch.set_float32_matmul_precision("high")
    recipe = recipe.begin("uc2", data, out)
    world = World.open(recipe, data, device)
    in_english = None  # before training: a translator that is missing is found out now
    if recipe.translate_test is not None and world.test is not None:
        in_english = world.translated(world.test, recipe.translate_test)
    model = build_model(recipe, world, device)
    begin_with_stage(model, recipe)
    groups = learning_faster(model, model.encoder, recipe.new_rate)
    report: dict[str, Any] = {"languages": list(world.languages)}
    if recipe.names_labels:
        report["labels"] = {"named": dict(world.labels.own)}
    tasks = _tasks(recipe, model, world)
    if recipe.adaptation is not None:
        report["adaptation"] = _adapt(recipe, recipe.adaptation, model, world, out / "adaptation")
    if recipe.alignment is not None:
        report["alignment"] = recipe.alignment.run(
            model, world.train, world.validation, recipe.loop, out / "alignment", groups
        )
    if recipe.pretraining is not None:
        stage = recipe.pretraining
        first, steps = matching_steps(stage, matches=stage.mixture.itm > 0)
        if first:
            alone = _objectives(recipe, replace(stage, mixture=Shares(1, 0, 0, 0)), model, world)
            loop = stage_loop(recipe.loop, stage, steps=first)
            report["matching"] = run_stage(model, alone, loop, out / "matching", groups=groups)
        loop = stage_loop(recipe.loop, stage, steps=steps)
        report["pretraining"] = run_stage(
            model, tasks["pretraining"], loop, out / "pretraining", groups=groups
        )
    if recipe.imitation is not None:
        reader = recipe.reader(data, world.tokenizer, device)
        report["imitation"] = recipe.imitation.run(
            model, world.train, reader, recipe.loop, out / "imitation", groups
        )
    if recipe.fine_tuning is not None:
        choose = _choosing(recipe.fine_tuning, model, world)
        report["fine_tuning"] = run_stage(
            model,
            tasks["fine_tuning"],
            recipe.loop,
            out / "fine_tuning",
            choose=choose,
            groups=groups,
        )
    if world.test is not None:
        report |= report_test(
            model,
            world.test,
            world.validation,
            data,
            all_pairs=recipe.all_pairs,
            reranking=recipe.reranking,
            reader=recipe.reader(data, world.tokenizer, device),
        )
        if in_english is not None:
            report["translate_test"] = measure(model, in_english)
    write_report(report, out)
    return report


def _tasks(recipe: UC2Recipe, model: UC2, world: World) -> dict[str, Mixture]:
    """What stages learn from, before the first begins: what is not there ends none half-way."""
    tasks = {}
    if recipe.pretraining is not None:
        tasks["pretraining"] = _objectives(recipe, recipe.pretraining, model, world)
    if recipe.fine_tuning is not None:
        ranking = _ranking(recipe.fine_tuning, model, world, recipe.loop.steps)
        tasks["fine_tuning"] = Mixture({"ranking": ranking})
    return tasks


def build_model(recipe: UC2Recipe, world: World, device: str = "cpu") -> UC2:
    """The model to begin with."""
    return untrained_uc2(recipe, world.tokenizer, world.train.regions.width).to(device)


def _adapt(
    recipe: UC2Recipe, stage: Adaptation, model: UC2, world: World, folder: Path
) -> dict[str, Any]:
    """The image encoder alone learns; reported is where label words come before and after."""
    seen = world.train if world.validation is None else world.validation

    def ranks() -> dict[str, dict[str, float]]:
        return adaptation_figures(model, seen.regions, world.label_words, stage.languages)

    before = ranks()
    task = EarlyAdaptation(
        model,
        world.train.regions,
        world.believed(),
        world.label_words,
        languages=stage.languages,
        batch=stage.batch,
        temperature=stage.temperature,
    )
    groups = [{"params": model.image_encoder()}]
    tasks = Mixture({"adaptation": task})
    done = run_stage(model, tasks, stage_loop(recipe.loop, stage), folder, groups=groups)
    return {**done, "rank_before": before, "rank_after": ranks()}


def _objectives(recipe: UC2Recipe, stage: Pretraining, model: UC2, world: World) -> Mixture:
    """Those of the mixture that are drawn at all, so that nothing is asked of the data in vain."""
    by_image = stage.pivot == "image"
    corpus = world.corpus(stage.languages if by_image else (ENGLISH,))
    made: dict[str, Callable[[], Task]] = {
        "itm": lambda: PictureMatching(model, corpus, batch=stage.batch, form=recipe.form),
        "mlm": lambda: PictureWords(model, corpus, world.masking(stage), batch=stage.batch),
        "mrtm": lambda: RegionNames(
            model, corpus, world.label_words, batch=stage.batch, form=recipe.form
        ),
        "vtlm": lambda: TranslatedWords(
            model,
            world.train.regions if by_image else None,
            world.pairs(stage.languages),
            world.masking(stage),
            batch=stage.batch,
            co_masked=stage.co_masked if by_image else 0.0,
        ),
    }
    shares: dict[str, float] = as_plain(stage.mixture)
    return Mixture({name: make() for name, make in made.items() if shares[name] > 0}, shares)


def _ranking(stage: FineTuning, model: UC2, world: World, steps: int) -> Task:
    corpus = world.corpus(stage.languages, smoothing=stage.smoothing)
    near = None
    if stage.lookalikes:
        near = lookalikes(corpus.regions, corpus.captions.items, stage.lookalikes)
    return PictureRanking(
        model,
        corpus,
        batch=stage.batch,
        negatives=stage.negatives,
        margin=stage.margin,
        loss=stage.loss,
        neighbours=near,
        easy_steps=round(stage.easy_share * steps),
    )


def _choosing(stage: FineTuning, model: UC2, world: World) -> Validate | None:
    """Retrieval on the validation, in the languages fine-tuned on alone."""
    split, languages = world.validation, stage.languages or world.languages
    return None if split is None else lambda: validate(model, split, languages)
