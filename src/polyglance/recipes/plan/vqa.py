"""Question answering's training step on random weights, questions and regions, for a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch

from polyglance.encoders.answers import AnswerVocabulary
from polyglance.models.uc2 import UC2, UC2Config, reference_encoder
from polyglance.models.vqa import VQAModel
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    SyntheticRun,
    SyntheticTokenizer,
    encoder_shape,
    random_captions,
    random_regions,
)
from polyglance.recipes.vqa.config import VQARecipe
from polyglance.recipes.vqa.data import QuestionSplit, VQAData
from polyglance.recipes.vqa.tasks import AnswerTargets
from polyglance.recipes.vqa.train import build_stage
from polyglance.text import Tokenizer

_LANGUAGE = "en"


def num_answers(recipe: VQARecipe) -> int:
    """Return the classes: of a published list or of one language a file, as many as allowed."""
    answers = recipe.answers
    return answers.max_answers * (1 if answers.classes is not None else len(recipe.train))


def build_vqa_run(
    recipe: VQARecipe, corpus: CorpusShape, answers: int, device: str
) -> SyntheticRun:
    """Build the recipe's model and step.

    Args:
        recipe: with the batch to probe.
        corpus: the shape of questions and regions.
        answers: classes.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    shape = encoder_shape(recipe.encoder)
    if recipe.dropout is not None:
        shape = replace(shape, dropout=recipe.dropout)
    config = UC2Config(
        reference_encoder(shape) if recipe.variant == "reference" else shape,
        corpus.region_width,
        variant=recipe.variant,
        word_transform=False,
    )
    model = VQAModel(
        UC2(config),
        answers,
        dropout=recipe.head_dropout,
        answer_embeddings=recipe.answers.embeddings,
    ).to(device)
    images = 2 * recipe.batch
    questions = random_captions(
        images, corpus, shape.vocab_size, (_LANGUAGE,), recipe.max_text_tokens
    )
    regions = random_regions(images, corpus, device, labels=1)
    data = VQAData(
        cast(Tokenizer, SyntheticTokenizer(shape.vocab_size)),
        AnswerVocabulary({_LANGUAGE: ()}),
        QuestionSplit([], questions, regions),
        None,
        (),
        np.zeros(images, bool),
    )
    targets = AnswerTargets.from_scores([{n % answers: 1.0} for n in range(images)], answers)
    return SyntheticRun(model, [build_stage(recipe, model, data, targets)])
