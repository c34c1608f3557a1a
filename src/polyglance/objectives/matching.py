"""Image-text matching (M3P's MC-VLM, UC2's ITM), and its fine-tuning for retrieval."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import to_device


def itm_loss(logits: Tensor, matched: Tensor) -> Tensor:
    """Return ``BCE(s(w, v), y)``, averaged over pairs; ``matched`` is true for matching pairs."""
    targets = to_device(matched, logits.device).float()
    return F.binary_cross_entropy_with_logits(logits.float(), targets)


def sigmoid_triplet(matched: Tensor, others: Tensor, *, margin: float = 0.2) -> Tensor:
    """Rank a matching pair above others (UC2, section 4, as UNITER).

    ``max(0, margin + sigmoid(s(other)) - sigmoid(s(match)))``, averaged over all other pairs.

    Args:
        matched: ``(n,)`` scores of matching pairs.
        others: ``(n, k)`` scores of the pairs that each must beat.
        margin: by how much, in probability.
    """
    match, other = matched.float().sigmoid(), others.float().sigmoid()
    return (margin + other - match[:, None]).clamp(min=0).mean()
