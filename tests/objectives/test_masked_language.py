from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_language import (
    TokenMasking,
    mask_tokens,
    maskable_tokens,
    mlm_loss,
)

MASKING = TokenMasking(mask_id=99, words=(4, 99))


def test_fifteen_percent_are_chosen_and_treated_80_10_10() -> None:
    sentences = Packing.of([40, 60, 20] * 1000)
    ids = torch.randint(4, 99, (sentences.num_tokens,))
    masked = mask_tokens(ids, sentences, MASKING, ItemDraws.of(1, len(sentences)))
    inside = sentences.num_tokens - 2 * len(sentences)
    assert len(masked.positions) / inside == pytest.approx(0.15, abs=0.003)
    assert torch.equal(masked.targets, ids[masked.positions])
    shown = masked.ids[masked.positions]
    hidden, same = shown == 99, shown == masked.targets
    # One random replacement in 95 is the word itself.
    assert hidden.float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert same.float().mean().item() == pytest.approx(0.1 + 0.1 / 95, abs=0.008)
    others = shown[~hidden & ~same]
    assert others.min() >= 4
    assert others.max() < 99
    assert len(others.unique()) == 95
    untouched = torch.ones(len(ids), dtype=torch.bool)
    untouched[masked.positions] = False
    assert torch.equal(masked.ids[untouched], ids[untouched])


@pytest.mark.parametrize("treated", ["masked", "drawn"])
def test_at_least_one_sub_word_of_each_sentence_is_chosen(treated: str) -> None:
    """With eight sub-words, 0.15 + 0.85 ** 8 / 8 = 18.4 % are chosen instead of 15 %."""
    count, words = 6000, 8
    sentences = Packing.of([words + 2] * count)
    ids = torch.randint(4, 99, (sentences.num_tokens,), generator=torch.Generator().manual_seed(0))
    draws = ItemDraws.of(1, count)
    usual = mask_tokens(ids, sentences, MASKING, draws)
    masked = mask_tokens(ids, sentences, replace(MASKING, at_least_one=treated), draws)
    share = len(masked.positions) / (count * words)
    assert share == pytest.approx(0.15 + 0.85**words / words, abs=0.004)
    chosen = set(usual.positions.tolist())
    added = torch.tensor([row for row in masked.positions.tolist() if row not in chosen])
    assert len(masked.positions) == len(chosen) + len(added)
    without = set(range(count)) - set((usual.positions // (words + 2)).tolist())
    assert set((added // (words + 2)).tolist()) == without
    assert (added % (words + 2) == 1).all()  # the first after <s>
    assert torch.equal(masked.targets, ids[masked.positions])
    became_mask = (masked.ids[added] == 99).float().mean().item()
    assert became_mask == pytest.approx(1 if treated == "masked" else 0.8, abs=0.03)


def test_sentences_without_ordinary_sub_words_stay_empty() -> None:
    sentences = Packing.of([2, 1, 3])
    masking = TokenMasking(mask_id=99, words=(4, 99), rate=0, at_least_one="masked")
    masked = mask_tokens(torch.arange(6), sentences, masking, ItemDraws.of(1, 3))
    assert masked.positions.tolist() == [4]


def test_special_tokens_are_never_chosen() -> None:
    sentences = Packing.of([1, 2, 3, 5])
    slow = []
    for length in (1, 2, 3, 5):
        slow += [0 < place < length - 1 for place in range(length)]
    assert maskable_tokens(sentences).tolist() == slow
    everything = TokenMasking(mask_id=99, words=(4, 99), rate=1.0)
    masked = mask_tokens(torch.arange(11), sentences, everything, ItemDraws.of(0, 4))
    assert masked.positions.tolist() == [place for place, inside in enumerate(slow) if inside]


def test_only_maskable_tokens_are_chosen() -> None:
    everything = TokenMasking(mask_id=99, words=(4, 99), rate=1.0, masked=1.0, random=0.0)
    maskable = torch.tensor([True, False, False, True, False])
    masked = mask_tokens(
        torch.arange(5), Packing.of([2, 3]), everything, ItemDraws.of(0, 2), maskable=maskable
    )
    assert masked.ids.tolist() == [99, 1, 2, 99, 4]
    assert masked.targets.tolist() == [0, 3]


def test_mlm_loss_agrees_with_a_loop() -> None:
    rows, table, bias = torch.randn(7, 3), torch.randn(5, 3), torch.randn(5)
    targets = torch.randint(5, (7,))
    slow = 0.0
    for row, target in zip((rows @ table.t() + bias).tolist(), targets.tolist(), strict=True):
        slow -= row[target] - math.log(sum(math.exp(value) for value in row))
    assert mlm_loss(rows, table, bias, targets).item() == pytest.approx(slow / 7, rel=1e-5)
    assert mlm_loss(rows[:0], table, bias, targets[:0]).item() == 0


def test_shares_above_one_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="1 or less"):
        TokenMasking(mask_id=1, words=(2, 9), masked=0.8, random=0.3)
