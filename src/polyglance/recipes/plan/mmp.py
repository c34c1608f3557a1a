"""MMP's training step on random weights, captions, and clips or photos, for a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from polyglance.batches.inputs import FeatureTable, PixelTable, VisualTable
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP, MMPConfig, MMPObjective
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.recipes.mmp import train, train_photos
from polyglance.recipes.mmp.config import BACKBONE_MODULE, MMPPhotoRecipe, MMPRecipe, TrainingCorpus
from polyglance.recipes.mmp.data import corpus_name
from polyglance.recipes.mmp.tasks import MMPTask, ParallelTextTask
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    SyntheticRun,
    encoder_shape,
    limited_batch,
    random_captions,
)
from polyglance.recipes.stages import Stage
from polyglance.training.mixture import Mixture, MultiTask, Task, TurnTask

STAGE = "training"
_LANGUAGES = ("en", "de")
_TOKENS_PER_SECOND = 3
"""Sub-words of subtitles for a second of speech."""
_BATCHES = 2
"""Items to draw from, in batches."""


@dataclass(frozen=True)
class MMPShape:
    """What a step's cost depends on in MMP's corpora."""

    mean_tokens: int = 18
    feature_width: int = 1024
    steps_of_clip: int | None = None
    """Features of a clip or regions of an image; None for the most that the recipe takes."""


def step_batch(recipe: MMPRecipe | MMPPhotoRecipe) -> int:
    """Return the items of a step: clips, images, and sentences with translations.

    Of corpora that take turns it is the mean.
    """
    if isinstance(recipe, MMPRecipe):
        return sum(corpus.batch for corpus in recipe.corpora)
    images = sum(corpus.batch for corpus in recipe.image_corpora)
    texts = sum(text.batch for text in recipe.text_corpora if not text.in_turns)
    turns = [text.batch for text in recipe.text_corpora if text.in_turns]
    return images + texts + (round(sum(turns) / len(turns)) if turns else 0)


def with_batch_limit(recipe: Any, accelerators: int, limit: int | None) -> Any:
    """Return the recipe with each corpus's share of one accelerator as its batch.

    Args:
        recipe: of MMP, on features or photos.
        accelerators: over which each batch is split.
        limit: a smaller batch to probe with; None for the share itself.
    """
    changed: dict[str, Any] = {}
    for name in ("corpora", "image_corpora", "text_corpora"):
        corpora = []
        for corpus in getattr(recipe, name, ()):
            corpora.append(replace(corpus, batch=limited_batch(corpus.batch, accelerators, limit)))
        if hasattr(recipe, name):
            changed[name] = tuple(corpora)
    return replace(recipe, **changed)


def build_mmp_run(recipe: MMPRecipe | MMPPhotoRecipe, shape: MMPShape, device: str) -> SyntheticRun:
    """Build the recipe's model and step; an image backbone's weights are read, nothing else.

    Args:
        recipe: on features or photos, with the batches to probe.
        shape: of captions and clips.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    encoder = encoder_shape(recipe.encoder)
    if isinstance(recipe, MMPRecipe):
        return _feature_run(recipe, encoder, shape, device)
    return _photo_run(recipe, encoder, shape, device)


def _feature_run(
    recipe: MMPRecipe, encoder: EncoderConfig, shape: MMPShape, device: str
) -> SyntheticRun:
    if recipe.encoder_dropout is not None:
        encoder = replace(encoder, dropout=recipe.encoder_dropout)
    config = MMPConfig(
        encoder=encoder,
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=shape.feature_width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        visual_pooling_layers=recipe.visual_pooling_layers,
        pooling_heads=recipe.pooling_heads,
        dropout=recipe.dropout,
        share_pooling=recipe.share_pooling,
    )
    model = MMP(config).to(device)
    objective = _objective(recipe.objective, encoder)
    tasks: list[tuple[str, Task, float]] = []
    for corpus in recipe.corpora:
        visuals, captions = _random_clips(recipe, corpus, encoder, shape, device)
        task = MMPTask(
            model,
            visuals,
            captions,
            objective,
            batch=corpus.batch,
            captions_per_image=recipe.captions_per_image,
        )
        tasks.append((corpus_name(corpus.manifest), task, corpus.weight))
    groups = train.parameter_groups(model, recipe)
    mixture = Mixture({"all": MultiTask(tasks)})
    return SyntheticRun(model, [Stage(STAGE, mixture, recipe.loop, groups)])


def _photo_run(
    recipe: MMPPhotoRecipe, encoder: EncoderConfig, shape: MMPShape, device: str
) -> SyntheticRun:
    backbone = train_photos.open_backbone(recipe, device)
    config = MMPConfig(
        encoder=replace(encoder, dropout=recipe.dropout),
        text_layer=recipe.text_layer,
        frozen_layers=recipe.frozen_layers,
        visual_width=backbone.width,
        width=recipe.width,
        pooling_layers=recipe.pooling_layers,
        pooling_heads=recipe.pooling_heads,
        text_pooling=recipe.text_pooling,
        dropout=recipe.dropout,
    )
    model = MMP(config, Encoder(config.encoder))
    model.add_module(
        BACKBONE_MODULE, backbone.network.requires_grad_(recipe.backbone_lr_multiplier > 0)
    )
    model = model.to(device)
    objective = _objective(recipe.objective, encoder)
    captions = CorpusShape(shape.mean_tokens)
    tasks: list[tuple[str, Task, float]] = []
    for corpus in recipe.image_corpora:
        count, size = _BATCHES * corpus.batch, recipe.image_size
        pixels: VisualTable = PixelTable(
            torch.randint(256, (count, size, size, 3), dtype=torch.uint8),
            backbone.network,
            backbone.mean,
            backbone.std,
            min_crop_area=recipe.min_crop_area,
            device=device,
        )
        table = random_captions(
            count, captions, encoder.vocab_size, _LANGUAGES, recipe.max_text_tokens
        )
        images = MMPTask(
            model,
            pixels,
            table,
            objective,
            batch=corpus.batch,
            captions_per_image=corpus.captions_per_image,
        )
        tasks.append((corpus_name(corpus.manifest), images, corpus.weight))
    turns: list[tuple[str, Task, float]] = []
    for text in recipe.text_corpora:
        table = random_captions(
            _BATCHES * text.batch, captions, encoder.vocab_size, _LANGUAGES, recipe.max_text_tokens
        )
        parallel = ParallelTextTask(model, table, batch=text.batch, temperature=text.temperature)
        chosen = turns if text.in_turns else tasks
        chosen.append((corpus_name(text.manifest), parallel, text.weight))
    if turns:
        tasks.append(("turns", TurnTask(turns), 1.0))
    groups = train_photos.parameter_groups(model, backbone, recipe)
    mixture = Mixture({"all": MultiTask(tasks)})
    return SyntheticRun(model, [Stage(STAGE, mixture, recipe.loop, groups)])


def _objective(objective: MMPObjective, encoder: EncoderConfig) -> MMPObjective:
    return replace(objective, mask_id=encoder.vocab_size - 1)


def _random_clips(
    recipe: MMPRecipe,
    corpus: TrainingCorpus,
    encoder: EncoderConfig,
    shape: MMPShape,
    device: str,
) -> tuple[FeatureTable, CaptionTable]:
    """Build clips of the greatest length with captions, or of all lengths with subtitles."""
    count, limit = _BATCHES * corpus.batch, recipe.max_visual_tokens
    languages = _LANGUAGES[: max(1, min(2, recipe.captions_per_image))]
    mean_tokens = shape.mean_tokens
    lengths = np.full(count, min(shape.steps_of_clip or limit, limit))
    if (sampling := corpus.subtitles) is not None:
        rate = sampling.features_per_second
        low, high = (max(1, round(s * rate)) for s in (sampling.min_seconds, sampling.max_seconds))
        lengths = np.random.default_rng(0).integers(low, high + 1, count)
        mean_tokens = max(3, round(_TOKENS_PER_SECOND * float(lengths.mean()) / rate))
    features = torch.randn(int(lengths.sum()), shape.feature_width).half()
    captions = random_captions(
        count,
        CorpusShape(min(mean_tokens, recipe.max_text_tokens)),
        encoder.vocab_size,
        languages,
        recipe.max_text_tokens,
    )
    return FeatureTable(features, lengths, device), captions
