"""Early adaptation (UC2, section 3.3.2): regions lie among words before the transformer begins."""

from __future__ import annotations

import torch
from torch import Tensor


def early_adaptation(
    cosines: Tensor, labels: Tensor, shares: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """``KL(g(v) || h(v))``, the mean over regions.

    ``h`` is the softmax of ``cosines``, regions x labels, to the words of all labels.
    ``g`` is what the detector believes: the likeliest ``labels`` of each region and
    their ``shares``, which are taken to be all. The paper has no temperature, where
    ``h`` is never far from even: cosines differ by two at most.
    """
    believed = shares.float() / shares.float().sum(1, keepdim=True)
    predicted = (cosines.float() / temperature).log_softmax(1).gather(1, labels)
    # A share of nothing costs nothing, and its logarithm is not asked for.
    costs = torch.xlogy(believed, believed) - believed * predicted
    return costs.sum(1).mean()


def label_ranks(cosines: Tensor, labels: Tensor) -> Tensor:
    """The rank of each region's own label word among those of all labels, 1 for the nearest.

    Of equal cosines the own one comes last: a model that tells nothing apart gains nothing.
    """
    own = cosines.gather(1, labels[:, None])
    return (cosines >= own).sum(1)
