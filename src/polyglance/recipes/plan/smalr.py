"""The training steps of SMALR and its baselines on random words and images, for a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from polyglance.batches.inputs import FeatureTable
from polyglance.data.captions import CaptionTable
from polyglance.models.smalr import latent_vocabulary
from polyglance.models.smalr_baselines import build_word_model
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.recipes.plan.synthetic import CorpusShape, SyntheticRun, random_captions
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.smalr.pretraining import pretraining_loop
from polyglance.recipes.smalr.tasks import CaptionGridSampler, SentenceAlignmentTask, SMALRTask
from polyglance.recipes.smalr.train import has_projections, model_variant
from polyglance.recipes.stages import Stage
from polyglance.training.mixture import Mixture

PRETRAINING, TRAINING = "pretraining", "training"


@dataclass(frozen=True)
class SMALRShape:
    """What a step's cost depends on in a corpus of whole words."""

    mean_tokens: int = 12
    """Words of a caption."""
    words: int = 7_000
    """Of each language's lexicon."""
    feature_width: int = 2048
    """Of an image's vector."""


def build_smalr_run(recipe: SMALRRecipe, shape: SMALRShape, device: str) -> SyntheticRun:
    """Build the recipe's word model, its pre-training on captions, and its training.

    Args:
        recipe: with the batches to probe.
        shape: of captions, lexicon and features.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    variant = model_variant(recipe, shape.feature_width)
    one = recipe.translate_to is not None or variant.monolingual
    languages = recipe.languages[:1] if one else recipe.languages
    images = 2 * max(recipe.batch, recipe.pretraining.batch)
    captions = CaptionGridSampler(
        random_words(images, shape, languages),
        captions_per_language=recipe.captions_per_language,
        languages_per_step=recipe.languages_per_step,
    )
    vectors = torch.randn(len(languages) * shape.words, recipe.word_vector_dim, device=device)
    language_of = torch.arange(len(languages)).repeat_interleave(shape.words)
    ranks = torch.arange(shape.words).repeat(len(languages))
    latent = latent_vocabulary(variant.config, vectors) if variant.needs_pretraining else None
    loop, projects = recipe.loop, has_projections(variant)
    if latent is None and not projects:
        loop = replace(loop, steps=loop.steps + recipe.pretraining.steps)
    model = build_word_model(
        variant,
        [f"{languages[n // shape.words]}{n}" for n in range(len(vectors))],
        vectors.cpu(),
        language_of,
        ranks,
        steps=max(1, loop.steps),
        latent=None if latent is None else latent.cpu(),
    ).to(device)
    pretrained: nn.Module | None = None if latent is None else latent.to(device)
    own: set[nn.Parameter] = set()
    if pretrained is None and projects and isinstance(model.words, HybridEmbedding):
        pretrained, own = model.words, set(model.words.own.parameters())
    visuals = FeatureTable(
        torch.randn(images, shape.feature_width).half(), np.ones(images, np.int64), device
    )
    task = SMALRTask(model, visuals, captions, variant.objective, batch=recipe.batch)
    # A monolingual model is trained once for each language.
    count = len(recipe.languages) if variant.monolingual and recipe.translate_to is None else 1
    names = [TRAINING] if count == 1 else list(recipe.languages)
    stages = [Stage(name, Mixture({"images": task}), loop) for name in names]
    if pretrained is None or not recipe.pretraining.steps:
        return SyntheticRun(model, stages)
    alignment = SentenceAlignmentTask(
        pretrained, captions, batch=recipe.pretraining.batch, rule=recipe.triplets
    )
    groups = [{"params": [p for p in pretrained.parameters() if p not in own]}]
    first = Stage(
        PRETRAINING,
        Mixture({"sentences": alignment}),
        pretraining_loop(recipe.pretraining, loop.seed),
        groups,
    )
    return SyntheticRun(model, [first, *stages], {PRETRAINING: pretrained})


def random_words(images: int, shape: SMALRShape, languages: tuple[str, ...]) -> CaptionTable:
    """Build captions of random words, which are as frequent as Zipf's law has it."""
    size = len(languages) * shape.words
    table = random_captions(images, CorpusShape(shape.mean_tokens), 8, languages, 100)
    uniform = np.random.default_rng(1).random(len(table.token_ids))
    rank = np.minimum((shape.words + 1) ** uniform, shape.words).astype(np.int64) - 1
    language = np.repeat(table.language_ids, np.diff(table.offsets))
    ids = np.minimum(language * shape.words + rank, size - 1).astype(np.int32)
    return replace(table, token_ids=ids)
