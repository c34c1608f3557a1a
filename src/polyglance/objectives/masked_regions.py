"""Masked region modelling (M3P, section 3.2, MC-MRM): features and labels of hidden regions.

Drawn as dropout is, from torch's own generator, which training seeds at each step;
on the processor, so that nobody asks the accelerator how many regions were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.sending import sent

NO_LABEL = -100
"""Of a region whose class nobody knows, such as a picture as a whole."""


@dataclass(frozen=True, eq=False)
class MaskedRegions:
    """Regions of which some are hidden."""

    features: Tensor
    places: Tensor
    """The rows of the chosen regions."""
    targets: Tensor
    """What their features were."""


def mask_regions(
    features: Tensor,
    *,
    rate: float = 0.15,
    zeroed: float = 0.9,
    maskable: Tensor | None = None,
) -> MaskedRegions:
    """Choose ``rate`` of the regions, of those that are ``maskable``, and zero most of them.

    The share ``zeroed`` of the chosen loses its features; the others are told from
    themselves as well.
    """
    chosen = torch.rand(len(features)) < rate
    drawn = (chosen if maskable is None else chosen & maskable).nonzero()[:, 0]
    kept = sent(torch.rand(len(drawn), 1) >= zeroed, features.device)
    places = sent(drawn, features.device)
    targets = features[places]
    return MaskedRegions(features.index_copy(0, places, targets * kept), places, targets)


def region_regression(predicted: Tensor, targets: Tensor) -> Tensor:
    """``MSE(h(v_k), f(v_k))``, the mean over chosen regions; zero where there are none."""
    errors = (predicted.float() - targets.float()).square().mean(1)
    return errors.sum() / max(1, len(targets))


def region_classification(logits: Tensor, labels: Tensor) -> Tensor:
    """``CE(g(v_k), C(v_k))``, the mean over chosen regions with a label; zero without any.

    ``C`` is the label that the detector is surest of.
    """
    total = F.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=NO_LABEL)
    return total / (labels != NO_LABEL).sum().clamp(min=1)
