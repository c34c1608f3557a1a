"""Masked regions: regression and classification (M3P, MC-MRM), or naming in words (UC2, MRTM).

M3P's two losses are here (section 3.2). UC2's MRTM (section 3.3.2) uses
`polyglance.objectives.masked_language.mlm_loss`, since a label is a sub-word of the vocabulary.

Random draws come from torch's default generator, as for dropout; training seeds it at each
step. They are made on the CPU, so that nobody waits for the accelerator to count regions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import to_device

NO_LABEL = -100
"""The label of a region of unknown class, such as an image as a whole."""


@dataclass(frozen=True, eq=False)
class MaskedRegions:
    """Packed regions after masking."""

    features: Tensor
    positions: Tensor
    """Rows of the chosen regions, on the CPU."""
    targets: Tensor
    """Their original features."""


def mask_regions(
    features: Tensor,
    *,
    rate: float = 0.15,
    hidden: float = 0.9,
    mask: Tensor | None = None,
    maskable: Tensor | None = None,
    global_rows: Tensor | None = None,
) -> MaskedRegions:
    """Choose regions to predict, and mask most of them.

    Args:
        features: ``(regions, visual_width)``.
        rate: the share of regions that are chosen.
        hidden: the share of the chosen that are masked; the others are kept.
        mask: the feature that replaces them: zeros by default (M3P), or UC2's ``v_m``.
        maskable: ``(regions,)``: which may be chosen.
        global_rows: ``(regions,)``: for each region, the row of its image's global feature,
            for that row its own. Being the mean of all regions, it would reveal masked ones:
            it is masked with them, and never predicted.
    """
    chosen = torch.rand(len(features)) < rate
    if maskable is not None:
        chosen &= maskable
    if global_rows is not None:
        chosen &= global_rows != torch.arange(len(global_rows))
    positions = chosen.nonzero()[:, 0]
    replaced = positions[torch.rand(len(positions)) < hidden]
    if global_rows is not None:
        replaced = torch.cat([replaced, torch.unique(global_rows[replaced])])
    blank = features.new_zeros(features.shape[1]) if mask is None else mask.to(features.dtype)
    masked = features.index_copy(
        0, to_device(replaced, features.device), blank.expand(len(replaced), -1)
    )
    return MaskedRegions(masked, positions, features[to_device(positions, features.device)])


def region_regression(predicted: Tensor, targets: Tensor) -> Tensor:
    """Return ``MSE(h(v_k), f(v_k))``, averaged over chosen regions; 0 if there are none.

    Both are ``(n, visual_width)``.
    """
    errors = (predicted.float() - targets.float()).square().mean(1)
    return errors.sum() / max(1, len(targets))


def region_classification(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``CE(g(v_k), C(v_k))``, averaged over chosen regions with a label; 0 if none has.

    ``C`` is the detector's likeliest label. ``logits`` are ``(n, num_labels)``, ``labels``
    ``(n,)``.
    """
    total = F.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=NO_LABEL)
    return total / (labels != NO_LABEL).sum().clamp(min=1)
