"""The head that predicts masked words: a language model's own, or trained on text alone.

XLM-R was pre-trained as a masked language model, and the papers begin with it. Its head comes
with it: a linear layer, GELU and a layer norm before the word embeddings (`WordHead`). An encoder
such as e5 was trained for other things and has none. A new head on it begins at the loss of
guessing (12.3 of 12.4 nats with e5-small), and its gradients disturb the encoder that images are
just being tied to. So the head is first trained by itself, on captions without images, the encoder
fixed (the stage ``word_head``, which is in neither paper).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyglance import weights
from polyglance.batches.inputs import pack_captions
from polyglance.cross_encoders.model_folder import read_config
from polyglance.data.captions import CaptionTable
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.nn.pretrained import WordHead, load_word_head
from polyglance.objectives.masked_language import TokenMasking, mask_tokens
from polyglance.recipes.cross_encoder.batches import MaskedBatch
from polyglance.recipes.cross_encoder.build import InitialWeights
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe
from polyglance.recipes.cross_encoder.data import bert_masking
from polyglance.recipes.stages import Stage, stage_loop
from polyglance.text import Tokenizer
from polyglance.training.distributed import rank
from polyglance.training.mixture import Mixture, item_draws, rank_share, step_generator

_MEASURED = 256
"""Captions on which the head's loss is measured before and after."""


def encoder_word_head(recipe: CrossEncoderRecipe) -> WordHead | None:
    """Load the head of the recipe's encoder, if it has one and a stage predicts words."""
    return load_word_head(weights.folder(recipe.encoder)) if recipe.predicts_words else None


def has_word_transform(recipe: CrossEncoderRecipe, head: WordHead | None) -> bool:
    """Return whether a new model has the layers of a language model's head.

    A run that begins with another has what that one has.
    """
    inherited = initial_word_transform(recipe)
    if inherited is not None:
        return inherited
    return head is not None or (recipe.predicts_words and recipe.word_head is not None)


def initial_word_transform(recipe: InitialWeights) -> bool | None:
    """Return whether the run to begin with has these layers; None if there is no such run."""
    if recipe.initialise_from is None:
        return None
    folder = Path(recipe.initialise_from).expanduser()
    for run in (folder.parent, folder.parent.parent):
        config = read_config(run)
        if config is not None:
            return bool(getattr(config.model, "word_transform", False))
    return None


def word_head_stage(
    recipe: CrossEncoderRecipe,
    model: CrossEncoderModel,
    captions: CaptionTable,
    tokenizer: Tokenizer,
) -> Stage | None:
    """Build the stage that trains a new word head; None if it is not new, or a bias alone.

    Args:
        recipe: its settings; a run that begins with another one's weights needs no such stage.
        model: with the head.
        captions: sentences to learn from, whose images are not used.
        tokenizer: of the captions.

    Returns:
        The stage, which reports the head's loss before and after.
    """
    config = recipe.word_head
    new = recipe.predicts_words and recipe.initialise_from is None
    if not new or encoder_word_head(recipe) is not None:
        return None
    if config is None:
        if rank() == 0:
            print(
                f"{recipe.encoder} is no masked language model: the head that predicts words starts"
                " untrained; set word_head to train it first, on captions alone",
                file=sys.stderr,
            )
        return None
    if not isinstance(getattr(model, "word_transform", None), nn.Sequential):
        return None  # the head is a bias alone
    masking = bert_masking(tokenizer, recipe.encoder)
    task = WordHeadTask(model, captions, masking, batch=config.batch)
    before = task.measure()
    return Stage(
        "word_head",
        Mixture({"word_head": task}),
        stage_loop(recipe.loop, config),
        [{"params": model.word_head_parameters()}],
        measure=lambda: {"loss_before": before, "loss_after": task.measure()},
    )


class WordHeadTask:
    """Predict masked words of captions without images; only the head is trained."""

    def __init__(
        self, model: CrossEncoderModel, captions: CaptionTable, masking: TokenMasking, *, batch: int
    ) -> None:
        """Prepare the task.

        Args:
            model: the model.
            captions: all languages are sampled equally often.
            masking: rates and ids.
            batch: captions a step.
        """
        self.model, self.captions, self.masking, self.batch = model, captions, masking, batch
        self.language_ids = model.language_ids(captions.language_codes)
        present = np.unique(captions.language_ids)
        self._rows = [np.flatnonzero(captions.language_ids == number) for number in present]

    def sample(self, generator: np.random.Generator) -> MaskedBatch:
        """Sample captions and mask words."""
        return self._mask(self._sample_rows(generator, self.batch), generator)

    def losses(self, batch: MaskedBatch) -> dict[str, Tensor]:
        """Predict the masked words from the encoder's vectors, which get no gradient."""
        batch = batch.to(self.model.word_bias.device)
        with torch.no_grad():
            hidden = self.model(batch.text, None).text[batch.positions]
        return {batch.loss: self.model.word_loss(hidden, batch.targets)}

    @torch.no_grad()
    def measure(self) -> float:
        """Return the loss of the same captions with the same words masked, in nats."""
        training = self.model.training
        self.model.eval()
        generator = step_generator(0, 0)
        rows = self._sample_rows(generator, _MEASURED)
        loss = self.losses(self._mask(rows, generator, split=False))["word_head"]
        self.model.train(training)
        return round(float(loss), 4)

    def _sample_rows(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        languages = generator.integers(len(self._rows), size=count)
        within = generator.random(count)
        return np.array(
            [
                self._rows[number][int(share * len(self._rows[number]))]
                for number, share in zip(languages, within, strict=True)
            ],
            np.int64,
        )

    def _mask(
        self, rows: NDArray[np.int64], generator: np.random.Generator, *, split: bool = True
    ) -> MaskedBatch:
        share = rank_share(len(rows)) if split else slice(None)
        draws = item_draws(generator, len(rows), share)
        text = pack_captions(self.captions, rows[share], language_ids=self.language_ids)
        masked = mask_tokens(text.ids, text.packing, self.masking, draws)
        text = replace(text, ids=masked.ids)
        return MaskedBatch("word_head", text, None, masked.positions, masked.targets)
