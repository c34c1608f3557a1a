"""Train MMP on features extracted beforehand, of clips or of images.

One recipe covers the paper's settings (section 5.3): English only, several languages,
translate-train, pre-training on subtitled video, fine-tuning from it, and the image variant
that starts from a video model (section 5.6).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from polyglance import weights
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.models.mmp_folder import TrainedFeatures, save_mmp
from polyglance.nn.pretrained import distinct_tensors, load_encoder
from polyglance.recipes.mmp.config import MMPRecipe
from polyglance.recipes.mmp.data import (
    MMPData,
    SubtitledVideos,
    corpus_name,
    load_data,
    with_mask_id,
)
from polyglance.recipes.mmp.evaluation import (
    direction_report,
    recall_sums,
    retrieval_by_language,
)
from polyglance.recipes.mmp.feature_sources import FeatureSource, Float16Array
from polyglance.recipes.mmp.initialise import initialise_from
from polyglance.recipes.mmp.tasks import MMPTask, SubtitleTask
from polyglance.recipes.run_folder import save_recipe, write_report
from polyglance.records import Record
from polyglance.training.distributed import full_tensor, rank
from polyglance.training.loop import Validate, train_loop
from polyglance.training.mixture import Mixture, MultiTask, Task

MODEL_FOLDER = "model"
"""Folder of a run with its trained model (`polyglance.models.mmp_folder`)."""


def train(recipe: MMPRecipe, data: Path, run: Path, *, device: str = "cpu") -> dict[str, Any]:
    """Train a recipe; return and write its report.

    Under `polyglance.training.distributed.init_distributed` all processes call this together.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        run: Run folder; an interrupted run continues.
        device: Where to train.
    """
    torch.set_float32_matmul_precision("high")
    corpora = load_data(recipe, data, device)
    model = build_model(recipe, corpora.feature_width, device)
    if recipe.initialise_from is not None:
        initialise_from(model, Path(recipe.initialise_from))
    tasks = build_tasks(recipe, corpora, model)
    validate = _validation(model, corpora)
    save_recipe(recipe, "mmp", run)
    result = train_loop(
        model,
        Mixture({"all": MultiTask(tasks)}),
        recipe.loop,
        run,
        validate=validate,
        param_groups=parameter_groups(model, recipe),
    )
    _save_model(model, recipe, corpora, run / MODEL_FOLDER)
    report: dict[str, Any] = {
        "trained_on": sorted(corpora.languages),
        "best_step": result.best_step,
        "best_score": result.best,
        "seconds": round(result.seconds, 1),
    }
    if corpora.validation is not None:
        report["validation"] = direction_report(retrieval_by_language(model, corpora.validation))
    if recipe.test is not None and corpora.test is not None:
        # Not comparable with one query a clip, so under another name.
        name = "test_all_captions" if recipe.test.all_captions else "test"
        report[name] = direction_report(retrieval_by_language(model, corpora.test))
    if corpora.extra_tests:
        report["extra_tests"] = {
            name: direction_report(retrieval_by_language(model, split))
            for name, split in corpora.extra_tests.items()
        }
    write_report(report, run)
    return report


def _save_model(model: MMP, recipe: MMPRecipe, data: MMPData, folder: Path) -> None:
    """Write the trained model, which opens without the recipe and can be exported."""
    tensors = {name: full_tensor(value) for name, value in distinct_tensors(model).items()}
    if rank() > 0:
        return
    features = TrainedFeatures(
        made_by=data.made_by,
        pictures=data.pictures,
        max_tokens=recipe.max_visual_tokens,
        prepend_global=recipe.prepend_global,
    )
    save_mmp(
        tensors,
        model.config,
        data.tokenizer,
        folder,
        features=features,
        max_text_tokens=recipe.max_text_tokens,
        languages=sorted(data.languages),
    )


def build_model(recipe: MMPRecipe, feature_width: int, device: str = "cpu") -> MMP:
    """Return an untrained model on a pretrained text encoder, for features of a width."""
    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.encoder_dropout)
    config = MMPConfig(
        encoder=encoder.config,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=feature_width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        visual_pooling_layers=recipe.visual_pooling_layers,
        pooling_heads=recipe.pooling_heads,
        dropout=recipe.dropout,
        share_pooling=recipe.share_pooling,
    )
    torch.manual_seed(recipe.loop.seed)
    return MMP(config, encoder).to(device)


def build_tasks(recipe: MMPRecipe, data: MMPData, model: MMP) -> list[tuple[str, Task, float]]:
    """Return name, task and weight of each corpus."""
    objective = with_mask_id(recipe.objective, data.tokenizer, recipe.encoder)
    tasks: list[tuple[str, Task, float]] = []
    for corpus, content in data.corpora:
        task: Task
        if isinstance(content, SubtitledVideos):
            source = content.features
            task = SubtitleTask(
                model,
                content.records,
                partial(_rows_of, source),
                data.tokenizer,
                objective,
                batch=corpus.batch,
                sampling=corpus.subtitles,
                languages=recipe.languages,
                max_text_tokens=recipe.max_text_tokens,
            )
        else:
            task = MMPTask(
                model,
                content.visuals,
                content.captions,
                objective,
                batch=corpus.batch,
                captions_per_image=recipe.captions_per_image,
            )
        tasks.append((corpus_name(corpus.manifest), task, corpus.weight))
    return tasks


def parameter_groups(model: MMP, recipe: MMPRecipe) -> list[dict[str, Any]]:
    """Return parameter groups with their learning rates: encoder, layer on features, the rest."""
    encoder, visual = set(model.encoder.parameters()), set(model.visual_input.parameters())
    others = [p for p in model.parameters() if p not in encoder and p not in visual]
    return [
        {
            "params": list(model.encoder.parameters()),
            "lr_multiplier": recipe.encoder_lr_multiplier,
        },
        {
            "params": list(model.visual_input.parameters()),
            "lr_multiplier": recipe.visual_lr_multiplier,
        },
        {"params": others, "lr_multiplier": 1.0},
    ]


def _validation(model: MMP, data: MMPData) -> Validate | None:
    """Return what selects the checkpoint: recalls of the languages trained on."""
    if (validation := data.validation) is None:
        return None
    languages = sorted(data.languages & validation.captions.present_languages)
    if not languages:
        raise PolyglanceError(
            "the validation has captions in none of the languages trained on"
            f" ({', '.join(sorted(data.languages))}): validate on other data or set validation to"
            " null"
        )
    return lambda: recall_sums(retrieval_by_language(model, validation, languages))


def _rows_of(source: FeatureSource, record: Record) -> Float16Array:
    """Return the features of a record's video; its source has been checked to hold it."""
    return source.rows(source.find(record) or "")
