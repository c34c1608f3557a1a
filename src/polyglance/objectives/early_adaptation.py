"""Early adaptation (UC2, section 3.3.2): align region embeddings with words before pre-training."""

from __future__ import annotations

import torch
from torch import Tensor


def early_adaptation(
    cosines: Tensor, labels: Tensor, shares: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """Return ``KL(g(v) || h(v))``, averaged over regions.

    ``h`` is the softmax of the cosines of a region with the words of all labels; ``g`` is the
    detector's distribution, restricted to its likeliest labels.

    Args:
        cosines: ``(regions, labels)``.
        labels: ``(regions, k)``: the likeliest labels of each region.
        shares: ``(regions, k)``: their probabilities, normalised here to sum to 1.
        temperature: the paper has none, but then ``h`` is nearly uniform, as cosines differ by
            2 at most.
    """
    target = shares.float() / shares.float().sum(1, keepdim=True)
    predicted = (cosines.float() / temperature).log_softmax(1).gather(1, labels)
    # xlogy: a probability of 0 contributes 0.
    divergence = torch.xlogy(target, target) - target * predicted
    return divergence.sum(1).mean()


def label_ranks(cosines: Tensor, labels: Tensor) -> Tensor:
    """Return the rank of each region's own label among all labels, ``(regions,)``, from 1.

    Ties count against the own label, so that constant predictions gain nothing.
    """
    own = cosines.gather(1, labels[:, None])
    return (cosines >= own).sum(1)
