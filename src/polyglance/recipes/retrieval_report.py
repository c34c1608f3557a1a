"""Word models on the pictures and captions of a split: their vectors, and how well these match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from polyglance.text.lexicon import PAD_ID

Indices = NDArray[np.int64]
Encode = Callable[[CaptionTable], Tensor]
"""From captions to their vectors, row by row."""

_BLOCK = 2048
"""Pictures or captions encoded at a time."""


def encoder(model: SMALR) -> Encode:
    """What a model makes of captions."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def encode(captions: CaptionTable) -> Tensor:
        model.eval()
        found = []
        for rows in _blocks(len(captions)):
            text = pack_captions(captions, rows, device)
            spoken = torch.from_numpy(captions.language_ids[rows]).to(device)
            found.append(model.encode_text(text.ids, text.packing, spoken))
        return torch.cat(found).float()

    return encode


@torch.no_grad()
def seen(model: SMALR, visuals: FeatureTable) -> Tensor:
    """The vectors of all pictures."""
    model.eval()
    blocks = [model.encode_visual(*visuals.rows(some, None)) for some in _blocks(len(visuals))]
    return torch.cat(blocks).float()


def measure(
    model: SMALR, captions: CaptionTable, visuals: FeatureTable
) -> dict[str, RetrievalResult]:
    """Recalls both ways among all pictures, of each language."""
    pictures = seen(model, visuals).cpu().numpy()
    vectors = encoder(model)(captions).cpu().numpy()
    return {
        language: evaluate_retrieval(pictures, vectors[rows], captions.record_ids[rows])
        for language, rows in rows_by_language(captions)
    }


def rows_by_language(captions: CaptionTable) -> Iterator[tuple[str, Indices]]:
    """The languages that there are captions in, and their rows."""
    for language in captions.language_codes:
        rows = captions.rows_in_language(language)
        if len(rows):
            yield language, rows


def coverage(
    model: SMALR, captions: CaptionTable, said: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """By language, which share of the words in captions is the model's own, shared or unknown.

    ``said`` is how many words there are in all; the table has only those known in training.
    """
    words = model.words
    slots = words.slots.cpu().numpy()
    shared = words.latent.shape[0] if isinstance(words, HybridEmbedding) else 0
    found = {}
    for language, rows in rows_by_language(captions):
        ids = captions.gather(rows)[0]
        slot = slots[ids[ids != PAD_ID]]
        slot = slot[slot != PAD_ID]
        sharing = int((slot <= MASK + shared).sum())
        total = max(1, said[language])
        found[language] = {
            "own": (len(slot) - sharing) / total,
            "shared": sharing / total,
            "unknown": 1 - len(slot) / total,
        }
    return found


def validation_scores(results: Mapping[str, RetrievalResult]) -> dict[str, float]:
    """mR of each language, and their mean, which chooses the checkpoint."""
    recalls = {language: result.mean_recall for language, result in results.items()}
    return {**recalls, "score": mean_over_languages(recalls)}


def retrieval_report(results: Mapping[str, RetrievalResult]) -> dict[str, Any]:
    """Recalls by language and direction and mR, as ``report.json`` has them."""
    found: dict[str, Any] = {
        language: {
            "mR": float(result.mean_recall),
            "text_to_image": {f"R@{k}": r for k, r in result.text_to_image.recalls.items()},
            "image_to_text": {f"R@{k}": r for k, r in result.image_to_text.recalls.items()},
        }
        for language, result in results.items()
    }
    average = mean_over_languages({code: result.mean_recall for code, result in results.items()})
    return {**found, "average": {"mR": float(average)}}


def _blocks(count: int) -> Iterator[Indices]:
    return (np.arange(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))
