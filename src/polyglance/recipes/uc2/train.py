"""Train UC2: early adaptation, pre-training with four objectives, fine-tuning for retrieval.

The paper's comparisons are settings: fine-tuning on English, on each language or on all
(Table 1, ``fine_tuning.languages``), translate-test (``translate_test``), no VTLM, MRTM or
either (Table 3, ``pretraining.mixture``), English instead of the image as the pivot (Table 4,
``pretraining.pivot``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polyglance import weights
from polyglance.config import as_plain
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2, UC2Config, reference_encoder
from polyglance.models.uc2_checkpoints import load_uc2
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.cross_encoder.build import (
    check_published,
    load_initial_weights,
    prepare_run,
    published_checkpoint,
    set_dropout,
    write_model_folder,
)
from polyglance.recipes.cross_encoder.contrastive import contrastive_stage
from polyglance.recipes.cross_encoder.data import ENGLISH, bert_masking
from polyglance.recipes.cross_encoder.distillation import distillation_task
from polyglance.recipes.cross_encoder.evaluation import evaluate_split, evaluate_test, validate
from polyglance.recipes.cross_encoder.hard_negatives import mine_hard_negatives
from polyglance.recipes.cross_encoder.word_head import (
    encoder_word_head,
    has_word_transform,
    word_head_stage,
)
from polyglance.recipes.run_folder import write_report
from polyglance.recipes.stages import (
    Stage,
    fine_tuning_loop,
    parameter_groups,
    split_pretraining_steps,
    stage_loop,
)
from polyglance.recipes.uc2.config import (
    EarlyAdaptationConfig,
    FineTuning,
    Pretraining,
    UC2Recipe,
)
from polyglance.recipes.uc2.data import UC2Data, load_data
from polyglance.recipes.uc2.early_adaptation import EarlyAdaptationTask, label_rank_statistics
from polyglance.recipes.uc2.tasks import ITMTask, MLMTask, MRTMTask, RetrievalTask, VTLMTask
from polyglance.training.mixture import Mixture, Task


def train(recipe: UC2Recipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train and evaluate UC2.

    Args:
        recipe: the settings.
        data: the data folder.
        run: the run folder; an interrupted run continues.
        device: a device of torch.

    Returns:
        The report, which is also in ``report.json``. The run folder is a model folder.
    """
    torch.set_float32_matmul_precision("high")
    recipe = prepare_run(recipe, "uc2", data, run)
    uc2_data = load_data(recipe, data, device)
    model = build_model(recipe, uc2_data).to(device)
    load_initial_weights(model, recipe)
    stages = build_stages(recipe, model, uc2_data)
    predicts_words = {stage.name: _predicts_words(recipe, stage.name) for stage in stages}
    folder = (run, "uc2", recipe, model, uc2_data.tokenizer, data, predicts_words)
    write_model_folder(*folder)

    report: dict[str, Any] = {"languages": list(uc2_data.languages)}
    if uc2_data.label_names is not None:
        report["labels"] = {"named": dict(uc2_data.label_names.coverage)}
    for stage in stages:
        report[stage.name] = stage.run(model, run / stage.name)
    if uc2_data.test is not None:
        report |= evaluate_test(
            model,
            uc2_data.test,
            uc2_data.validation,
            uc2_data.reader,
            all_pairs=recipe.all_pairs,
            reranking=recipe.reranking,
            more=uc2_data.more_test,
        )
    if uc2_data.translated_test:
        translated, *more = uc2_data.translated_test
        report["translate_test"] = evaluate_split(model, translated, more=more)
    write_model_folder(*folder, dual_weight=report.get("validation", {}).get("dual_weight"))
    write_report(report, run)
    return report


def build_model(recipe: UC2Recipe, data: UC2Data) -> UC2:
    """Build UC2 on a pretrained text encoder, or read a published checkpoint."""
    width = data.train.regions.width
    if (path := published_checkpoint(recipe)) is not None:
        if recipe.variant != "reference":
            raise PolyglanceError(
                f"{path} is a checkpoint of the published code: set variant to reference"
            )
        model = load_uc2(path, allow_missing_heads=recipe.allow_missing_heads)
        check_published(path, model, data.tokenizer, width)
        set_dropout(model, recipe.dropout)
        return model
    adapt = reference_encoder if recipe.variant == "reference" else None
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout, adapt=adapt)
    head, stage = encoder_word_head(recipe), recipe.pretraining
    config = UC2Config(
        encoder.config,
        width,
        variant=recipe.variant,
        word_transform=has_word_transform(recipe, head),
        tlm_positions=None if stage is None else stage.tlm_positions,
    )
    torch.manual_seed(recipe.loop.seed)
    model = UC2(config, encoder)
    if head is not None:
        model.load_word_head(head)
    return model


def build_stages(recipe: UC2Recipe, model: UC2, data: UC2Data) -> list[Stage]:
    """Build every stage's tasks first, so that missing data fails before training starts."""
    groups = parameter_groups(model, model.encoder, recipe.head_lr_multiplier)
    stages = []
    split = data.validation
    if (head := word_head_stage(recipe, model, data.train.captions, data.tokenizer)) is not None:
        stages.append(head)
    if (adaptation := recipe.early_adaptation) is not None:
        stages.append(early_adaptation_stage(recipe, adaptation, model, data))
    if (contrastive := recipe.contrastive_stage) is not None:
        loop = stage_loop(recipe.loop, contrastive)
        stages.append(contrastive_stage(contrastive, loop, model, data.train, split, groups))
    if (pretraining := recipe.pretraining) is not None:
        tasks = pretraining_tasks(recipe, pretraining, model, data)
        itm_steps, steps = split_pretraining_steps(pretraining, has_itm="itm" in tasks)
        if itm_steps:
            loop = stage_loop(recipe.loop, pretraining, steps=itm_steps)
            stages.append(Stage("itm_only", Mixture({"itm": tasks["itm"]}), loop, groups))
        mixture = Mixture(tasks, as_plain(pretraining.mixture))
        loop = stage_loop(recipe.loop, pretraining, steps=steps)
        stages.append(Stage("pretraining", mixture, loop, groups))
    if (distillation := recipe.distillation) is not None:
        teacher = distillation_task(distillation, model, data.train, data.reader)
        loop = stage_loop(recipe.loop, distillation)
        stages.append(Stage("distillation", Mixture({"distillation": teacher}), loop, groups))
    if (fine_tuning := recipe.fine_tuning) is not None:
        languages = fine_tuning.languages or data.languages
        loop = fine_tuning_loop(recipe.loop, fine_tuning, data.train.captions.count(languages))
        retrieval = fine_tuning_task(fine_tuning, model, data, loop.steps)
        stages.append(
            Stage(
                "fine_tuning",
                Mixture({"retrieval": retrieval}),
                loop,
                groups,
                validate=None
                if split is None
                else lambda: validate(model, split, languages, more=data.more_validation),
            )
        )
    return stages


def early_adaptation_stage(
    recipe: UC2Recipe, config: EarlyAdaptationConfig, model: UC2, data: UC2Data
) -> Stage:
    """Train the image encoder alone; report the rank of label names before and after."""
    assert data.soft_labels is not None
    assert data.label_tokens is not None
    labels = data.label_tokens
    task = EarlyAdaptationTask(
        model,
        data.train.regions,
        data.soft_labels,
        labels,
        languages=config.languages,
        batch=config.batch,
        temperature=config.temperature,
    )
    regions = (data.validation or data.train).regions

    def ranks() -> dict[str, dict[str, float]]:
        return label_rank_statistics(model, regions, labels, config.languages)

    before = ranks()
    return Stage(
        "early_adaptation",
        Mixture({"early_adaptation": task}),
        stage_loop(recipe.loop, config),
        [{"params": model.image_encoder_parameters()}],
        measure=lambda: {"rank_before": before, "rank_after": ranks()},
    )


def pretraining_tasks(
    recipe: UC2Recipe, config: Pretraining, model: UC2, data: UC2Data
) -> dict[str, Task]:
    """Build the objectives that the mixture draws at all."""
    by_image = config.pivot == "image"
    corpus = data.corpus(config.languages if by_image else (ENGLISH,), batch=config.batch)
    at_least_one = config.masks_at_least_one(recipe.variant)
    masking = replace(
        bert_masking(data.tokenizer, recipe.encoder),
        masked=config.masked,
        random=config.random,
        at_least_one="masked" if at_least_one else "no",
    )
    tasks: dict[str, Task] = {}
    if config.mixture.itm > 0:
        tasks["itm"] = ITMTask(model, corpus, batch=config.batch, variant=recipe.variant)
    if config.mixture.mlm > 0:
        tasks["mlm"] = MLMTask(model, corpus, masking, batch=config.batch)
    if config.mixture.mrtm > 0:
        assert data.label_tokens is not None
        tasks["mrtm"] = MRTMTask(
            model,
            corpus,
            data.label_tokens,
            batch=config.batch,
            variant=recipe.variant,
            at_least_one=at_least_one,
        )
    if config.mixture.vtlm > 0:
        assert data.aligned_captions is not None
        tasks["vtlm"] = VTLMTask(
            model,
            data.train.regions if by_image else None,
            data.aligned_captions,
            masking,
            batch=config.batch,
            co_masked=config.co_masked if by_image else 0.0,
        )
    return tasks


def fine_tuning_task(config: FineTuning, model: UC2, data: UC2Data, steps: int) -> RetrievalTask:
    """Build the ranking task, with hard negatives if they are asked for."""
    corpus = data.corpus(config.languages, batch=config.batch, language_alpha=config.language_alpha)
    hard_negatives = None
    if config.hard_negative_pool:
        hard_negatives = mine_hard_negatives(
            corpus.regions, corpus.captions.images, config.hard_negative_pool
        )
    return RetrievalTask(
        model,
        corpus,
        batch=config.batch,
        negatives=config.negatives,
        margin=config.margin,
        loss=config.loss,
        hard_negatives=hard_negatives,
        warmup_steps=round(config.hard_negative_warmup * steps),
    )


def _predicts_words(recipe: UC2Recipe, stage: str) -> bool:
    """Return whether a stage's weights have been trained to predict words masked beside images."""
    if recipe.pretraining is None or stage not in ("pretraining", "distillation", "fine_tuning"):
        return False
    mixture, pivot = recipe.pretraining.mixture, recipe.pretraining.pivot
    # With English as the pivot, VTLM has no images.
    return mixture.mlm > 0 or (mixture.vtlm > 0 and pivot == "image")
