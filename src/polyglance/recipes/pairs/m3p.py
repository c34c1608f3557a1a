"""Train M3P: code-switched multitask pre-training, then fine-tuning for retrieval.

The paper's settings (section 4.4) are settings here: without fine-tuning
(``fine_tuning: null``), on English, on each language or on all (``languages``), with
and without code-switching in either stage (Tables 3 and 6), on fewer tasks (Table 5),
with more or fewer languages to switch to (Table 4). Measured by reading every pair,
and by reading again what a dual encoder found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P
from polyglance.recipes.common import write_report
from polyglance.recipes.pairs.m3p_recipe import FineTuning, M3PRecipe, Pretraining
from polyglance.recipes.pairs.m3p_world import World
from polyglance.recipes.pairs.measuring import report_test, validate
from polyglance.recipes.pairs.region_splits import ENGLISH
from polyglance.recipes.pairs.untrained import begin_with_stage, keep_languages, untrained_m3p
from polyglance.recipes.stages import learning_faster, matching_steps, run_stage, stage_loop
from polyglance.training.loop import Validate
from polyglance.training.m3p_tasks import (
    DescribedRegions,
    MultilingualText,
    PairObjective,
    PairTask,
)
from polyglance.training.mismatches import lookalikes
from polyglance.training.mixture import Mixture, Task
from polyglance.training.pairing import Together


def run(recipe: M3PRecipe, data: Path, out: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train by a recipe on the data under a folder; returns and writes what was measured."""
    torch.set_float32_matmul_precision("high")
    recipe = recipe.begin("m3p", data, out)
    world = World.open(recipe, data, device)
    model = build_model(recipe, world, device)
    begin_with_stage(model, recipe)
    groups = learning_faster(model, model.encoder, recipe.new_rate)
    report: dict[str, Any] = {"languages": list(model.config.languages)}
    keep_languages(model.config.languages, out)
    tasks = _tasks(recipe, model, world)
    if recipe.alignment is not None:
        report["alignment"] = recipe.alignment.run(
            model, world.train, world.validation, recipe.loop, out / "alignment", groups
        )
    if recipe.pretraining is not None:
        stage = recipe.pretraining
        first, steps = matching_steps(stage, matches="matching" in stage.tasks)
        if first:
            task = _pairs(stage, ("matching",), model, world)
            loop = stage_loop(recipe.loop, stage, steps=first)
            report["matching"] = run_stage(
                model, Mixture({"all": task}), loop, out / "matching", groups=groups
            )
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
    write_report(report, out)
    return report


def _tasks(recipe: M3PRecipe, model: M3P, world: World) -> dict[str, Mixture]:
    """What stages learn from, before the first begins: what is not there ends none half-way."""
    tasks: dict[str, Task] = {}
    if recipe.pretraining is not None:
        tasks["pretraining"] = _pretraining(recipe.pretraining, model, world)
    if recipe.fine_tuning is not None:
        tasks["fine_tuning"] = _fine_tuning(recipe.fine_tuning, model, world)
    return {stage: Mixture({"all": task}) for stage, task in tasks.items()}


def _choosing(stage: FineTuning, model: M3P, world: World) -> Validate | None:
    """Retrieval on the validation, in the languages fine-tuned on alone."""
    split = world.validation
    if split is None:
        return None
    languages = (ENGLISH,) if stage.switched else stage.languages or world.train.captions.names
    return lambda: validate(model, split, languages)


def build_model(recipe: M3PRecipe, world: World, device: str = "cpu") -> M3P:
    """The model to begin with, fit for the labels of regions."""
    model = untrained_m3p(recipe, world.tokenizer, world.train.regions.width, world.languages)
    if int(world.train.regions.labels.max()) >= model.config.labels:
        raise PolyglanceError(f"labels is {model.config.labels}, and the store of regions has more")
    return model.to(device)


def _pairs(stage: Pretraining, tasks: tuple[PairTask, ...], model: M3P, world: World) -> Task:
    objective = PairObjective(world.masking, tasks=tasks, negatives=stage.negatives)
    captions = world.captions(switched=stage.switched, languages=(ENGLISH,))
    return DescribedRegions(model, world.train.regions, captions, objective, batch=stage.batch)


def _pretraining(stage: Pretraining, model: M3P, world: World) -> Task:
    tasks: list[tuple[str, Task, float]] = [
        ("pairs", _pairs(stage, stage.tasks, model, world), 1.0)
    ]
    if stage.text_batch:
        if world.texts is None:
            raise PolyglanceError("xMLM needs texts: name some, or set text_batch to 0")
        text = MultilingualText(model, world.texts, world.masking, batch=stage.text_batch)
        tasks.append(("text", text, 1.0))
    return Together(tasks)


def _fine_tuning(stage: FineTuning, model: M3P, world: World) -> Task:
    objective = PairObjective(world.masking, tasks=("matching",), negatives=stage.negatives)
    captions = world.captions(
        switched=stage.switched, languages=stage.languages, smoothing=stage.smoothing
    )
    regions = world.train.regions
    return DescribedRegions(
        model,
        regions,
        captions,
        objective,
        batch=stage.batch,
        neighbours=lookalikes(regions, captions.items, stage.lookalikes)
        if stage.lookalikes
        else None,
        easy_steps=round(stage.easy_share * world.recipe.loop.steps),
    )
