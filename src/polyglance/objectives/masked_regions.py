"""Masked regions: regression and classification (M3P, MC-MRM), or naming in words (UC2, MRTM).

M3P's two losses are here (section 3.2). UC2's MRTM (section 3.3.2) uses
`polyglance.objectives.masked_language.mlm_loss`, since a label is a sub-word of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws

AtLeastOneRegion = Literal["no", "random", "last"]

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
    background: Tensor | None = None,
    global_rows: Tensor | None = None,
    at_least_one: AtLeastOneRegion = "no",
) -> RegionMask:
    """Choose regions to predict, most of them to be masked.

    Args:
        regions: the packing of the regions, one sequence per image.
        draws: random numbers of the images.
        rate: the share of regions that are chosen.
        hidden: the share of the chosen that are masked; the others are kept.
        maskable: ``(regions,)``: which may be chosen.
        background: ``(regions,)``: which are not chosen by chance, but as the ``last`` one are.
        global_rows: ``(regions,)``: for each region, the row of its image's global feature,
            for that row its own. Being the mean of all regions, it would reveal masked ones:
            it is masked with them, and never predicted.
        at_least_one: choose a region of an image in which none was chosen, as the published code
            does: UC2's a ``random`` one, M3P's the ``last`` one, which it does not mask.
    """
    uniform = draws.per_row("chosen regions", regions)
    eligible = torch.ones_like(uniform, dtype=torch.bool) if maskable is None else maskable
    if global_rows is not None:
        eligible = eligible & (global_rows != torch.arange(len(global_rows)))
    by_chance = eligible if background is None else eligible & ~background
    chosen = by_chance & (uniform < rate)
    treatment = draws.per_row("treatment of regions", regions)
    if at_least_one != "no":
        # Of the random numbers above the rate, the lowest is any region's with equal probability.
        if at_least_one == "random":
            added = _lowest_without(chosen, by_chance, uniform, regions)
        else:
            added = _lowest_without(chosen, eligible, -regions.positions.double(), regions)
        chosen = chosen | added
        if at_least_one == "last":
            treatment = torch.where(added, 1.0, treatment)
    positions = chosen.nonzero()[:, 0]
    masked = positions[treatment[positions] < hidden]
    if global_rows is not None:
        masked = torch.cat([masked, torch.unique(global_rows[masked])])
    return RegionMask(positions, masked)


def _lowest_without(chosen: Tensor, eligible: Tensor, order: Tensor, regions: Packing) -> Tensor:
    """Return ``(regions,)``: the eligible region of lowest order of each image without a choice."""
    images = regions.sequence_ids
    lowest = torch.full((len(regions),), torch.inf, dtype=order.dtype)
    lowest.scatter_reduce_(0, images, torch.where(eligible, order, torch.inf), "amin")
    has_chosen = torch.zeros(len(regions), dtype=torch.bool)
    has_chosen[images[chosen]] = True
    return eligible & ~has_chosen[images] & (order == lowest[images])


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
