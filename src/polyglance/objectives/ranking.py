"""Fine-tuning for retrieval (UC2, section 4, as UNITER): a true pair before false ones."""

from __future__ import annotations

from torch import Tensor


def sigmoid_triplet(matched: Tensor, others: Tensor, *, margin: float = 0.2) -> Tensor:
    """``max(0, margin + sigmoid(s(false)) - sigmoid(s(true)))``, the mean over all false pairs.

    ``matched`` are the scores of true pairs, ``(n,)``, and ``others`` those of the false
    ones that each has to beat, ``(n, k)``.
    """
    true, false = matched.float().sigmoid(), others.float().sigmoid()
    return (margin + false - true[:, None]).clamp(min=0).mean()
