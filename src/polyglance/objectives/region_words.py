"""Masked region-to-token modelling (UC2, section 3.3.2, MRTM): what a hidden region is called.

The regions that are asked for are hidden here; the loss is that of hidden words,
`polyglance.objectives.masked_language`, for a label is one of the vocabulary's
sub-words. Drawn as dropout is, from torch's own generator, which training seeds at
each step; on the processor, so that nobody asks the accelerator how many were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyglance.nn.sending import sent


@dataclass(frozen=True, eq=False)
class HiddenRegions:
    """Regions of which some are hidden."""

    features: Tensor
    places: Tensor
    """The rows of the chosen regions, on the processor."""


def hide_regions(
    features: Tensor, mask: Tensor, maskable: Tensor, *, rate: float = 0.15, hidden: float = 0.9
) -> HiddenRegions:
    """Choose ``rate`` of the regions that are ``maskable`` and put ``mask`` in place of most.

    ``mask`` is the paper's ``v_m``, zero to begin with and learned. The share ``hidden``
    of the chosen is replaced and the rest stays as it is; all are to be named. The
    published code replaces all.
    """
    drawn = (maskable & (torch.rand(len(features)) < rate)).nonzero()[:, 0]
    kept = sent(torch.rand(len(drawn), 1) >= hidden, features.device)
    places = sent(drawn, features.device)
    shown = torch.where(kept, features[places], mask.to(features.dtype))
    return HiddenRegions(features.index_copy(0, places, shown), drawn)
