"""Hidden regions: told by their features and labels (M3P, MC-MRM) or named in words (UC2, MRTM).

M3P's losses are here (section 3.2). The loss of UC2's is that of hidden words (section 3.3.2),
`polyglance.objectives.masked_language`, for a label is one of the vocabulary's sub-words.

Drawn as dropout is, from torch's own generator, which training seeds at each step;
on the processor, so that nobody asks the accelerator how many regions were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import to_device

NO_LABEL = -100
"""Of a region whose class nobody knows, such as a picture as a whole."""


@dataclass(frozen=True, eq=False)
class MaskedRegions:
    """Regions of which some are hidden."""

    features: Tensor
    positions: Tensor
    """The rows of the chosen regions, on the processor."""
    targets: Tensor
    """What their features were."""


def mask_regions(
    features: Tensor,
    *,
    rate: float = 0.15,
    hidden: float = 0.9,
    mask: Tensor | None = None,
    maskable: Tensor | None = None,
    global_rows: Tensor | None = None,
) -> MaskedRegions:
    """Choose ``rate`` of the regions, of those that are ``maskable``, and hide most of them.

    The share ``hidden`` of the chosen is replaced by zeros (M3P) or ``mask``, UC2's ``v_m``; the
    others are told from themselves as well.

    ``wholes`` names for each region the row of the whole picture, for a whole its own. As the
    mean of all its regions, a whole would give away the hidden ones: it is hidden with them,
    and is never to be told itself.
    """
    chosen = torch.rand(len(features)) < rate
    if maskable is not None:
        chosen &= maskable
    if global_rows is not None:
        chosen &= global_rows != torch.arange(len(global_rows))
    places = chosen.nonzero()[:, 0]
    replaced = places[torch.rand(len(places)) < hidden]
    if global_rows is not None:
        replaced = torch.cat([replaced, torch.unique(global_rows[replaced])])
    blank = features.new_zeros(features.shape[1]) if mask is None else mask.to(features.dtype)
    shown = features.index_copy(
        0, to_device(replaced, features.device), blank.expand(len(replaced), -1)
    )
    return MaskedRegions(shown, places, features[to_device(places, features.device)])


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
