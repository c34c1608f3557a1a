from __future__ import annotations

import pytest
import torch

from polyglance.objectives.similarity import cosines


def test_cosines_agree_with_loops() -> None:
    first = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    second = torch.tensor([[0.0, 2.0], [-5.0, 0.0], [4.0, 4.0]])
    half = 0.5**0.5
    expected = torch.tensor([[0.0, -1.0, half], [half, -half, 1.0]])
    torch.testing.assert_close(cosines(first, second), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_cosines_are_never_in_half_precision(dtype: torch.dtype) -> None:
    first, second = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        scores = cosines(first, second)
    assert scores.dtype is torch.promote_types(dtype, torch.float32)
    exact = torch.cosine_similarity(first.double()[:, None], second.double()[None], dim=2)
    torch.testing.assert_close(scores.double(), exact, rtol=0, atol=1e-6)
