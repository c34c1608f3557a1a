"""Encode and evaluate SMALR and its baselines on a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import FeatureTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import (
    RetrievalResult,
    evaluate_retrieval,
    mean_over_languages,
)
from polyglance.models.smalr import SMALR
from polyglance.nn.hybrid_embedding import MASK, HybridEmbedding
from polyglance.recipes.retrieval_report import rows_by_language
from polyglance.text.lexicon import PAD_ID

Indices = NDArray[np.int64]
EncodeCaptions = Callable[[CaptionTable], Tensor]
"""Returns the vectors of captions, ``(captions, width)``."""

_BLOCK = 2048
"""Images or captions encoded at a time."""


def caption_encoder(model: SMALR) -> EncodeCaptions:
    """Return a function that encodes captions with a model."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def encode(captions: CaptionTable) -> Tensor:
        model.eval()
        blocks = []
        for rows in _blocks(len(captions)):
            text = pack_captions(captions, rows, device)
            languages = torch.from_numpy(captions.language_ids[rows]).to(device)
            blocks.append(model.encode_text(text.ids, text.packing, languages))
        return torch.cat(blocks).float()

    return encode


@torch.no_grad()
def encode_images(model: SMALR, visuals: FeatureTable) -> Tensor:
    """Return the vectors of all images, ``(images, width)``."""
    model.eval()
    blocks = [model.encode_visual(*visuals.rows(rows, None)) for rows in _blocks(len(visuals))]
    return torch.cat(blocks).float()


def evaluate(
    model: SMALR, captions: CaptionTable, visuals: FeatureTable
) -> dict[str, RetrievalResult]:
    """Return recalls in both directions among all images, for each language.

    Args:
        model: The model, switched to evaluation.
        captions: Captions of a split.
        visuals: Images of the same records.
    """
    images = encode_images(model, visuals).cpu().numpy()
    vectors = caption_encoder(model)(captions).cpu().numpy()
    return {
        language: evaluate_retrieval(images, vectors[rows], captions.record_ids[rows])
        for language, rows in rows_by_language(captions)
    }


def with_human_average(report: dict[str, Any], human_languages: Sequence[str]) -> dict[str, Any]:
    """Add the mean mR of languages with captions by people: HA of Tables 1 and 2."""
    human = [language for language in human_languages if language in report]
    if not human:
        return report
    average = mean_over_languages({language: report[language]["mR"] for language in human})
    return {**report, "human_average": {"mR": average}}


def word_coverage(
    model: SMALR, captions: CaptionTable, word_counts: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """Return the fractions of caption words that are the model's own, shared or unknown.

    Args:
        model: The model.
        captions: Captions, of which the table has only the words known from training.
        word_counts: Number of all words by language, known or not.
    """
    words = model.words
    slots = words.slots.cpu().numpy()
    num_shared = words.latent.shape[0] if isinstance(words, HybridEmbedding) else 0
    coverage = {}
    for language, rows in rows_by_language(captions):
        ids = captions.gather(rows)[0]
        slot = slots[ids[ids != PAD_ID]]
        slot = slot[slot != PAD_ID]
        shared = int((slot <= MASK + num_shared).sum())
        total = max(1, word_counts[language])
        coverage[language] = {
            "own": (len(slot) - shared) / total,
            "shared": shared / total,
            "unknown": 1 - len(slot) / total,
        }
    return coverage


def _blocks(count: int) -> Iterator[Indices]:
    return (np.arange(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))
