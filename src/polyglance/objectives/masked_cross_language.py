"""Masked cross-language modelling (SMALR, section 3.2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mask_random_words(ids: Tensor, *, mask_id: int, rate: float = 0.2) -> Tensor:
    """Replace each word by the mask with probability ``rate``.

    Random draws come from torch's default generator, as for dropout; training seeds it at each
    step.
    """
    masked = torch.rand(ids.shape, device=ids.device) < rate
    return torch.where(masked, mask_id, ids)


def mclm_loss(masked: Tensor, whole: Tensor, present: Tensor, predict: nn.Module) -> Tensor:
    """Return equation 2: masked sentences in two languages predict what either lacks.

    Args:
        masked: ``(languages, columns, width)`` vectors of masked sentences; a column holds
            captions of one image.
        whole: the same of the unmasked sentences.
        present: ``(languages, columns)``: where there is a sentence.
        predict: the layer shared by all pairs of languages, from both masked vectors,
            concatenated, to what is missing from each.

    Returns:
        The mean over all unordered pairs of present sentences of one column.
    """
    first, second = torch.triu_indices(len(masked), len(masked), 1, device=masked.device)
    missing = predict(torch.cat([masked[first], masked[second]], dim=2))
    missing_first, missing_second = missing.chunk(2, dim=2)
    target = _normalise(whole)
    error = _norm(_normalise(masked[first] + missing_first) - target[first])
    error = error + _norm(_normalise(masked[second] + missing_second) - target[second])
    counted = present[first] & present[second]
    return torch.where(counted, error, 0.0).sum() / counted.sum().clamp(min=1)


def _normalise(rows: Tensor) -> Tensor:
    return F.normalize(rows.float() if rows.dtype.itemsize < 4 else rows, dim=-1)


def _norm(rows: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norm
