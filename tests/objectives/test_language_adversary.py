from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from polyglance.objectives.language_adversary import language_adversary


def test_agrees_with_loops_and_reverses_only_the_gradient_of_rows() -> None:
    torch.manual_seed(0)
    rows, languages = torch.randn(7, 4, requires_grad=True), torch.tensor([0, 1, 2, 2, 1, 0, 0])
    classifier = nn.Linear(4, 3)
    loss = language_adversary(rows, languages, classifier, 0.5)
    total = 0.0
    for row, language in zip(rows, languages, strict=True):
        scores = [math.exp(score) for score in classifier(row).tolist()]
        total -= math.log(scores[language] / sum(scores))
    assert loss.item() == pytest.approx(total / 7, abs=1e-6)
    turned = torch.autograd.grad(loss, [rows, classifier.weight])
    plain = torch.autograd.grad(
        nn.functional.cross_entropy(classifier(rows), languages), [rows, classifier.weight]
    )
    torch.testing.assert_close(turned[0], -0.5 * plain[0])
    torch.testing.assert_close(turned[1], plain[1])


def test_rows_learn_to_hide_their_language() -> None:
    torch.manual_seed(0)
    languages = torch.arange(2).repeat(32)
    rows = nn.Parameter(torch.randn(64, 4) + 2.0 * languages[:, None])
    classifier = nn.Linear(4, 2)
    optimiser = torch.optim.Adam([rows, *classifier.parameters()], lr=0.05)

    def gap() -> float:
        return float((rows[1::2].mean(0) - rows[::2].mean(0)).norm().detach())

    before = gap()
    for _ in range(60):
        optimiser.zero_grad()
        language_adversary(rows, languages, classifier, 1.0).backward()
        optimiser.step()
    assert gap() < 0.75 * before
