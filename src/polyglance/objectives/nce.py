"""Noise-contrastive estimation between two views of the same items (MMP, equations 1 and 2)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.objectives.similarity import cosines

Negatives = Literal["joint", "symmetric"]


def nce(
    first: Tensor,
    second: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    negatives: Negatives = "joint",
) -> Tensor:
    """Pull row ``i`` of ``first`` towards row ``i`` of ``second``, away from all other rows.

    Equation 2 names "other x_j and v_j" as the noise and can be read in two ways:

    - ``joint``: one denominator per pair, over the negatives of both sides (Miech et al. 2020);
    - ``symmetric``: the mean of two softmax losses, one per side (as in CLIP).

    Args:
        first: ``(n, width)``.
        second: ``(n, width)``.
        temperature: divides the cosine similarities.
        negatives: the reading of equation 2.
    """
    scores = cosines(first, second) / temperature
    if negatives == "symmetric":
        target = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2
    # The pair itself counts once in the denominator, though it is in both a row and a column.
    diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    columns = scores.T.masked_fill(diagonal, -torch.inf)
    noise = torch.cat([scores, columns], dim=1).logsumexp(dim=1)
    return (noise - scores.diagonal()).mean()
