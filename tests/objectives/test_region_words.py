from __future__ import annotations

import pytest
import torch

from polyglance.objectives.region_words import hide_regions

FEATURES, MASK = torch.randn(40_000, 3) + 5, torch.tensor([7.0, 8.0, 9.0])


def test_so_many_are_chosen_and_nine_of_ten_are_hidden() -> None:
    torch.manual_seed(0)
    maskable = torch.arange(len(FEATURES)) % 4 > 0
    hidden = hide_regions(FEATURES, MASK, maskable)
    chosen = torch.zeros(len(FEATURES), dtype=torch.bool)
    chosen[hidden.places] = True
    assert not chosen[~maskable].any()
    assert chosen[maskable].float().mean() == pytest.approx(0.15, abs=0.01)
    assert torch.equal(hidden.features[~chosen], FEATURES[~chosen])
    masked = (hidden.features == MASK).all(1)
    assert masked[chosen].float().mean() == pytest.approx(0.9, abs=0.02)
    kept = chosen & ~masked
    assert torch.equal(hidden.features[kept], FEATURES[kept])


def test_the_published_code_hides_all_of_them() -> None:
    hidden = hide_regions(FEATURES, MASK, torch.ones(len(FEATURES), dtype=torch.bool), hidden=1.0)
    assert (hidden.features[hidden.places] == MASK).all()


def test_what_stands_in_their_place_is_learned() -> None:
    torch.manual_seed(0)
    mask = torch.zeros(3, requires_grad=True)
    everything = torch.ones(100, dtype=torch.bool)
    hidden = hide_regions(FEATURES[:100], mask, everything, rate=1.0, hidden=0.5)
    hidden.features.sum().backward()
    assert mask.grad is not None
    assert mask.grad.tolist() == [float((hidden.features == 0).all(1).sum())] * 3
