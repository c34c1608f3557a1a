"""Visual translation language modelling (UC2, section 3.3.3, VTLM): co-masking.

A word masked in one caption is masked in its translation too, so that it cannot be translated
but must be inferred from the image. A word aligner supplies the pairs of aligned words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_language import (
    MaskedTokens,
    TokenMasking,
    first_without,
    maskable_tokens,
    random_words,
)


@dataclass(frozen=True, eq=False)
class CaptionPair:
    """Packed captions and their translations; the n-th of each describe one image.

    Rows are numbered through all first captions, then through all second ones.
    """

    ids: Tensor
    """The sub-words of all first captions, then of all second ones."""
    first: Packing
    second: Packing
    links: Tensor
    """``(2, n)``: rows of the first captions and the rows of the second aligned with them."""


def co_mask(
    pair: CaptionPair, masking: TokenMasking, draws: ItemDraws, *, share: float = 1.0
) -> MaskedTokens:
    """Mask sub-words of one caption of each pair, and those aligned with them in the other.

    The caption is drawn evenly. An aligned sub-word is treated like the one it is aligned with:
    masked, replaced or kept. A word without alignment is masked alone.

    Args:
        pair: captions with alignments.
        masking: rates and ids.
        draws: random numbers of the pairs.
        share: of pairs that are co-masked; in the others any sub-word of either caption may be
            masked by itself (the published code has 0.5).
    """

    def per_row(name: str) -> Tensor:
        sides = (("first", pair.first), ("second", pair.second))
        return torch.cat([draws.named(side).per_row(name, packing) for side, packing in sides])

    together = draws.per_item("together") < share
    from_first = draws.per_item("from first") < 0.5
    maskable = torch.cat([maskable_tokens(pair.first), maskable_tokens(pair.second)])
    pair_ids = torch.cat([pair.first.sequence_ids, pair.second.sequence_ids])
    in_first = torch.arange(len(pair_ids)) < pair.first.num_tokens
    eligible = (in_first == from_first[pair_ids]) | ~together[pair_ids]
    chosen = maskable & eligible & (per_row("chosen tokens") < masking.rate)
    treatment = per_row("treatment of tokens")
    if masking.at_least_one != "no":
        first = first_without(chosen, maskable & eligible, pair_ids, len(pair.first))
        chosen[first] = True
        if masking.at_least_one == "masked":
            treatment[first] = 0

    source, target = torch.cat([pair.links, pair.links.flip(0)], dim=1)
    followed = chosen[source] & together[pair_ids[source]] & maskable[target]
    source, target = source[followed], target[followed]
    # A sub-word aligned with several takes the lowest of their draws, which masks first: it is
    # shown only if all of them are.
    own = torch.where(chosen, treatment, torch.inf)
    treatment = own.scatter_reduce(0, target, treatment[source], "amin")
    positions = treatment.isfinite().nonzero()[:, 0]

    targets, treatment = pair.ids[positions], treatment[positions]
    others = random_words(per_row("random words")[positions], masking, pair.ids.dtype)
    shown = torch.where(treatment < masking.masked + masking.random, others, targets)
    shown = torch.where(treatment < masking.masked, masking.mask_id, shown)
    return MaskedTokens(pair.ids.index_copy(0, positions, shown), positions, targets)
