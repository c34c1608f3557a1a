"""Train M3P: code-switched multitask pre-training, then fine-tuning for retrieval.

The paper's comparisons (section 4.4) are settings: no fine-tuning (``fine_tuning: null``),
fine-tuning on English, on each language or on all (``fine_tuning.languages``), with and
without code-switching in either stage (Tables 3 and 6), fewer tasks (Table 5), more or fewer
languages to switch to (Table 4). Evaluation scores every pair, and re-ranks the candidates of
a dual encoder.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyglance import weights
from polyglance.cross_encoders.model_folder import read_config
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig, reference_encoder
from polyglance.models.m3p_checkpoints import load_m3p
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.cross_encoder.build import (
    check_published,
    load_initial_weights,
    prepare_run,
    published_checkpoint,
    set_dropout,
    write_model_folder,
)
from polyglance.recipes.cross_encoder.captions import CaptionSource
from polyglance.recipes.cross_encoder.contrastive import contrastive_stage
from polyglance.recipes.cross_encoder.data import ENGLISH, bert_masking
from polyglance.recipes.cross_encoder.distillation import distillation_task
from polyglance.recipes.cross_encoder.evaluation import evaluate_test, validate
from polyglance.recipes.cross_encoder.hard_negatives import mine_hard_negatives
from polyglance.recipes.cross_encoder.word_head import (
    encoder_word_head,
    has_word_transform,
    word_head_stage,
)
from polyglance.recipes.m3p.config import FineTuning, M3PRecipe, Pretraining
from polyglance.recipes.m3p.data import M3PData, load_data
from polyglance.recipes.m3p.tasks import MCTObjective, MCTTask, XMLMTask
from polyglance.recipes.run_folder import has_checkpoint, write_report
from polyglance.recipes.stages import (
    Stage,
    fine_tuning_loop,
    parameter_groups,
    split_pretraining_steps,
    stage_loop,
)
from polyglance.training.mixture import Mixture, MultiTask, Task

_LANGUAGE_EMBEDDINGS = "languages.weight"


def train(recipe: M3PRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train and evaluate M3P.

    Args:
        recipe: the settings.
        data: the data folder.
        run: the run folder; an interrupted run continues.
        device: a device of torch.

    Returns:
        The report, which is also in ``report.json``. The run folder is a model folder.
    """
    torch.set_float32_matmul_precision("high")
    recipe = prepare_run(recipe, "m3p", data, run)
    m3p_data = load_data(recipe, data, device)
    model = build_model(recipe, m3p_data).to(device)
    load_initial_weights(model, recipe, fit=partial(_match_languages, model, recipe))
    _require_same_languages(model, run)
    stages = build_stages(recipe, model, m3p_data)
    predicts_words = {stage.name: _predicts_words(recipe, stage.name) for stage in stages}
    folder = (run, "m3p", recipe, model, m3p_data.tokenizer, data, predicts_words)
    write_model_folder(*folder)

    report: dict[str, Any] = {"languages": list(model.config.languages)}
    for stage in stages:
        report[stage.name] = stage.run(model, run / stage.name)
    if m3p_data.test is not None:
        report |= evaluate_test(
            model,
            m3p_data.test,
            m3p_data.validation,
            m3p_data.reader,
            all_pairs=recipe.all_pairs,
            reranking=recipe.reranking,
            more=m3p_data.more_test,
        )
    write_model_folder(*folder, dual_weight=report.get("validation", {}).get("dual_weight"))
    write_report(report, run)
    return report


def build_model(recipe: M3PRecipe, data: M3PData) -> M3P:
    """Build M3P on a pretrained text encoder, or read a published checkpoint.

    A published checkpoint that names its languages (``lang2id``) keeps the embeddings of those
    that the data have; all others start from zero.
    """
    width = data.train.regions.width
    if (path := published_checkpoint(recipe)) is not None:
        if recipe.variant != "reference":
            raise PolyglanceError(
                f"{path} is a checkpoint of the published code: set variant to reference"
            )
        published = load_m3p(path, allow_missing_heads=recipe.allow_missing_heads)
        check_published(path, published, data.tokenizer, width)
        model = M3P(replace(published.config, languages=data.languages))
        known, state = published.config.languages, dict(published.state_dict())
        rows = _select_languages(model, known, state[_LANGUAGE_EMBEDDINGS])
        model.load_state_dict(state | {_LANGUAGE_EMBEDDINGS: rows})
        set_dropout(model, recipe.dropout)
    else:
        adapt = reference_encoder if recipe.variant == "reference" else None
        encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout, adapt=adapt)
        head = encoder_word_head(recipe)
        config = M3PConfig(
            encoder=encoder.config,
            languages=data.languages,
            visual_width=width,
            num_labels=recipe.labels,
            variant=recipe.variant,
            word_transform=has_word_transform(recipe, head),
        )
        torch.manual_seed(recipe.loop.seed)
        model = M3P(config, encoder)
        if head is not None and recipe.variant == "paper":  # the published code has no such layers
            model.load_word_head(head)
    classes = model.config.num_labels
    if recipe.predicts_labels and data.train.regions.max_label() >= classes:
        if path is None:
            raise PolyglanceError(f"labels is {classes}, and the feature store has more: raise it")
        raise PolyglanceError(
            f"{path} predicts {classes} labels of regions, and the feature store has more: leave"
            " mc_mrm out of pretraining.tasks"
        )
    return model


def build_stages(recipe: M3PRecipe, model: M3P, data: M3PData) -> list[Stage]:
    """Build every stage's tasks first, so that missing data fails before training starts."""
    groups = parameter_groups(model, model.encoder, recipe.head_lr_multiplier)
    stages = []
    split = data.validation
    if (head := word_head_stage(recipe, model, data.train.captions, data.tokenizer)) is not None:
        stages.append(head)
    if (contrastive := recipe.contrastive_stage) is not None:
        loop = stage_loop(recipe.loop, contrastive)
        stages.append(contrastive_stage(contrastive, loop, model, data.train, split, groups))
    if (pretraining := recipe.pretraining) is not None:
        stages += pretraining_stages(recipe, pretraining, model, data, groups)
    if (distillation := recipe.distillation) is not None:
        teacher = distillation_task(distillation, model, data.train, data.reader)
        loop = stage_loop(recipe.loop, distillation)
        stages.append(Stage("distillation", Mixture({"distillation": teacher}), loop, groups))
    if (fine_tuning := recipe.fine_tuning) is not None:
        languages = fine_tuning.languages or data.train.captions.language_codes
        if fine_tuning.code_switched:
            languages = (ENGLISH,)
        loop = fine_tuning_loop(recipe.loop, fine_tuning, data.train.captions.count(languages))
        matching = fine_tuning_task(recipe, fine_tuning, model, data, loop.steps)
        stages.append(
            Stage(
                "fine_tuning",
                Mixture({"mct": matching}),
                loop,
                groups,
                validate=None
                if split is None
                else lambda: validate(model, split, languages, more=data.more_validation),
            )
        )
    return stages


def pretraining_stages(
    recipe: M3PRecipe,
    config: Pretraining,
    model: M3P,
    data: M3PData,
    groups: list[dict[str, Any]],
) -> list[Stage]:
    """Build pre-training: MC-VLM alone if asked for, then all tasks, summed as in the paper."""
    masking = bert_masking(data.tokenizer, recipe.encoder)
    captions: CaptionSource
    if config.code_switched:
        captions = data.code_switched_captions(recipe.code_switching, recipe.loop.seed)
    else:
        captions = data.plain_captions((ENGLISH,))
    at_least_one = config.masks_at_least_one(recipe.variant)
    objective = MCTObjective(
        replace(masking, at_least_one="drawn") if at_least_one else masking,
        tasks=config.tasks,
        negatives=config.negatives,
        at_least_one_region=at_least_one,
        skip_background=config.skip_background,
    )

    def pairs(objective: MCTObjective) -> MCTTask:
        return MCTTask(
            model,
            data.train.regions,
            captions,
            objective,
            batch=config.batch,
            streaming=data.train.streaming(config.batch, seed=recipe.loop.seed),
        )

    tasks: list[tuple[str, Task, float]] = [("mct", pairs(objective), 1.0)]
    if config.text_batch:
        if data.texts is None:
            raise PolyglanceError("xMLM needs texts: name some, or set text_batch to 0")
        text = XMLMTask(model, data.texts, masking, batch=config.text_batch)
        tasks.append(("text", text, 1.0))
    stages = []
    itm_steps, steps = split_pretraining_steps(config, has_itm="mc_vlm" in config.tasks)
    if itm_steps:
        matching = pairs(replace(objective, tasks=("mc_vlm",)))
        loop = stage_loop(recipe.loop, config, steps=itm_steps)
        stages.append(Stage("itm_only", Mixture({"mct": matching}), loop, groups))
    loop = stage_loop(recipe.loop, config, steps=steps)
    stages.append(Stage("pretraining", Mixture({"all": MultiTask(tasks)}), loop, groups))
    return stages


def fine_tuning_task(
    recipe: M3PRecipe, config: FineTuning, model: M3P, data: M3PData, steps: int
) -> MCTTask:
    """Build MC-VLM alone, with hard negatives if they are asked for."""
    captions: CaptionSource
    if config.code_switched:
        captions = data.code_switched_captions(recipe.code_switching, recipe.loop.seed)
    else:
        captions = data.plain_captions(config.languages, language_alpha=config.language_alpha)
    masking = bert_masking(data.tokenizer, recipe.encoder)
    hard_negatives = None
    if config.hard_negative_pool:
        hard_negatives = mine_hard_negatives(
            data.train.regions, captions.images, config.hard_negative_pool
        )
    return MCTTask(
        model,
        data.train.regions,
        captions,
        MCTObjective(masking, tasks=("mc_vlm",), negatives=config.negatives),
        batch=config.batch,
        hard_negatives=hard_negatives,
        warmup_steps=round(config.hard_negative_warmup * steps),
        streaming=data.train.streaming(config.batch, seed=recipe.loop.seed),
    )


def _match_languages(
    model: M3P, recipe: M3PRecipe, tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Give each language its embedding of another run; unknown ones start from zero."""
    folder = Path(str(recipe.initialise_from))
    known = _saved_languages(folder.parent) or _saved_languages(folder.parent.parent)
    embeddings = tensors[_LANGUAGE_EMBEDDINGS]
    if len(known) != len(embeddings):
        raise ValueError("its run does not say which languages its model has embeddings for")
    return tensors | {_LANGUAGE_EMBEDDINGS: _select_languages(model, known, embeddings)}


def _select_languages(model: M3P, known: tuple[str, ...], embeddings: Tensor) -> Tensor:
    """Return the embeddings of the model's languages; those not among ``known`` are zero."""
    rows = torch.zeros_like(model.languages.weight)
    for number, language in enumerate(model.config.languages):
        if language in known:
            rows[number] = embeddings[known.index(language)]
    return rows.detach()


def _require_same_languages(model: M3P, run: Path) -> None:
    """Refuse to resume a run whose language embeddings are of other languages."""
    saved = _saved_languages(run)
    if has_checkpoint(run) and saved not in ((), model.config.languages):
        raise PolyglanceError(
            f"{run} holds a run in other languages ({', '.join(saved)}): train into another folder"
        )


def _saved_languages(run: Path) -> tuple[str, ...]:
    """Return the languages of a run's language embeddings, or none if it has no model folder."""
    config = read_config(run)
    return config.model.languages if config and isinstance(config.model, M3PConfig) else ()


def _predicts_words(recipe: M3PRecipe, stage: str) -> bool:
    """Return whether a stage's weights have been trained to predict words masked beside images."""
    stages = ("pretraining", "distillation", "fine_tuning")
    return (
        recipe.pretraining is not None and "mc_mlm" in recipe.pretraining.tasks and stage in stages
    )
