"""Compare models on the same captioned images: paired differences and the queries behind them.

Every model ranks the same images and captions. Figures are recalls in both directions and their
mean, mR, in each language and on average over languages. A resample draws images, each with all
its captions in all languages, because these succeed and fail together; all models are measured on
the same draws, which is what makes the comparison paired.

A difference has a 95 % interval (percentile bootstrap) and a two-sided p-value (sign flips of
each image's difference). The p-values of mR are corrected by Holm's method for the number of
models and languages on the page; those of single recalls are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import (
    RECALL_AT,
    Integers,
    Ranks,
    RetrievalResult,
    mean_over_languages,
    summarise,
)
from polyglance.evaluation.statistics import ALPHA, RESAMPLES, Comparison, Floats, holm

MEAN = "mean"
"""The place of a language for the mean over languages."""
MEAN_RECALL = "mR"
_BLOCK = 500
"""Resamples at a time: of 10,000 images, their counts take 40 MB."""


@dataclass(frozen=True, eq=False)
class ModelRanks:
    """How a model ranks a test set."""

    name: str
    source: str
    """What the user called it: a name or a folder."""
    similarity: str
    """How it scores: "cosine", "all pairs" or "re-ranked candidates"."""
    ranks: Mapping[str, Ranks]
    """By language."""
    top_images: Mapping[str, Integers]
    """``(captions, k)``: the first images of each caption, best first."""


@dataclass(frozen=True)
class Figure:
    """A figure of one model, with the interval that other images would leave it in."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ModelFigures:
    """A model's figures, and how far they are from the baseline's."""

    name: str
    source: str
    similarity: str
    results: Mapping[str, RetrievalResult]
    """By language."""
    mean_recalls: Mapping[str, Figure]
    """mR by language, and `MEAN` where there are several."""
    differences: Mapping[str, Comparison]
    """Of mR, in the same order, with corrected p-values; empty for the baseline."""
    recall_differences: Mapping[str, Mapping[str, Comparison]]
    """Of each recall, such as "t→i R@1", by language; p-values are not corrected."""


@dataclass(frozen=True)
class DifferentQuery:
    """A caption whose image one model finds and another does not."""

    language: str
    number: int
    """Of the caption among those of its language."""
    image: int
    model: int
    """Number of the model that is compared with the baseline."""
    ranks: tuple[int, ...]
    """Of the right image, by every model."""

    @property
    def gain(self) -> float:
        """Reciprocal rank of the model minus that of the baseline."""
        return 1 / self.ranks[self.model] - 1 / self.ranks[0]


def compare_models(
    models: Sequence[ModelRanks],
    *,
    ks: Sequence[int] = RECALL_AT,
    generator: np.random.Generator | None = None,
) -> list[ModelFigures]:
    """Compare models with the first.

    Args:
        models: Their ranks of the same images and captions; the first is the baseline.
        ks: Recalls to compute.
        generator: Resamples images; by default a fixed one.

    Returns:
        Figures of each model, in the same order.
    """
    if len(models) < 2:
        raise PolyglanceError("a comparison needs two models or more: name another")
    if different := [m.name for m in models if _queries(m) != _queries(models[0])]:
        raise PolyglanceError(
            f"{models[0].name} and {different[0]} ranked different queries: rank the same"
            " captions and images with both"
        )
    languages = list(models[0].ranks)
    results = [{code: summarise(m.ranks[code], ks) for code in languages} for m in models]
    shares = [_Shares.of(model, ks) for model in models]
    names = shares[0].columns
    own, paired = _resample(shares, np.random.default_rng(0) if generator is None else generator)
    figures = [
        {
            code: Figure(_mean_recall(result, code), *own[number][code, MEAN_RECALL])
            for code, name in names
            if name == MEAN_RECALL
        }
        for number, result in enumerate(results)
    ]
    keys = [(n, code) for n in range(1, len(models)) for code in figures[0]]
    corrected = holm([paired[n - 1][code, MEAN_RECALL] for n, code in keys])
    verdicts = dict(zip(keys, corrected, strict=True))
    return [
        ModelFigures(
            name=model.name,
            source=model.source,
            similarity=model.similarity,
            results=results[number],
            mean_recalls=figures[number],
            differences={code: verdicts[number, code] for code in figures[0] if number},
            recall_differences={
                code: {
                    name: paired[number - 1][code, name]
                    for own_code, name in names
                    if own_code == code and name != MEAN_RECALL
                }
                for code in languages
                if number
            },
        )
        for number, model in enumerate(models)
    ]


def most_different_queries(models: Sequence[ModelRanks], count: int = 6) -> list[DifferentQuery]:
    """Return the captions where models and baseline differ most, by reciprocal rank.

    Args:
        models: As for `compare_models`.
        count: For each model, at most so many captions that it ranks better and as many that
            it ranks worse. Each image is shown once for a model and direction.

    Returns:
        For each model, first those that it ranks better, then the others, the most different
        first.
    """
    chosen: list[DifferentQuery] = []
    for model in range(1, len(models)):
        queries = [
            DifferentQuery(code, number, int(image), model, tuple(int(rank) for rank in ranks))
            for code, own in models[0].ranks.items()
            for number, (image, *ranks) in enumerate(
                zip(_image_ids(own), *(m.ranks[code].text_to_image for m in models), strict=True)
            )
            if ranks[0] != ranks[model]
        ]
        for sign in (1, -1):
            # Of equal gains, such as first against anywhere far down, the furthest come first.
            ordered = sorted(
                (query for query in queries if sign * query.gain > 0),
                key=lambda q: (-abs(q.gain), -max(q.ranks[0], q.ranks[q.model])),
            )
            by_image: dict[int, DifferentQuery] = {}
            for query in ordered:
                by_image.setdefault(query.image, query)
            chosen += list(by_image.values())[:count]
    return chosen


def _queries(model: ModelRanks) -> list[tuple[str, int, bytes]]:
    return [
        (code, ranks.num_images, _image_ids(ranks).tobytes()) for code, ranks in model.ranks.items()
    ]


def _image_ids(ranks: Ranks) -> Integers:
    assert ranks.image_ids is not None
    return ranks.image_ids


def _mean_recall(results: Mapping[str, RetrievalResult], code: str) -> float:
    means = {language: result.mean_recall for language, result in results.items()}
    return mean_over_languages(means) if code == MEAN else means[code]


@dataclass(frozen=True, eq=False)
class _Shares:
    """What each image adds to each figure, in percent."""

    columns: list[tuple[str, str]]
    """Language and figure of each column."""
    plain: Floats
    """``(images, figures)``: the image's hits, scaled so that the mean is the figure."""
    linear: Floats
    """The same without the spread that comes from images with more or fewer captions: the
    linearised ratio of hits to queries. Equal to ``plain`` where all images have as many."""

    @classmethod
    def of(cls, model: ModelRanks, ks: Sequence[int]) -> _Shares:
        columns: list[tuple[str, str]] = []
        plain: list[Floats] = []
        linear: list[Floats] = []
        for code, ranks in model.ranks.items():
            first = len(columns)
            captions = np.bincount(_image_ids(ranks), minlength=ranks.num_images)
            captioned = np.flatnonzero(captions > 0)
            for arrow, found, owners in (
                ("i→t", ranks.image_to_text, captioned),
                ("t→i", ranks.text_to_image, _image_ids(ranks)),
            ):
                queries = np.bincount(owners, minlength=ranks.num_images).astype(np.float64)
                for k in ks:
                    hits = np.bincount(owners, found <= k, minlength=ranks.num_images)
                    recall, scale = hits.sum() / queries.sum(), len(queries) / queries.sum()
                    columns.append((code, f"{arrow} R@{k}"))
                    plain.append(100 * scale * hits)
                    linear.append(100 * (recall + scale * (hits - recall * queries)))
            columns.append((code, MEAN_RECALL))
            plain.append(np.mean(plain[first:], axis=0))
            linear.append(np.mean(linear[first:], axis=0))
        if len(model.ranks) > 1:
            means = [n for n, (_, name) in enumerate(columns) if name == MEAN_RECALL]
            columns.append((MEAN, MEAN_RECALL))
            plain.append(np.mean([plain[n] for n in means], axis=0))
            linear.append(np.mean([linear[n] for n in means], axis=0))
        return cls(columns, np.stack(plain, 1), np.stack(linear, 1))


_Key = tuple[str, str]


def _resample(
    shares: Sequence[_Shares], generator: np.random.Generator
) -> tuple[list[dict[_Key, tuple[float, float]]], list[dict[_Key, Comparison]]]:
    """Return intervals of every figure of every model, and comparisons with the first model."""
    columns, images = shares[0].columns, len(shares[0].plain)
    baseline = shares[0]
    plain = np.concatenate([model.plain - baseline.plain for model in shares[1:]], axis=1)
    linear = [model.linear for model in shares]
    linear += [model.linear - baseline.linear for model in shares[1:]]
    values = np.concatenate(linear, axis=1)
    means: list[Floats] = []
    flipped: list[Floats] = []
    rows = np.arange(_BLOCK)[:, None] * images
    for _ in range(0, RESAMPLES, _BLOCK):
        drawn = generator.integers(images, size=(_BLOCK, images))
        counts = np.bincount((drawn + rows).ravel(), minlength=_BLOCK * images)
        means.append(counts.reshape(_BLOCK, images) @ values / images)
        signs = generator.choice((-1.0, 1.0), size=(_BLOCK, images))
        flipped.append(signs @ plain / images)
    low, high = np.quantile(np.concatenate(means), (ALPHA / 2, 1 - ALPHA / 2), axis=0)
    observed = np.abs(plain.mean(0)) - 1e-9  # a tie is as extreme
    extreme = np.count_nonzero(np.abs(np.concatenate(flipped)) >= observed, axis=0)
    p_values = (extreme + 1) / (RESAMPLES + 1)
    own = []
    for model in range(len(shares)):
        part = slice(model * len(columns), (model + 1) * len(columns))
        limits = zip(columns, low[part].tolist(), high[part].tolist(), strict=True)
        own.append({key: (least, most) for key, least, most in limits})
    paired = []
    for model in range(len(shares) - 1):
        of_model = {}
        for column, key in enumerate(columns, model * len(columns)):
            at = len(shares) * len(columns) + column
            of_model[key] = Comparison(
                float(plain[:, column].mean()), float(low[at]), float(high[at]),
                float(p_values[column]), 1, images, "queries",
            )  # fmt: skip
        paired.append(of_model)
    return own, paired
