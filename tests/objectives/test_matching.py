from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.matching import itm_loss


def test_the_loss_is_that_of_a_loop() -> None:
    logits, matched = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False])
    slow = 0.0
    for logit, is_pair in zip(logits.tolist(), matched.tolist(), strict=True):
        probability = 1 / (1 + math.exp(-logit))
        slow -= math.log(probability if is_pair else 1 - probability)
    assert itm_loss(logits, matched).item() == pytest.approx(slow / 3, rel=1e-6)


def test_half_precision_is_computed_in_full() -> None:
    logits = torch.tensor([60.0, -60.0], dtype=torch.bfloat16)
    loss = itm_loss(logits, torch.tensor([True, False]))
    assert loss.dtype is torch.float32
    assert loss.item() == pytest.approx(0, abs=1e-12)
