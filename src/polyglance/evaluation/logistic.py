"""Logistic regression with a prior, by Newton's method."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MAX_STEPS = 50


def fit_logistic(
    x: Floats,
    y: Floats,
    weights: Floats,
    prior: Floats,
    ridge: float,
    limits: Mapping[int, float | None] | None = None,
) -> Floats:
    """Fit coefficients, with a penalty on the distance from a prior.

    Args:
        x: Features, ``[n, features]``.
        y: 0 or 1, ``[n]``.
        weights: Of the rows, ``[n]``.
        prior: Coefficients to stay close to, ``[features]``.
        ridge: The penalty.
        limits: By feature, the lowest coefficient; None for one that is 0.

    Returns:
        The coefficients, ``[features]``.
    """
    limits = limits or {}
    start, free = prior.copy(), np.ones(x.shape[1], bool)
    for feature, least in limits.items():
        if least is None:
            start[feature], free[feature] = 0.0, False
    value = _newton(x, y, weights, start, ridge, free)
    low = [at for at, least in limits.items() if least is not None and value[at] < least]
    if not low:
        return value
    for feature in low:
        start[feature], free[feature] = limits[feature] or 0.0, False
    return _newton(x, y, weights, start, ridge, free)


def _newton(
    x: Floats, y: Floats, weights: Floats, prior: Floats, ridge: float, free: NDArray[np.bool_]
) -> Floats:
    value, columns = prior.copy(), x[:, free]
    penalty = np.full(columns.shape[1], ridge)
    for _ in range(_MAX_STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ value, -30, 30)))
        gradient = columns.T @ (weights * (p - y)) + penalty * (value - prior)[free]
        hessian = (columns * (weights * p * (1 - p))[:, None]).T @ columns + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        value[free] -= step
        if np.abs(step).max() < 1e-8:
            break
    return value
