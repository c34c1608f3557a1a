"""How well M3P or UC2 finds pictures and captions: reading all pairs, or some candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.config import check
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError
from polyglance.evaluation.pair_scores import PairScores, Precision, read_candidates, rerank
from polyglance.evaluation.retrieval import (
    Array,
    Integers,
    RetrievalResult,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.m3p import M3P
from polyglance.models.uc2 import UC2
from polyglance.recipes.region_splits import Split
from polyglance.recipes.word_measuring import by_language, checkpoint_score, figures

_TRUSTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True)
class Reranking:
    """A dual encoder's candidates, read again."""

    dual: str
    """A folder of its embeddings of the test, inside the data folder: ``pictures.npy`` and a file
    a language, as `polyglance evaluate` takes them."""
    validation: str | None = None
    """The same of the validation: there it is found out how far to trust the dual encoder."""
    candidates: int = 50
    """How many are read."""
    trust: float = 0.0
    """What its own score counts beside, where validation does not say: see
    `polyglance.evaluation.pair_scores.rerank`."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "candidates")

    def check_folders(self, data: Path) -> None:
        """Refuse before training what could not be measured after it."""
        for folder in (self.dual, self.validation):
            if folder is not None and not (data / folder).is_dir():
                raise DataError(
                    f"{data / folder}: there are no embeddings of the dual encoder; make them by"
                    " benchmarks/dual_embeddings.py, or set reranking to null"
                )


def report_test(
    model: M3P | UC2,
    test: Split,
    validation: Split | None,
    data: Path,
    *,
    all_pairs: bool,
    reranking: Reranking | None,
) -> dict[str, Any]:
    """What a run reports of its test, with as much trust in a dual encoder as validation says."""
    if reranking is None:
        return {"test": measure(model, test, all_pairs=all_pairs)}
    report: dict[str, Any] = {}
    trust = reranking.trust
    if reranking.validation is not None and validation is not None:
        known = data / reranking.validation
        report["validation"] = trusted(model, validation, known, reranking.candidates)
        trust = report["validation"]["trust"]
    report["test"] = measure(
        model,
        test,
        all_pairs=all_pairs,
        dual=data / reranking.dual,
        k=reranking.candidates,
        trust=trust,
    )
    return report


def measure(
    model: M3P | UC2,
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
    found: dict[str, Any] = {}
    if all_pairs:
        found["all_pairs"] = figures(_by_all_pairs(_scores(model, split), split.captions))
    if dual is not None:
        scores = _scores(model, split, views=split.regions.views)
        cosines = _dual_scores(dual, split)
        before, after = {}, {}
        for language, rows in by_language(split.captions):
            owners = split.captions.owners[rows]
            before[language] = summarise(ranks_from_scores(cosines[language], owners))
            lists = rerank(cosines[language], scores, rows, k, trust=trust)
            after[language] = summarise(ranks_from_shortlists(*lists, owners))
        found["dual"], found["reranked"] = figures(before), figures(after)
    return found


def trusted(model: M3P | UC2, split: Split, dual: Path, k: int = 50) -> dict[str, Any]:
    """How far to trust the dual encoder beside the model, by mR on these pictures."""
    model.eval()
    scores = _scores(model, split, views=split.regions.views)
    cosines = _dual_scores(dual, split)
    recalls: dict[float, list[float]] = {trust: [] for trust in _TRUSTS}
    before = []
    for language, rows in by_language(split.captions):
        owners, table = split.captions.owners[rows], cosines[language]
        before.append(float(summarise(ranks_from_scores(table, owners)).mean_recall))
        read = read_candidates(table, scores, rows, k)
        for trust, found in recalls.items():
            ranks = ranks_from_shortlists(*read.trusting(trust), owners)
            found.append(float(summarise(ranks).mean_recall))
    means = {trust: float(np.mean(found)) for trust, found in recalls.items()}
    return {
        "dual": float(np.mean(before)),
        "by_trust": {str(trust): round(mean, 2) for trust, mean in means.items()},
        "trust": max(means, key=means.__getitem__),
    }


def validate(model: M3P | UC2, split: Split, languages: Iterable[str]) -> dict[str, float]:
    """mR among all pictures by one caption a language, and their mean, which chooses."""
    scores, chosen = _scores(model, split), set(languages)
    results = {}
    for language, rows in by_language(split.captions):
        owners, first = np.unique(split.captions.owners[rows], return_index=True)
        if language in chosen:
            results[language] = summarise(ranks_from_scores(scores.table(rows[first]), owners))
    return checkpoint_score(results)


def language_numbers(model: M3P | UC2, captions: CaptionTable) -> Integers | None:
    """How a model counts the languages of captions; UC2 is told none."""
    return model.config.language_numbers(captions.names) if isinstance(model, M3P) else None


def _scores(model: M3P | UC2, split: Split, *, views: int = 1) -> PairScores:
    cuda = next(model.parameters()).is_cuda  # where flash attention takes no other
    precision: Precision = "float16" if cuda else "float32"
    return PairScores(
        model,
        split.regions,
        split.captions,
        languages=language_numbers(model, split.captions),
        precision=precision,
        views=views,
    )


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
