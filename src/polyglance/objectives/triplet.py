"""Max-margin ranking between two views of the same items."""

from __future__ import annotations

import torch
from torch import Tensor

from polyglance.objectives.similarity import cosines


def triplet(
    first: Tensor, second: Tensor, *, margin: float = 0.2, hardest: int | None = None
) -> Tensor:
    """Return the mean violation ``max(0, margin - s(i, i) + s(i, j))`` over both directions.

    The baseline of MMP's Table 3; ``s`` is the cosine similarity.

    Args:
        first: ``(n, width)``.
        second: ``(n, width)``; row ``i`` belongs to row ``i`` of ``first``.
        margin: by which a pair must beat the others of its row and column.
        hardest: how many violations count per row and column, as SMALR's top 10; all by default.
    """
    scores = cosines(first, second)
    if len(scores) < 2:
        return scores.sum() * 0.0  # a single pair has nothing to beat
    pairs = scores.diagonal()
    own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    by_row = (margin - pairs[:, None] + scores).clamp(min=0).masked_fill(own, 0)
    by_column = (margin - pairs[:, None] + scores.T).clamp(min=0).masked_fill(own, 0)
    counted = len(scores) - 1 if hardest is None else min(hardest, len(scores) - 1)
    top = by_row.topk(counted).values.mean() + by_column.topk(counted).values.mean()
    return top / 2
