"""Visual translation language modelling (UC2, section 3.3.3, VTLM): co-masking.

A word that is hidden in one caption is hidden in its translation too, so that it
cannot be translated but must be seen. Which words mean the same an aligner has said.
Drawn as dropout is, from torch's own generator, which training seeds at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyglance.nn.packing import Packing
from polyglance.objectives.masked_language import MaskedTokens, TokenMasking, maskable_tokens


@dataclass(frozen=True, eq=False)
class CaptionPair:
    """Captions and others beside them, the n-th of either of one picture, both packed.

    Rows count on from the first captions to the second.
    """

    ids: Tensor
    """The sub-words of all first captions, then of all second ones."""
    first: Packing
    second: Packing
    links: Tensor
    """``(2, n)``: a row of the first captions and a row of the second that mean the same."""


def co_mask(pair: CaptionPair, masking: TokenMasking, *, share: float = 1.0) -> MaskedTokens:
    """Hide sub-words of one caption of each pair, and those that they are linked to in the other.

    Which of the two is drawn evenly. What is linked has the fate of the one it is linked
    to: masked, replaced or left. ``share`` of the pairs are so; in the others any
    sub-word of both may be hidden by itself (the published code has 0.5). A word
    without links is hidden alone.
    """
    count = len(pair.first)
    together = torch.rand(count) < share
    from_first = torch.rand(count) < 0.5
    maskable = torch.cat([maskable_tokens(pair.first), maskable_tokens(pair.second)])
    owners = torch.cat([pair.first.sequence_ids, pair.second.sequence_ids])
    in_first = torch.arange(len(owners)) < pair.first.num_tokens
    begins = (in_first == from_first[owners]) | ~together[owners]
    chosen = maskable & begins & (torch.rand(len(owners)) < masking.rate)

    there, back = pair.links, pair.links.flip(0)
    source, target = torch.cat([there, back], dim=1)
    followed = chosen[source] & together[owners[source]] & maskable[target]
    source, target = source[followed], target[followed]
    # Of several fates the lowest draw, which is the mask's: what stands for several words is
    # shown only if all of them are.
    fate = torch.rand(len(owners))
    alone = torch.where(chosen, fate, torch.inf)
    fate = alone.scatter_reduce(0, target, fate[source], "amin")
    places = fate.isfinite().nonzero()[:, 0]

    targets, draw = pair.ids[places], fate[places]
    others = torch.randint(*masking.words, places.shape, dtype=pair.ids.dtype)
    shown = torch.where(draw < masking.masked + masking.random, others, targets)
    shown = torch.where(draw < masking.masked, masking.mask_id, shown)
    return MaskedTokens(pair.ids.index_copy(0, places, shown), places, targets)
