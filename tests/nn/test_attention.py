from __future__ import annotations

import math

import pytest
import torch

from polyglance.nn.attention import packed_attention
from polyglance.nn.packing import Packing


def by_loops(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, q: list[int], k: list[int]
) -> torch.Tensor:
    """Compute attention with loops: one sequence, one head, one query at a time."""
    output = torch.zeros_like(query)
    q_start = k_start = 0
    for q_length, k_length in zip(q, k, strict=True):
        for row in range(q_start, q_start + q_length):
            for head in range(query.shape[1]):
                keys = key[k_start : k_start + k_length, head]
                weights = torch.softmax(keys @ query[row, head] / math.sqrt(query.shape[2]), 0)
                output[row, head] = weights @ value[k_start : k_start + k_length, head]
        q_start, k_start = q_start + q_length, k_start + k_length
    return output


@pytest.mark.parametrize(
    ("queries", "keys"),
    [([5], [5]), ([1, 7, 3], [1, 7, 3]), ([4, 4], [4, 4]), ([2, 5, 1], [6, 5, 3])],
)
def test_agrees_with_loops(queries: list[int], keys: list[int]) -> None:
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(sum(queries), 2, 4, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, sum(keys), 2, 4, generator=generator, dtype=torch.float64)
    fast = packed_attention(query, key, value, Packing.of(queries), Packing.of(keys))
    slow = by_loops(query, key, value, queries, keys)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)


def test_gradients_stay_within_a_sequence() -> None:
    rows = torch.randn(5, 1, 4, requires_grad=True)
    out = packed_attention(rows, rows, rows, Packing.of([2, 3]))
    out[:2].sum().backward()
    assert rows.grad is not None
    assert rows.grad[:2].abs().sum() > 0
    assert not rows.grad[2:].any()


def test_dropout_falls_on_attention_weights() -> None:
    torch.manual_seed(0)
    ones = torch.ones(400, 1, 4)
    out = packed_attention(ones, ones, ones, Packing.of([400]), dropout=0.5)
    assert out.std() > 0
    assert abs(out.mean().item() - 1) < 0.05


def test_refuses_batches_of_different_size() -> None:
    rows = torch.zeros(3, 1, 4)
    with pytest.raises(ValueError, match="cannot attend"):
        packed_attention(rows, rows, rows, Packing.of([3]), Packing.of([1, 2]))
