from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from polyglance.objectives.triplet import triplet


def by_loops(
    first: torch.Tensor, second: torch.Tensor, margin: float, hardest: int | None
) -> float:
    size = len(first)
    sides = []
    for a, b in ((first, second), (second, first)):
        violations = []
        for i in range(size):
            pair = F.cosine_similarity(a[i], b[i], dim=0)
            others = [F.cosine_similarity(a[i], b[j], dim=0) for j in range(size) if j != i]
            row = sorted((max(0.0, (margin - pair + s).item()) for s in others), reverse=True)
            violations += row[:hardest]
        sides.append(sum(violations) / len(violations))
    return sum(sides) / 2


@pytest.mark.parametrize("hardest", [None, 1, 3, 99])
def test_agrees_with_loops(hardest: int | None) -> None:
    first, second = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).double()
    fast = triplet(first, second, margin=0.3, hardest=hardest)
    assert fast.item() == pytest.approx(by_loops(first, second, 0.3, hardest), abs=1e-9)


def test_pairs_that_win_by_the_margin_cost_nothing() -> None:
    corners = torch.eye(4)
    assert triplet(corners, corners, margin=0.9).item() == 0
    assert triplet(corners, corners, margin=1.5).item() == pytest.approx(0.5)
    assert triplet(corners[:1], corners[:1]).item() == 0
