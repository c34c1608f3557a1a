"""The caption translator's training step on random weights and sentences, for a plan."""

from __future__ import annotations

import numpy as np
import torch

from polyglance.recipes.caption_translator.config import CaptionTranslatorRecipe
from polyglance.recipes.caption_translator.data import Examples, TokenTable
from polyglance.recipes.caption_translator.tasks import TranslationTask
from polyglance.recipes.plan.synthetic import CorpusShape, SyntheticRun, random_captions
from polyglance.recipes.stages import Stage
from polyglance.text.translation.network import TranslationNetwork
from polyglance.training.mixture import Mixture

_SENTENCES = 512
_TAG = 4


def build_translator_run(
    recipe: CaptionTranslatorRecipe, mean_tokens: int, device: str
) -> SyntheticRun:
    """Build the recipe's network and step.

    Args:
        recipe: with the batch to probe.
        mean_tokens: sub-words of a sentence.
        device: a device of torch.
    """
    torch.manual_seed(recipe.loop.seed)
    size = recipe.vocabulary.size
    network = TranslationNetwork(recipe.network, size).to(device)
    captions = random_captions(
        _SENTENCES, CorpusShape(mean_tokens), size, ("en", "de"), recipe.network.max_tokens - 2
    )
    numbers = np.arange(_SENTENCES, dtype=np.int64)
    examples = Examples(
        2 * numbers, 2 * numbers, 2 * numbers + 1, np.full(_SENTENCES, _TAG),
        np.full(_SENTENCES, 1 / _SENTENCES),
    )  # fmt: skip
    task = TranslationTask(
        network,
        TokenTable(captions.token_ids, captions.offsets),
        examples,
        batch_tokens=recipe.batch_tokens,
        label_smoothing=recipe.label_smoothing,
        plain_share=recipe.plain_share,
    )
    return SyntheticRun(network, [Stage("training", Mixture({"translation": task}), recipe.loop)])
