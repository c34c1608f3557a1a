"""Evaluate retrieval with a cross-encoder: all pairs, or a dual encoder's candidates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.cross_encoders.regions import tta_image_vectors
from polyglance.data.captions import CaptionTable
from polyglance.errors import DataError
from polyglance.evaluation.pair_scores import PairScores, pair_scores, read_candidates
from polyglance.evaluation.retrieval import (
    Array,
    RetrievalResult,
    mean_over_folds,
    ranks_from_scores,
    ranks_from_shortlists,
    summarise,
)
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.models.projection_heads import ProjectionHeadsConfig, load_projection_heads
from polyglance.recipes.cross_encoder.config import RerankingConfig
from polyglance.recipes.cross_encoder.data import Split, SplitReader
from polyglance.recipes.retrieval_report import (
    retrieval_report,
    rows_by_language,
    validation_scores,
)

DUAL_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Weights that are tried on the validation split."""


def evaluate_test(
    model: CrossEncoderModel,
    test: Split,
    validation: Split | None,
    reader: SplitReader,
    *,
    all_pairs: bool,
    reranking: RerankingConfig | None,
    more: Sequence[Split] = (),
) -> dict[str, Any]:
    """Evaluate the test split, with the dual encoder's weight tuned on the validation split.

    Args:
        model: the trained model.
        test: the split to report.
        validation: the split to tune on.
        reader: for the data folder and the image backbone.
        all_pairs: score every pair.
        reranking: a dual encoder's candidates, if any.
        more: further folds and test sets; a language's figures are means over those that have it.

    Returns:
        ``test`` and, if the weight was tuned, ``validation`` of the report.
    """
    if reranking is None:
        return {"test": evaluate_split(model, test, all_pairs=all_pairs, more=more)}
    report: dict[str, Any] = {}
    dual_weight, k = reranking.dual_weight, reranking.candidates
    if reranking.validation_embeddings is not None and validation is not None:
        folder = reader.data / reranking.validation_embeddings
        dual = DualScores.read(folder, validation, reranking, reader)
        report["validation"] = tune_dual_weight(model, validation, dual, k)
        dual_weight = report["validation"]["dual_weight"]
    dual = DualScores.read(reader.data / reranking.dual_embeddings, test, reranking, reader)
    report["test"] = evaluate_split(
        model, test, all_pairs=all_pairs, dual=dual, k=k, dual_weight=dual_weight
    )
    return report


@dataclass(frozen=True, eq=False)
class DualScores:
    """A dual encoder's cosines by language, ``(images, captions)`` each."""

    cosines: Mapping[str, Array]
    tta_cosines: Mapping[str, Array] | None
    """The same with test-time augmentation of the images."""

    @classmethod
    def read(
        cls, folder: Path, split: Split, reranking: RerankingConfig, reader: SplitReader
    ) -> DualScores:
        """Read embeddings, and encode the images with test-time augmentation if configured.

        Args:
            folder: of the embeddings.
            split: what they are of.
            reranking: names the projection heads.
            reader: has the image backbone.

        Returns:
            The cosines.
        """
        images = _read_vectors(folder / "pictures.npy", len(split.records))
        texts = {
            language: _read_vectors(folder / f"{language}.npy", len(rows))
            for language, rows in rows_by_language(split.captions)
        }
        tta_cosines = None
        if reranking.projection_heads is not None:
            heads = load_projection_heads(reranking.projection_heads).to(reader.device)
            assert reader.image_backbone is not None
            augmented = tta_image_vectors(
                heads, split.files, reader.backbone, reader.image_backbone
            )
            tta_cosines = {language: augmented @ vectors.T for language, vectors in texts.items()}
        cosines = {language: images @ vectors.T for language, vectors in texts.items()}
        return cls(cosines, tta_cosines)

    def tta_of(self, language: str) -> Array | None:
        """Return the cosines with test-time augmentation, if there are any."""
        return None if self.tta_cosines is None else self.tta_cosines[language]


def evaluate_split(
    model: CrossEncoderModel,
    split: Split,
    *,
    all_pairs: bool = True,
    dual: DualScores | None = None,
    k: int = 50,
    dual_weight: float = 0.0,
    more: Sequence[Split] = (),
) -> dict[str, Any]:
    """Evaluate retrieval on one split, or on several.

    Args:
        model: the trained model.
        split: images and captions.
        all_pairs: score every pair.
        dual: a dual encoder whose candidates are re-ranked.
        k: how many candidates.
        dual_weight: weight of the dual encoder's score.
        more: further splits for ``all_pairs``, each with its own candidates.

    Returns:
        Recalls of ``all_pairs``; and of the ``dual`` encoder, its candidates by ``dual_tta``
        alone (with test-time augmentation), and ``reranked``.
    """
    model.eval()
    report: dict[str, Any] = {}
    if all_pairs:
        results = mean_by_language(
            _evaluate_all_pairs(_scores(model, one), one.captions) for one in (split, *more)
        )
        report["all_pairs"] = retrieval_report(results)
    if dual is not None:
        scores = _scores(model, split, views=split.regions.views)
        before, tta, after = {}, {}, {}
        for language, rows in rows_by_language(split.captions):
            images, cosines = split.captions.record_ids[rows], dual.cosines[language]
            before[language] = summarise(ranks_from_scores(cosines, images))
            candidates = read_candidates(cosines, scores, rows, k, tta=dual.tta_of(language))
            tta[language] = summarise(ranks_from_shortlists(*candidates.by_dual(), images))
            reranked = candidates.reranked(dual_weight)
            after[language] = summarise(ranks_from_shortlists(*reranked, images))
        report["dual"] = retrieval_report(before)
        if dual.tta_cosines is not None:
            report["dual_tta"] = retrieval_report(tta)
        report["reranked"] = retrieval_report(after)
    return report


def tune_dual_weight(
    model: CrossEncoderModel, split: Split, dual: DualScores, k: int = 50
) -> dict[str, Any]:
    """Choose the dual encoder's weight by mR on the validation split.

    Args:
        model: the trained model.
        split: the validation split.
        dual: the dual encoder's cosines of it.
        k: how many candidates are re-ranked.

    Returns:
        The dual encoder's own mR, with test-time augmentation if there is any, mR by weight, and
        the best weight.
    """
    model.eval()
    scores = _scores(model, split, views=split.regions.views)
    recalls: dict[float, list[float]] = {weight: [] for weight in DUAL_WEIGHTS}
    before, tta = [], []
    for language, rows in rows_by_language(split.captions):
        images, cosines = split.captions.record_ids[rows], dual.cosines[language]
        before.append(float(summarise(ranks_from_scores(cosines, images)).mean_recall))
        candidates = read_candidates(cosines, scores, rows, k, tta=dual.tta_of(language))
        if dual.tta_cosines is not None:
            by_dual = ranks_from_shortlists(*candidates.by_dual(), images)
            tta.append(float(summarise(by_dual).mean_recall))
        for weight, by_language in recalls.items():
            ranks = ranks_from_shortlists(*candidates.reranked(weight), images)
            by_language.append(float(summarise(ranks).mean_recall))
    means = {weight: float(np.mean(by_language)) for weight, by_language in recalls.items()}
    return {
        "dual": float(np.mean(before)),
        **({"dual_tta": float(np.mean(tta))} if tta else {}),
        "by_dual_weight": {str(weight): round(mean, 2) for weight, mean in means.items()},
        "dual_weight": max(means, key=means.__getitem__),
    }


def validate(
    model: CrossEncoderModel,
    split: Split,
    languages: Iterable[str],
    *,
    more: Sequence[Split] = (),
) -> dict[str, float]:
    """Return mR with one caption a language, and their mean, which chooses the checkpoint.

    Args:
        model: the model in training.
        split: the validation split.
        languages: those that count.
        more: further validation sets.

    Returns:
        mR by language, and ``score``.
    """
    chosen = set(languages)
    return validation_scores(
        mean_by_language(_validate(model, one, chosen) for one in (split, *more))
    )


def _validate(
    model: CrossEncoderModel, split: Split, languages: Collection[str]
) -> dict[str, RetrievalResult]:
    scores = _scores(model, split)
    results = {}
    for language, rows in rows_by_language(split.captions):
        images, first = np.unique(split.captions.record_ids[rows], return_index=True)
        if language in languages:
            results[language] = summarise(ranks_from_scores(scores.table(rows[first]), images))
    return results


def mean_by_language(
    results: Iterable[Mapping[str, RetrievalResult]],
) -> dict[str, RetrievalResult]:
    """Return each language's mean over the test sets and folds that have it."""
    by_language: dict[str, list[RetrievalResult]] = {}
    for result in results:
        for language, figures in result.items():
            by_language.setdefault(language, []).append(figures)
    return {language: mean_over_folds(folds) for language, folds in by_language.items()}


def check_same_dual_encoder(folder: Path, heads: ProjectionHeadsConfig, name: str) -> None:
    """Refuse embeddings of another dual encoder than the projection heads called ``name``."""
    width = _read_vectors(folder / "pictures.npy", 1).shape[1]
    source = folder / "model.txt"
    made_by = source.read_text(encoding="utf-8").strip() if source.is_file() else heads.model
    if width != heads.width or made_by != heads.model:
        raise DataError(
            f"{folder}: these embeddings are of another dual encoder than {name}: make them again"
            " with python -m polyglance.reproduce.dual_embeddings"
        )


def _scores(model: CrossEncoderModel, split: Split, *, views: int = 1) -> PairScores:
    ids = model.language_ids(split.captions.language_codes)
    return pair_scores(model, split.regions, split.captions, language_ids=ids, views=views)


def _evaluate_all_pairs(scores: PairScores, captions: CaptionTable) -> dict[str, RetrievalResult]:
    return {
        language: summarise(ranks_from_scores(scores.table(rows), captions.record_ids[rows]))
        for language, rows in rows_by_language(captions)
    }


def _read_vectors(path: Path, rows: int) -> Array:
    """Read the first ``rows`` embeddings, scaled to unit length."""
    try:
        vectors = np.load(path, allow_pickle=False).astype(np.float32)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no embeddings of the dual encoder ({error})") from error
    if vectors.ndim != 2 or len(vectors) < rows:
        raise DataError(f"{path}: expected {rows} vectors, not shape {vectors.shape}")
    lengths = np.linalg.norm(vectors[:rows], axis=1, keepdims=True)
    return np.asarray(vectors[:rows] / lengths)
