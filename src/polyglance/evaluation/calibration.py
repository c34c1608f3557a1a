"""Fit a `Calibration` to trials (`polyglance.evaluation.calibration_trials`), and measure it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.calibration import (
    FEATURES,
    PEOPLE,
    POOLED,
    Background,
    Calibration,
    Floats,
    QueryStatistics,
    TopHits,
    plain_features,
)
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError
from polyglance.evaluation.calibration_trials import CalibrationData, Trial, TrialKind
from polyglance.evaluation.logistic import fit_logistic

PERSON = "person"
"""The label of pictures with people."""
_COSINE, _CROSSED = FEATURES.index("cosine"), FEATURES.index("cosine x library size")
_MIN_SLOPE = 4.0
"""The least by which a cosine that is higher by 1 raises the logit.

Of queries without a match only the best hits are fitted, so that a picture could seem to match
because another is better.
"""
_NEGATIVES: dict[TrialKind, float] = {
    "nonsense": 0.25, "absent": 0.45, "label": 0.15, "label absent": 0.15,
}  # fmt: skip
"""Shares of the hits that do not match in the fit; those that match weigh as much together."""
_RIDGE, _LANGUAGE_RIDGE = 0.01, 20.0
"""Penalties on coefficients, and on those of a language as far as they differ from all others'."""
_PROBE_RIDGE = 10.0
_MIN_MATCHES = 50
"""A language with fewer has the fold of all."""
_MAX_FOLD = 0.9
"""Hits as probable as this always fit well."""
_FOLD_SIZE = 100
"""The fold is chosen on libraries of at least this size."""


def fit_calibration(
    data: CalibrationData,
    trials: Sequence[Trial],
    background: Background,
    captions: Background,
    *,
    people: NDArray[np.bool_] | None = None,
    recall: float = 0.885,
) -> Calibration:
    """Fit probabilities to trials by logistic regression.

    Args:
        data: Pictures and queries.
        trials: What to fit.
        background: Of pictures.
        captions: Of captions.
        people: The pictures by which the direction of people is fitted, ``[n]``.
        recall: The share of matches above the fold in libraries of each size, and in each
            language. As all of these hold, the share of all matches is higher, 90 % by default.

    Returns:
        The calibration.
    """
    totals: defaultdict[tuple[TrialKind, bool], int] = defaultdict(int)
    chosen = [(trial, _chosen(trial)) for trial in trials if trial.kind != "unseen"]
    plain = Calibration(background, {}, {}, captions=captions)
    statistics = _statistics(plain, data)
    plain = _centered(plain, data, [trial for trial, _ in chosen], statistics)
    rows, matches, weights, languages = [], [], [], []
    for trial, mask in chosen:
        for value in trial.matches[mask].tolist():
            totals[trial.kind, value > 0] += 1
    num_matches = sum(count for (_, match), count in totals.items() if match)
    for trial, mask in chosen:
        found = trial.matches[mask]
        top = _top_hits(plain, data, trial)
        rows.append(plain.features(trial.cosines[mask], statistics[trial.query], trial.size, top))
        matches.append(found)
        share = _NEGATIVES.get(trial.kind, 0.0) / max(1, totals[trial.kind, False])
        weights.append(np.where(found > 0, 1 / max(1, num_matches), share))
        languages += [data.queries[trial.query].language] * len(found)
    x, y, w = np.concatenate(rows), np.concatenate(matches), np.concatenate(weights)
    w = w * len(w) / w.sum()
    center, scale = x.mean(0), x.std(0)
    center[-1], scale[-1] = 0.0, 1.0
    standard = (x - center) / np.where(scale > 0, scale, 1)
    # With the best cosine beside it, the product only adds noise.
    limits = {_COSINE: float(_MIN_SLOPE * scale[_COSINE]), _CROSSED: None}
    pooled = fit_logistic(standard, y, w, np.zeros(x.shape[1]), _RIDGE, limits)
    coefficients = {POOLED: pooled}
    codes = np.array([code or "" for code in languages])
    for code in sorted({*codes.tolist()} - {""}):
        own = codes == code
        if (y[own] > 0).any() and (y[own] == 0).any():
            coefficients[code] = fit_logistic(
                standard[own], y[own], w[own], pooled, _LANGUAGE_RIDGE, limits
            )
    calibration = replace(
        plain,
        coefficients={
            code: _unstandardise(value, center, scale) for code, value in coefficients.items()
        },
        directions={} if people is None else {PEOPLE: people_direction(data, people)},
    )
    folds = choose_folds(calibration, data, trials, recall)
    return replace(calibration, folds=folds)


def people_direction(data: CalibrationData, pictures: NDArray[np.bool_]) -> Vectors:
    """Return the direction from pictures without people to those with, by ridge regression."""
    if PERSON not in data.names:
        raise PolyglanceError(f"no picture has the label {PERSON!r}: give labels that include it")
    x = data.pictures[pictures].astype(np.float64)
    y = data.labels[pictures, data.names.index(PERSON)].astype(np.float64)
    weights = np.linalg.solve(x.T @ x + _PROBE_RIDGE * np.eye(x.shape[1]), x.T @ (y - y.mean()))
    unit: Vectors = (weights / np.linalg.norm(weights)).astype(np.float32)
    return unit


def choose_folds(
    calibration: Calibration, data: CalibrationData, trials: Sequence[Trial], recall: float
) -> dict[str, float]:
    """Return, by language, the highest probability that so many matches have.

    Of all languages together it holds for libraries of every size, which is the stricter choice
    where a language has few matches.
    """
    groups = defaultdict[tuple[str, int], list[float]](list)
    for trial, probabilities in judge(calibration, data, trials):
        if trial.kind == "match" and trial.size >= _FOLD_SIZE:
            found = probabilities[trial.matches > 0].tolist()
            groups[POOLED, trial.size] += found
            groups[data.queries[trial.query].language or POOLED, 0] += found
    quantiles = {
        key: float(np.quantile(values, 1 - recall)) for key, values in groups.items() if values
    }
    pooled = min(value for (code, size), value in quantiles.items() if code == POOLED)
    folds = dict.fromkeys(calibration.coefficients, pooled)
    for (code, _), value in quantiles.items():
        if code in folds and code != POOLED and len(groups[code, 0]) >= _MIN_MATCHES:
            folds[code] = value
    return {code: round(min(value, _MAX_FOLD), 3) for code, value in folds.items()}


def judge(
    calibration: Calibration, data: CalibrationData, trials: Sequence[Trial]
) -> list[tuple[Trial, Floats]]:
    """Return each trial with the probabilities of its hits."""
    statistics = _statistics(calibration, data)
    return [
        (
            trial,
            calibration.probabilities(
                trial.cosines,
                statistics[trial.query],
                trial.size,
                data.queries[trial.query].language,
                _top_hits(calibration, data, trial),
            ),
        )
        for trial in trials
    ]


def summarise(
    data: CalibrationData, measured: Sequence[tuple[Calibration, Sequence[Trial]]]
) -> dict[str, Any]:
    """Return which share of matches, and of queries without one, have hits above the fold.

    Args:
        data: Pictures and queries.
        measured: Calibrations, and the trials that each is to judge.

    Returns:
        For each kind of trial its number and the share above the fold, in all, by size of the
        library and by language; and how far probabilities are from the truth on labels.
    """
    groups = defaultdict[tuple[str, str, str], list[bool]](list)
    bins = defaultdict[int, list[tuple[float, float]]](list)
    judged = [
        (calibration, *one)
        for calibration, trials in measured
        for one in judge(calibration, data, trials)
    ]
    for calibration, trial, probabilities in judged:
        language = data.queries[trial.query].language or "unknown"
        fold = calibration.fold(data.queries[trial.query].language)
        if trial.kind in ("match", "label"):
            above = (probabilities[trial.matches > 0] >= fold).tolist()
        else:
            above = [bool((probabilities >= fold).any())]
        axes = [("all", ""), ("library size", str(trial.size)), ("language", language)]
        if source := data.queries[trial.query].source:
            axes.append(("source", source))
        for group in axes:
            groups[trial.kind, *group] += above
        if trial.kind == "label":
            for probability, match in zip(probabilities, trial.matches, strict=True):
                bins[int(probability * 10)].append((float(probability), float(match)))
    report: dict[str, Any] = {}
    for (kind, axis, value), found in sorted(groups.items()):
        if found:
            entry = {"count": len(found), "above": round(float(np.mean(found)), 4)}
            place = report.setdefault(kind, {})
            if axis == "all":
                place |= entry
            else:
                place.setdefault(axis, {})[value] = entry
    report["reliability"] = [
        {
            "count": len(pairs),
            "probability": round(float(np.mean([one for one, _ in pairs])), 3),
            "matches": round(float(np.mean([one for _, one in pairs])), 3),
        }
        for _, pairs in sorted(bins.items())
    ]
    return report


def _chosen(trial: Trial) -> NDArray[np.bool_]:
    """Return which hits take part in the fit: known ones, of queries without a match the best."""
    known: NDArray[np.bool_] = ~np.isnan(trial.matches)
    return known if trial.kind in ("match", "label") else known & (np.arange(len(known)) < 2)


def _top_hits(calibration: Calibration, data: CalibrationData, trial: Trial) -> TopHits:
    return calibration.top_hits(trial.top, data.pictures[trial.best])


def _centered(
    calibration: Calibration,
    data: CalibrationData,
    trials: Sequence[Trial],
    statistics: Sequence[QueryStatistics],
) -> Calibration:
    """Return a calibration that knows the usual values of the features, at the best hits."""
    rows = []
    for trial in trials:
        top = _top_hits(calibration, data, trial)
        rows.append(plain_features(trial.top[:1], statistics[trial.query], trial.size, top))
    values = np.concatenate(rows)
    deviation = values.std(0)
    return replace(
        calibration, center=values.mean(0), scale=np.where(deviation > 0, deviation, 1.0)
    )


def _statistics(calibration: Calibration, data: CalibrationData) -> list[QueryStatistics]:
    return [
        calibration.statistics(vector, surprisal)
        for vector, surprisal in zip(data.texts, data.surprisals, strict=True)
    ]


def _unstandardise(value: Floats, center: Floats, scale: Floats) -> Floats:
    raw = value / np.where(scale > 0, scale, 1)
    raw[-1] = value[-1] - float(raw[:-1] @ center[:-1])
    return raw
