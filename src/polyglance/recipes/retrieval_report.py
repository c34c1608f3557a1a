"""Retrieval results by language: what selects a checkpoint, and what ``report.json`` holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import DirectionResult, RetrievalResult, mean_over_languages


def rows_by_language(captions: CaptionTable) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield each language that has captions, with their rows."""
    for language in captions.language_codes:
        rows = captions.rows_in_language(language)
        if len(rows):
            yield language, rows


def validation_scores(results: Mapping[str, RetrievalResult]) -> dict[str, float]:
    """Return mR of each language, and ``score``, their mean, which selects the checkpoint."""
    recalls = {language: result.mean_recall for language, result in results.items()}
    return {**recalls, "score": mean_over_languages(recalls)}


def query_ranks(result: RetrievalResult) -> dict[str, Any]:
    """Return the rank of every query as arrays, which `write_report` puts into a file apart."""
    ranks = result.ranks
    if ranks is None or ranks.image_ids is None:
        return {}
    return {
        "ranks": {
            "image_to_text": ranks.image_to_text.astype(np.int32),
            "text_to_image": ranks.text_to_image.astype(np.int32),
            "image_ids": ranks.image_ids.astype(np.int32),
            "num_images": np.array(ranks.num_images),
        }
    }


def retrieval_report(results: Mapping[str, RetrievalResult]) -> dict[str, Any]:
    """Return mR, recalls and counts by language and direction, and ranks, for `write_report`."""

    def direction(result: DirectionResult) -> dict[str, float]:
        recalls = {f"R@{k}": recall for k, recall in result.recalls.items()}
        return {**recalls, "queries": result.queries, "candidates": result.candidates}

    by_language: dict[str, Any] = {
        language: {
            "mR": float(result.mean_recall),
            "text_to_image": direction(result.text_to_image),
            "image_to_text": direction(result.image_to_text),
            **query_ranks(result),
        }
        for language, result in results.items()
    }
    average = mean_over_languages({code: result.mean_recall for code, result in results.items()})
    return {**by_language, "average": {"mR": float(average)}}
