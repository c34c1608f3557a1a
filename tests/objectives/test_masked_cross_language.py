from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_cross_language import (
    PairReduction,
    mask_random_words,
    mclm_loss,
)


def test_a_fifth_of_the_words_is_masked_at_any_position() -> None:
    ids = torch.randint(2, 99, (40_000,))
    sentences, draws = Packing.of([20] * 2000), ItemDraws.of(0, 2000)
    hidden = mask_random_words(ids, sentences, draws, mask_id=1)
    changed = hidden != ids
    assert set(hidden[changed].tolist()) == {1}
    assert changed.float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert mask_random_words(ids, sentences, draws, mask_id=1, rate=1.0).eq(1).all()


@torch.no_grad()
def by_loops(
    masked: torch.Tensor, whole: torch.Tensor, present: torch.Tensor, predict: nn.Module
) -> list[list[float]]:
    """Equation 2 written out: for every unordered pair of languages, of every column."""
    by_languages = []
    languages, columns, width = masked.shape
    for i in range(languages):
        for j in range(i + 1, languages):
            errors: list[float] = []
            for c in range(columns):
                if not (present[i, c] and present[j, c]):
                    continue
                both = predict(torch.cat([masked[i, c], masked[j, c]]))
                error = 0.0
                for side, missing in ((i, both[:width]), (j, both[width:])):
                    guess, truth = masked[side, c] + missing, whole[side, c]
                    error += float((guess / guess.norm() - truth / truth.norm()).norm())
                errors.append(error)
            by_languages.append(errors)
    return by_languages


@pytest.mark.parametrize("languages", [1, 2, 4])
@pytest.mark.parametrize("reduction", get_args(PairReduction))
def test_agrees_with_loops(languages: int, reduction: PairReduction) -> None:
    torch.manual_seed(0)
    masked, whole = torch.randn(2, languages, 6, 3, dtype=torch.float64)
    present = torch.rand(languages, 6) < 0.8
    predict = nn.Linear(6, 6).double()
    fast = mclm_loss(masked, whole, present, predict, reduction)
    errors = by_loops(masked, whole, present, predict)
    flat = [error for one in errors for error in one]
    slow = {
        "sum": sum(flat),
        "sum-languages": sum(sum(one) / max(1, len(one)) for one in errors),
        "mean": sum(flat) / max(1, len(flat)),
    }
    assert fast.item() == pytest.approx(slow[reduction], abs=1e-6)


def test_unmasked_sentences_cost_nothing() -> None:
    whole, nothing = torch.randn(3, 4, 5), nn.Linear(10, 10)
    nn.init.zeros_(nothing.weight)
    nn.init.zeros_(nothing.bias)
    masked = (2 * whole).requires_grad_(True)
    loss = mclm_loss(masked, whole, torch.ones(3, 4, dtype=torch.bool), nothing)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert masked.grad is not None
    assert masked.grad.isfinite().all()
