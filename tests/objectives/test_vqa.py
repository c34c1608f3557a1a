from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.vqa import answer_probabilities, vqa_loss

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]])
TARGETS = torch.tensor([[1.0, 0.3, 0.0], [0.0, 0.6, 0.9]])


def test_binary_loss_sums_over_answers_as_a_loop_would() -> None:
    total = 0.0
    for row in range(2):
        for place in range(3):
            p = 1 / (1 + math.exp(-float(LOGITS[row, place])))
            t = float(TARGETS[row, place])
            total -= t * math.log(p) + (1 - t) * math.log(1 - p)
    assert float(vqa_loss(LOGITS, TARGETS)) == pytest.approx(total / 2, rel=1e-5)


def test_categorical_loss_shares_targets_among_answers() -> None:
    total = 0.0
    for row in range(2):
        below = sum(math.exp(float(value)) for value in LOGITS[row])
        for place in range(3):
            share = float(TARGETS[row, place] / TARGETS[row].sum())
            total -= share * math.log(math.exp(float(LOGITS[row, place])) / below)
    assert float(vqa_loss(LOGITS, TARGETS, "categorical")) == pytest.approx(total / 2, rel=1e-5)


def test_probabilities_are_those_of_the_loss() -> None:
    assert torch.allclose(answer_probabilities(LOGITS), LOGITS.sigmoid())
    assert torch.allclose(answer_probabilities(LOGITS, "categorical").sum(1), torch.ones(2))
