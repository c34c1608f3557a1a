from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.early_adaptation import early_adaptation, label_ranks

COSINES = torch.tensor([[0.9, 0.1, -0.5, 0.2], [0.0, 0.0, 1.0, -1.0], [0.3, 0.3, 0.3, 0.3]])
LABELS = torch.tensor([[0, 1], [3, 2], [1, 0]])
SHARES = torch.tensor([[0.6, 0.2], [0.5, 0.5], [0.4, 0.0]])


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_early_adaptation_is_the_divergence_from_the_detector(temperature: float) -> None:
    total = 0.0
    for near, labels, shares in zip(
        COSINES.tolist(), LABELS.tolist(), SHARES.tolist(), strict=True
    ):
        likely = [math.exp(value / temperature) for value in near]
        for label, share in zip(labels, shares, strict=True):
            believed = share / sum(shares)
            if believed > 0:
                total += believed * math.log(believed / (likely[label] / sum(likely)))
    loss = early_adaptation(COSINES, LABELS, SHARES, temperature=temperature)
    assert loss.item() == pytest.approx(total / 3, rel=1e-5)


def test_a_perfect_prediction_costs_nothing_and_zero_shares_are_finite() -> None:
    near = torch.tensor([[40.0, -40.0]], requires_grad=True)
    loss = early_adaptation(near, torch.tensor([[0, 1]]), torch.tensor([[0.7, 0.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert near.grad is not None
    assert near.grad.isfinite().all()


def test_the_nearest_word_has_rank_one_and_ties_count_against() -> None:
    assert label_ranks(COSINES, torch.tensor([0, 1, 2])).tolist() == [1, 3, 4]
    assert label_ranks(COSINES[:1], torch.tensor([2])).tolist() == [4]
