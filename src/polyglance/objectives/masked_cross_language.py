"""Masked cross-language modelling (SMALR, section 3.2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mask_random_words(ids: Tensor, *, mask_id: int, rate: float = 0.2) -> Tensor:
    """The same words with ``rate`` of them replaced by the mask, any of them.

    They are drawn as dropout is, from torch's own generator, which training seeds at
    each step.
    """
    hidden = torch.rand(ids.shape, device=ids.device) < rate
    return torch.where(hidden, mask_id, ids)


def mclm_loss(masked: Tensor, whole: Tensor, present: Tensor, predict: nn.Module) -> Tensor:
    """Equation 2: two masked sentences in two languages together tell what either lacks.

    ``masked`` and ``whole`` are vectors ``(languages, columns, width)`` of the same
    sentences, where a column is about one picture. For each unordered pair of
    languages ``predict``, the layer that all pairs share, turns the two masked vectors
    side by side into what is missing from each. The mean over all pairs of sentences
    that are ``present``.
    """
    first, second = torch.triu_indices(len(masked), len(masked), 1, device=masked.device)
    missing = predict(torch.cat([masked[first], masked[second]], dim=2))
    missing_first, missing_second = missing.chunk(2, dim=2)
    goal = _unit(whole)
    error = _length(_unit(masked[first] + missing_first) - goal[first])
    error = error + _length(_unit(masked[second] + missing_second) - goal[second])
    counted = present[first] & present[second]
    return torch.where(counted, error, 0.0).sum() / counted.sum().clamp(min=1)


def _unit(rows: Tensor) -> Tensor:
    return F.normalize(rows.float() if rows.dtype.itemsize < 4 else rows, dim=-1)


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return length
