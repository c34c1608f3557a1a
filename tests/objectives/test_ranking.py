from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.ranking import sigmoid_triplet


def test_it_is_the_mean_of_what_false_pairs_lack_to_be_beaten() -> None:
    generator = torch.Generator().manual_seed(0)
    matched, others = torch.randn(7, generator=generator), torch.randn(7, 3, generator=generator)

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    for margin in (0.2, 0.5):
        costs = [
            max(0.0, margin + sigmoid(false) - sigmoid(true))
            for true, row in zip(matched.tolist(), others.tolist(), strict=True)
            for false in row
        ]
        found = sigmoid_triplet(matched, others, margin=margin)
        assert found.item() == pytest.approx(sum(costs) / 21, rel=1e-5)


def test_pairs_that_are_far_enough_apart_cost_nothing() -> None:
    assert sigmoid_triplet(torch.tensor([2.0]), torch.tensor([[-2.0, -1.0]])).item() == 0
