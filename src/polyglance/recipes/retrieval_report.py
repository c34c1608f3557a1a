"""Retrieval results by language: what selects a checkpoint, and what ``report.json`` holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.data.captions import CaptionTable
from polyglance.evaluation.retrieval import RetrievalResult, mean_over_languages


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


def retrieval_report(results: Mapping[str, RetrievalResult]) -> dict[str, Any]:
    """Return mR and recalls by language and direction, for ``report.json``."""
    by_language: dict[str, Any] = {
        language: {
            "mR": float(result.mean_recall),
            "text_to_image": {f"R@{k}": r for k, r in result.text_to_image.recalls.items()},
            "image_to_text": {f"R@{k}": r for k, r in result.image_to_text.recalls.items()},
        }
        for language, result in results.items()
    }
    average = mean_over_languages({code: result.mean_recall for code, result in results.items()})
    return {**by_language, "average": {"mR": float(average)}}
