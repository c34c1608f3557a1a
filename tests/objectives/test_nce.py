from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.nce import Negatives, nce


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def by_loops(first: torch.Tensor, second: torch.Tensor, temperature: float, reading: str) -> float:
    """Equations 1 and 2 written out."""
    x, v = first.tolist(), second.tolist()
    total = 0.0
    for i in range(len(x)):
        pair = math.exp(cosine(x[i], v[i]) / temperature)
        others_v = [math.exp(cosine(x[i], v[j]) / temperature) for j in range(len(v)) if j != i]
        others_x = [math.exp(cosine(x[j], v[i]) / temperature) for j in range(len(x)) if j != i]
        if reading == "joint":
            total -= math.log(pair / (pair + sum(others_v) + sum(others_x)))
        else:
            total -= math.log(pair / (pair + sum(others_v))) / 2
            total -= math.log(pair / (pair + sum(others_x))) / 2
    return total / len(x)


@pytest.mark.parametrize("negatives", ["joint", "symmetric"])
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_agrees_with_loops(negatives: Negatives, size: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(size)
    first, second = torch.randn(2, size, 5, generator=generator, dtype=torch.float64)
    fast = nce(first, second, temperature=temperature, negatives=negatives)
    assert fast.item() == pytest.approx(by_loops(first, second, temperature, negatives), abs=1e-9)


@pytest.mark.parametrize("negatives", ["joint", "symmetric"])
def test_gradients_are_finite_and_right(negatives: Negatives) -> None:
    first, second = torch.randn(2, 4, 3, dtype=torch.float64).unbind()
    first.requires_grad_(True)
    second.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda a, b: nce(a, b, negatives=negatives), (first, second))
