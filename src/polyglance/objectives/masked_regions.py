"""Masked regions: regression and classification (M3P, MC-MRM), or naming in words (UC2, MRTM).

M3P's two losses are here (section 3.2). UC2's MRTM (section 3.3.2) uses
`polyglance.objectives.masked_language.mlm_loss`, since a label is a sub-word of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws

NO_LABEL = -100
"""The label of a region of unknown class, such as an image as a whole."""


@dataclass(frozen=True, eq=False)
class RegionMask:
    """Which of a batch's packed regions are predicted, and which are masked."""

    positions: Tensor
    """Rows of the regions to predict."""
    masked: Tensor
    """Rows whose features are replaced: most of these, and global regions that reveal them."""


def choose_regions(
    regions: Packing,
    draws: ItemDraws,
    *,
    rate: float = 0.15,
    hidden: float = 0.9,
    maskable: Tensor | None = None,
    global_rows: Tensor | None = None,
) -> RegionMask:
    """Choose regions to predict, most of them to be masked.

    Args:
        regions: the packing of the regions, one sequence per image.
        draws: random numbers of the images.
        rate: the share of regions that are chosen.
        hidden: the share of the chosen that are masked; the others are kept.
        maskable: ``(regions,)``: which may be chosen.
        global_rows: ``(regions,)``: for each region, the row of its image's global feature,
            for that row its own. Being the mean of all regions, it would reveal masked ones:
            it is masked with them, and never predicted.
    """
    chosen = draws.per_row("chosen regions", regions) < rate
    if maskable is not None:
        chosen &= maskable
    if global_rows is not None:
        chosen &= global_rows != torch.arange(len(global_rows))
    positions = chosen.nonzero()[:, 0]
    masked = positions[draws.per_row("treatment of regions", regions)[positions] < hidden]
    if global_rows is not None:
        masked = torch.cat([masked, torch.unique(global_rows[masked])])
    return RegionMask(positions, masked)


def mask_features(features: Tensor, masked: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return features with masked rows replaced.

    Args:
        features: ``(regions, visual_width)``.
        masked: the rows to replace.
        mask: the feature that replaces them: zeros by default (M3P), or UC2's ``v_m``.
    """
    blank = features.new_zeros(features.shape[1]) if mask is None else mask.to(features.dtype)
    return features.index_copy(0, to_device(masked, features.device), blank.expand(len(masked), -1))


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
