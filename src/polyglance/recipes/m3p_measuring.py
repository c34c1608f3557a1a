"""How well M3P finds pictures and captions: reading all pairs, or a dual encoder's candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError
from polyglance.evaluation.pair_scores import PairScores, rerank
from polyglance.evaluation.retrieval import (
    Array,
    RetrievalResult,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.m3p import M3P
from polyglance.recipes.m3p_world import Split
from polyglance.recipes.word_measuring import by_language, checkpoint_score, figures


def measure(
    model: M3P,
    split: Split,
    *,
    all_pairs: bool = True,
    dual: Path | None = None,
    k: int = 50,
    trust: float = 0.0,
) -> dict[str, Any]:
    """Figures of all pairs, and of a dual encoder before and after its candidates are read.

    ``dual`` is a folder of its embeddings: ``pictures.npy`` and a file a language.
    """
    model.eval()
    scores = _scores(model, split)
    found: dict[str, Any] = {}
    if all_pairs:
        found["all_pairs"] = figures(_by_all_pairs(scores, split.captions))
    if dual is not None:
        cosines = _dual_scores(dual, split)
        before, after = {}, {}
        for language, rows in by_language(split.captions):
            owners = split.captions.owners[rows]
            before[language] = summarise(ranks_from_scores(cosines[language], owners))
            lists = rerank(cosines[language], scores, rows, k, trust=trust)
            after[language] = summarise(ranks_from_shortlists(*lists, owners))
        found["dual"], found["reranked"] = figures(before), figures(after)
    return found


def validate(model: M3P, split: Split, languages: Iterable[str]) -> dict[str, float]:
    """mR among all pictures by one caption a language, and their mean, which chooses."""
    scores, chosen = _scores(model, split), set(languages)
    results = {}
    for language, rows in by_language(split.captions):
        owners, first = np.unique(split.captions.owners[rows], return_index=True)
        if language in chosen:
            results[language] = summarise(ranks_from_scores(scores.table(rows[first]), owners))
    return checkpoint_score(results)


def _scores(model: M3P, split: Split) -> PairScores:
    numbers = model.config.language_numbers(split.captions.names)
    cuda = next(model.parameters()).is_cuda  # where flash attention takes bfloat16 alone
    precision: Literal["float32", "bfloat16"] = "bfloat16" if cuda else "float32"
    return PairScores(model, split.regions, split.captions, languages=numbers, precision=precision)


def _by_all_pairs(scores: PairScores, captions: CaptionTable) -> dict[str, RetrievalResult]:
    return {
        language: summarise(ranks_from_scores(scores.table(rows), captions.owners[rows]))
        for language, rows in by_language(captions)
    }


def _dual_scores(folder: Path, split: Split) -> Mapping[str, Array]:
    """Cosines of a dual encoder's embeddings, pictures x captions, by language."""

    def table(name: str, rows: int) -> Array:
        path = folder / f"{name}.npy"
        try:
            vectors = np.load(path, allow_pickle=False).astype(np.float32)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: no embeddings of the dual encoder ({error})") from error
        if vectors.ndim != 2 or len(vectors) < rows:
            raise DataError(f"{path}: expected {rows} vectors, found shape {vectors.shape}")
        lengths = np.linalg.norm(vectors[:rows], axis=1, keepdims=True)
        return np.asarray(vectors[:rows] / lengths)

    pictures = table("pictures", len(split.records))
    return {
        language: pictures @ table(language, len(rows)).T
        for language, rows in by_language(split.captions)
    }
