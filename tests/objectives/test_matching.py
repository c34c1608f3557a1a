from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.matching import itm_loss, sigmoid_triplet


def test_itm_loss_agrees_with_a_loop() -> None:
    logits, matched = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False])
    slow = 0.0
    for logit, is_pair in zip(logits.tolist(), matched.tolist(), strict=True):
        probability = 1 / (1 + math.exp(-logit))
        slow -= math.log(probability if is_pair else 1 - probability)
    assert itm_loss(logits, matched).item() == pytest.approx(slow / 3, rel=1e-6)


def test_itm_loss_is_computed_in_float32() -> None:
    logits = torch.tensor([60.0, -60.0], dtype=torch.bfloat16)
    loss = itm_loss(logits, torch.tensor([True, False]))
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(0, abs=1e-12)


def test_sigmoid_triplet_agrees_with_a_loop() -> None:
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
        loss = sigmoid_triplet(matched, others, margin=margin)
        assert loss.item() == pytest.approx(sum(costs) / 21, rel=1e-5)


def test_sigmoid_triplet_is_zero_beyond_the_margin() -> None:
    assert sigmoid_triplet(torch.tensor([2.0]), torch.tensor([[-2.0, -1.0]])).item() == 0
