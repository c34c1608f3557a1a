"""A reader's training step on random weights, texts and regions, for a plan."""

from __future__ import annotations

from dataclasses import replace

import torch

from polyglance.encoders.model_folder import ModelFolder
from polyglance.models.mmp import MMPConfig
from polyglance.models.uc2 import UC2
from polyglance.models.vqa import VQAModel
from polyglance.nn.encoder import Encoder
from polyglance.nn.upper_encoder import UpperEncoder
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.compact_reader.tasks import matching_task
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    SyntheticRun,
    random_captions,
    random_regions,
)
from polyglance.recipes.stages import Stage
from polyglance.recipes.uc2.tasks import ImageTextCorpus
from polyglance.recipes.vqa.tasks import AnswerTargets, VQATask
from polyglance.training.mixture import Mixture, MultiTask

_LANGUAGES = ("en", "de")
_CELLS = 50
"""Of the default model's feature map, with its mean."""


def build_reader_run(recipe: ReaderRecipe, mean_tokens: int, device: str) -> SyntheticRun:
    """Build the recipe's model and step.

    Args:
        recipe: with the batches to probe.
        mean_tokens: sub-words of a caption or question.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    dual = MMPConfig.from_json(ModelFolder.open(recipe.dual_encoder).description.architecture)
    below = Encoder(dual.encoder).to(device).eval().requires_grad_(False)
    encoder = UpperEncoder(below, recipe.text_layers, recipe.layers, recipe.dropout)
    shape = encoder.config
    corpus = CorpusShape(mean_tokens, _CELLS, dual.visual_width)
    answers = 2 * recipe.answering.max_answers
    model = VQAModel(UC2(recipe.model_config(shape, dual), encoder), answers).to(device)
    images = 2 * max(recipe.answering.batch, recipe.retrieval.batch)
    captions = random_captions(images, corpus, shape.vocab_size, _LANGUAGES, recipe.max_text_tokens)
    regions = random_regions(images, corpus, device, labels=1)
    targets = AnswerTargets.from_scores([{n % answers: 1.0} for n in range(len(captions))], answers)
    questions = VQATask(model, regions, captions, targets, batch=recipe.answering.batch)
    pairs = ImageTextCorpus(regions, LanguageBalancedSampler(captions))
    retrieval = matching_task(recipe.retrieval, model.cross_encoder, pairs)
    tasks = MultiTask([("vqa", questions, 1.0), ("itm", retrieval, 1.0)])
    loop = replace(recipe.loop, steps=recipe.seeds * recipe.loop.steps)
    return SyntheticRun(model, [Stage("training", Mixture({"reader": tasks}), loop)])
