from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from polyglance.nn.packing import Packing
from polyglance.objectives.co_masking import CaptionPair, co_mask
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_language import MaskedTokens, TokenMasking

MASK, PAIRS = 99, 4000
MASKING = TokenMasking(MASK, (4, 90))
# <s> a b c </s> beside <s> A B C D </s>; a-A, b-C and b-D are aligned; c and B are not.
FIRST, SECOND = (0, 10, 11, 12, 2), (0, 20, 21, 22, 23, 2)
LINKS = ((1, 1), (2, 3), (2, 4))


def pair(count: int = PAIRS) -> CaptionPair:
    first, second = Packing.of([len(FIRST)] * count), Packing.of([len(SECOND)] * count)
    numbers = torch.arange(count)[:, None]
    links = torch.tensor(LINKS).T
    ours = numbers * len(FIRST) + links[0]
    theirs = first.num_tokens + numbers * len(SECOND) + links[1]
    ids = torch.cat([torch.tensor(FIRST).repeat(count), torch.tensor(SECOND).repeat(count)])
    return CaptionPair(ids, first, second, torch.stack([ours.flatten(), theirs.flatten()]))


def hidden(masked: MaskedTokens, count: int = PAIRS) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which sub-words are chosen in first and second captions, ``(pairs, positions)``."""
    chosen = torch.zeros(len(masked.ids), dtype=torch.bool)
    chosen[masked.positions] = True
    cut = count * len(FIRST)
    return chosen[:cut].view(count, -1), chosen[cut:].view(count, -1)


def test_aligned_words_are_masked_together() -> None:
    draws = ItemDraws.of(0, PAIRS)
    first, second = hidden(co_mask(pair(), MASKING, draws))
    assert torch.equal(first[:, 1], second[:, 1])
    # C and D are both masked with b; from the other side each masks b, but not the other.
    assert (second[:, 3:5].any(1) == first[:, 2]).all()
    both = (second[:, 3] & second[:, 4]).float().mean()
    assert both == pytest.approx(0.5 * 0.15 + 0.5 * 0.15**2, abs=0.015)
    assert not first[:, [0, 4]].any()
    assert not second[:, [0, 5]].any()
    # Either side is drawn half of the time: c and B, unaligned, are masked by themselves.
    assert first[:, 3].float().mean() == pytest.approx(0.075, abs=0.015)
    assert second[:, 2].float().mean() == pytest.approx(0.075, abs=0.015)
    assert first[:, 1].float().mean() == pytest.approx(0.15, abs=0.02)


def test_co_masking_agrees_with_a_loop_over_links() -> None:
    masked = co_mask(pair(300), MASKING, ItemDraws.of(1, 300))
    first, second = hidden(masked, 300)
    for ours, theirs in zip(first.tolist(), second.tolist(), strict=True):
        partners = {i: [j for a, j in LINKS if a == i] for i in range(len(FIRST))}
        back = {j: [i for i, b in LINKS if b == j] for j in range(len(SECOND))}
        told_first = {i for i, is_told in enumerate(ours) if is_told}
        told_second = {j for j, is_told in enumerate(theirs) if is_told}
        from_first = told_second == {j for i in told_first for j in partners[i]}
        from_second = told_first == {i for j in told_second for i in back[j]}
        assert from_first or from_second


def test_aligned_words_share_berts_treatment() -> None:
    draws = ItemDraws.of(2, PAIRS)
    given = pair()
    masked = co_mask(given, MASKING, draws)
    assert torch.equal(masked.targets, given.ids[masked.positions])
    cut = given.first.num_tokens
    ours, theirs = masked.ids[:cut].view(PAIRS, -1)[:, 1], masked.ids[cut:].view(PAIRS, -1)[:, 1]
    assert torch.equal(ours == MASK, theirs == MASK)  # neither reveals the other
    chosen, _ = hidden(masked)
    shown = ours[chosen[:, 1]]
    assert (shown == MASK).float().mean() == pytest.approx(0.8, abs=0.05)
    assert (shown == FIRST[1]).float().mean() == pytest.approx(0.1, abs=0.05)


def test_share_leaves_some_pairs_to_plain_masking() -> None:
    draws = ItemDraws.of(3, PAIRS)
    first, second = hidden(co_mask(pair(), MASKING, draws, share=0.0))
    both = (first[:, 1] & second[:, 1]).float().mean()
    assert both == pytest.approx(0.15**2, abs=0.01)  # by chance alone
    assert first[:, 3].float().mean() == pytest.approx(0.15, abs=0.02)
    first, second = hidden(co_mask(pair(), MASKING, draws, share=0.5))
    both = (first[:, 1] & second[:, 1]).float().mean()
    assert both == pytest.approx(0.5 * 0.15 + 0.5 * 0.15**2, abs=0.015)


def test_at_least_one_word_of_each_pair_is_masked_with_its_translation() -> None:
    masking = replace(MASKING, at_least_one="masked")
    first, second = hidden(co_mask(pair(), masking, ItemDraws.of(0, PAIRS)))
    usual, _ = hidden(co_mask(pair(), MASKING, ItemDraws.of(0, PAIRS)))
    chosen = first.any(1) | second.any(1)
    assert chosen.all()
    assert not usual.any(1).all()
    assert torch.equal(first[:, 1], second[:, 1])  # a and A, the first words, are aligned
    alone = co_mask(pair(), replace(masking, rate=0.0), ItemDraws.of(0, PAIRS), share=0.0)
    ours, theirs = hidden(alone)
    assert ours[:, 1].all()
    assert ours.sum() == PAIRS
    assert not theirs.any()
    assert (alone.ids[alone.positions] == MASK).all()
