"""Max-margin ranking between two views of the same things."""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.objectives.similarity import cosines


def triplet(
    first: Tensor, second: Tensor, *, margin: float = 0.2, hardest: int | None = None
) -> Tensor:
    """Every pair must beat all other pairs of its row and its column by ``margin``.

    The mean violation ``max(0, margin - s(i, i) + s(i, j))`` over both directions,
    the baseline of MMP's Table 3. With ``hardest`` only that many violations a row
    and column count, as SMALR takes the top 10. Similarity is the cosine.
    """
    scores = cosines(first, second)
    if len(scores) < 2:
        return scores.sum() * 0.0  # one pair has nothing to beat
    pairs = scores.diagonal()
    own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    by_row = (margin - pairs[:, None] + scores).clamp(min=0).masked_fill(own, 0)
    by_column = (margin - pairs[:, None] + scores.T).clamp(min=0).masked_fill(own, 0)
    counted = len(scores) - 1 if hardest is None else min(hardest, len(scores) - 1)
    top = by_row.topk(counted).values.mean() + by_column.topk(counted).values.mean()
    return top / 2
