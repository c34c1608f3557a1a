"""Masked cross-language modelling (SMALR, section 3.2)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws

PairReduction = Literal["mean", "sum-languages", "sum"]
"""How equation 2, of two sentences, becomes one number for a batch: see `mclm_loss`."""


def mask_random_words(
    ids: Tensor, sentences: Packing, draws: ItemDraws, *, mask_id: int, rate: float = 0.2
) -> Tensor:
    """Replace each word by the mask with probability ``rate``.

    Args:
        ids: ``(words,)``.
        sentences: the packing of ``ids``.
        draws: random numbers of the sentences.
        mask_id: the id of the mask.
        rate: the share of words.
    """
    return torch.where(draws.per_row("masked words", sentences) < rate, mask_id, ids)


def mclm_loss(
    masked: Tensor,
    whole: Tensor,
    present: Tensor,
    predict: nn.Module,
    reduction: PairReduction = "mean",
) -> Tensor:
    """Return equation 2: masked sentences in two languages predict what either lacks.

    Args:
        masked: ``(languages, columns, width)`` vectors of masked sentences; a column holds
            captions of one image.
        whole: the same of the unmasked sentences.
        present: ``(languages, columns)``: where there is a sentence.
        predict: the layer shared by all pairs of languages, from both masked vectors,
            concatenated, to what is missing from each.
        reduction: over all unordered pairs of present sentences of one column: their ``sum``,
            their ``mean``, or ``sum-languages``, the sum over pairs of languages of the mean
            over columns. The paper does not say which; see docs/fidelity.md.

    Returns:
        The loss, a scalar.
    """
    first, second = torch.triu_indices(len(masked), len(masked), 1, device=masked.device)
    missing = predict(torch.cat([masked[first], masked[second]], dim=2))
    missing_first, missing_second = missing.chunk(2, dim=2)
    target = _normalise(whole)
    error = _norm(_normalise(masked[first] + missing_first) - target[first])
    error = error + _norm(_normalise(masked[second] + missing_second) - target[second])
    counted = present[first] & present[second]
    error = torch.where(counted, error, 0.0)
    if reduction == "sum":
        return error.sum()
    if reduction == "sum-languages":
        return (error.sum(1) / counted.sum(1).clamp(min=1)).sum()
    return error.sum() / counted.sum().clamp(min=1)


def _normalise(rows: Tensor) -> Tensor:
    return F.normalize(rows.float() if rows.dtype.itemsize < 4 else rows, dim=-1)


def _norm(rows: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norm
