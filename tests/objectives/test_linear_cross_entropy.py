"""The word loss in chunks equals plain linear and cross-entropy, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.objectives.linear_cross_entropy import linear_cross_entropy

ROWS, WIDTH, VOCAB = 7, 5, 11


def _inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS, WIDTH), (VOCAB, WIDTH), (VOCAB,))
    rows, weight, bias = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    )
    return rows, weight, bias, torch.randint(VOCAB, (ROWS,), generator=generator)


@pytest.mark.parametrize("chunk_rows", [1, 3, 7, 100])
def test_loss_and_gradients_equal_the_plain_ones_for_any_chunk(chunk_rows: int) -> None:
    rows, weight, bias, targets = _inputs()
    expected = F.cross_entropy(F.linear(rows, weight, bias), targets)
    gradients = torch.autograd.grad(3 * expected, (rows, weight, bias))

    loss = linear_cross_entropy(rows, weight, bias, targets, chunk_logits=chunk_rows * VOCAB)

    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    for ours, plain in zip(
        torch.autograd.grad(3 * loss, (rows, weight, bias)), gradients, strict=True
    ):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


def test_the_loss_of_no_rows_is_zero_with_zero_gradients() -> None:
    rows, weight, bias, targets = _inputs()
    loss = linear_cross_entropy(rows[:0], weight, bias, targets[:0])
    assert loss.item() == 0
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert not weight.grad.any()


def test_under_autocast_the_softmax_is_float32() -> None:
    """Logits are bfloat16; their normaliser over many words must not be."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(4, 8, generator=generator, requires_grad=True)
    weight = (0.02 * torch.randn(5000, 8, generator=generator)).requires_grad_()
    bias, targets = torch.zeros(5000, requires_grad=True), torch.arange(4)
    exact = F.cross_entropy(F.linear(rows, weight, bias), targets)
    with torch.autocast("cpu", torch.bfloat16):
        rough = linear_cross_entropy(rows, weight, bias, targets)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=1e-3)
    rough.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


def test_without_gradients_the_loss_is_the_same() -> None:
    rows, weight, bias, targets = (part.detach() for part in _inputs())
    expected = F.cross_entropy(F.linear(rows, weight, bias), targets)
    assert linear_cross_entropy(rows, weight, bias, targets).item() == pytest.approx(
        expected.item()
    )
