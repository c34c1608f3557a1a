"""Retrieval results of MMP: on a split, to select a checkpoint, and for the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.inputs import VectorTable, VisualTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import (
    DirectionResult,
    RetrievalResult,
    evaluate_retrieval,
)
from polyglance.models.mmp import MMP
from polyglance.recipes.retrieval_report import query_ranks

BLOCK = 512
"""Images, clips or captions encoded at a time."""


@dataclass(frozen=True, eq=False)
class RetrievalSplit:
    """Images or clips with their captions."""

    visuals: VisualTable
    captions: CaptionTable


@torch.no_grad()
def retrieval_by_language(
    model: MMP, split: RetrievalSplit, languages: Iterable[str] | None = None
) -> dict[str, RetrievalResult]:
    """Return recalls in both directions among all images or clips, for each language.

    Always in float32: in bfloat16 close scores would tie.

    Args:
        model: The model, switched to evaluation.
        split: Images or clips with captions.
        languages: Languages to evaluate; None for all.
    """
    model.eval()
    captions, device = split.captions, next(model.parameters()).device
    visuals = _visual_vectors(model, split.visuals)

    def encode(rows: NDArray[np.int64]) -> Tensor:
        text = pack_captions(captions, rows, device)
        return model.encode_text(text.ids, text.packing)

    results = {}
    for language in captions.language_codes if languages is None else languages:
        rows = captions.rows_in_language(language)
        results[language] = evaluate_retrieval(
            visuals, _encode_blocks(encode, rows), captions.record_ids[rows]
        )
    return results


def _visual_vectors(model: MMP, visuals: VisualTable) -> NDArray[np.float32]:
    if isinstance(visuals, VectorTable):
        return visuals.features.float().cpu().numpy()
    return _encode_blocks(
        lambda items: model.encode_visual(*visuals.rows(items, None)), np.arange(len(visuals))
    )


def _encode_blocks(
    encode: Callable[[NDArray[np.int64]], Tensor], items: NDArray[np.int64]
) -> NDArray[np.float32]:
    blocks = [encode(items[i : i + BLOCK]).float().cpu() for i in range(0, len(items), BLOCK)]
    return torch.cat(blocks).numpy()


def recall_sums(results: Mapping[str, RetrievalResult]) -> dict[str, float]:
    """Return R@1 + R@5 + R@10 of text to video (appendix C) by language; ``score`` is their sum."""
    sums = {
        language: sum(result.text_to_image.recalls.values()) for language, result in results.items()
    }
    return {**sums, "score": sum(sums.values())}


def direction_report(results: Mapping[str, RetrievalResult]) -> dict[str, Any]:
    """Return mR, and recalls, median ranks and counts by direction, for ``report.json``."""

    def direction(result: DirectionResult) -> dict[str, float]:
        recalls = {f"R@{k}": float(recall) for k, recall in result.recalls.items()}
        return {
            **recalls,
            "median_rank": result.median_rank,
            "queries": result.queries,
            "candidates": result.candidates,
        }

    return {
        language: {
            "mR": float(result.mean_recall),
            "text_to_visual": direction(result.text_to_image),
            "visual_to_text": direction(result.image_to_text),
            **query_ranks(result),
        }
        for language, result in results.items()
    }


def mean_recalls(model: MMP, split: RetrievalSplit) -> dict[str, float]:
    """Return mR of each language and their average, in percent."""
    recalls = {
        language: float(result.mean_recall)
        for language, result in retrieval_by_language(model, split).items()
    }
    return {**recalls, "average": float(np.mean(list(recalls.values())))}


def all_recalls(model: MMP, split: RetrievalSplit) -> dict[str, dict[str, float]]:
    """Return mR and recalls in both directions of each language, and mR's average, in percent."""
    recalls: dict[str, dict[str, float]] = {}
    for language, result in retrieval_by_language(model, split).items():
        recalls[language] = {"mR": float(result.mean_recall)}
        for name, direction in (
            ("text_to_image", result.text_to_image),
            ("image_to_text", result.image_to_text),
        ):
            recalls[language] |= {f"{name}_R@{k}": float(r) for k, r in direction.recalls.items()}
    return {**recalls, "average": {"mR": float(np.mean([r["mR"] for r in recalls.values()]))}}


def photo_scores(
    model: MMP, validation: RetrievalSplit, held_out: Mapping[str, RetrievalSplit]
) -> dict[str, float]:
    """Return mR by language on validation and held-out images; ``score`` selects the checkpoint."""
    scores = mean_recalls(model, validation)
    for name, split in held_out.items():
        scores |= {f"{name}.{language}": mR for language, mR in mean_recalls(model, split).items()}
    return {**scores, "score": scores["average"]}
