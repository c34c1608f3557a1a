"""Cross-entropy of a linear layer over a large vocabulary, without holding its logits.

With a vocabulary of 250,000, the logits of a few thousand masked sub-words take gigabytes, and
as much again for their gradient. Here rows are taken in chunks: logits, loss and gradients of
a chunk are computed together in the forward pass, and only the gradients are kept.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.compilation import compiled

_ALIGNMENT = 64
"""The vocabulary is padded to a multiple: rows of other lengths take matrix products through
kernels of half the speed."""
CHUNK_LOGITS = 1 << 29
"""Logits computed at a time; in bfloat16 a gigabyte."""


def linear_cross_entropy(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    *,
    chunk_logits: int = CHUNK_LOGITS,
) -> Tensor:
    """Return the mean of ``-log softmax(rows @ weight.T + bias)[target]``; 0 without rows.

    Equal to ``cross_entropy(linear(rows, weight, bias), targets)``, softmax in float32.

    Args:
        rows: ``(n, hidden_size)``.
        weight: ``(vocab_size, hidden_size)``.
        bias: ``(vocab_size,)``.
        targets: ``(n,)``.
        chunk_logits: how many logits to hold at a time.
    """
    device = rows.device.type
    if torch.is_autocast_enabled(device):
        rows = rows.to(torch.get_autocast_dtype(device))
    chunk = max(1, chunk_logits // len(weight))
    trains = torch.is_grad_enabled() and any(p.requires_grad for p in (rows, weight, bias))
    total: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        rows, weight, bias, targets, chunk, trains
    )
    return total / max(1, len(targets))


class _LinearCrossEntropy(torch.autograd.Function):
    """The sum of cross-entropies; gradients are made beside it, in `rows`' dtype."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        chunk: int,
        trains: bool,
    ) -> Tensor:
        with torch.autocast(rows.device.type, enabled=False):
            total, ctx.parts = _loss_and_gradients(rows, weight, bias, targets, chunk, trains)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [part.mul_(gradient) for part in ctx.parts]
        ctx.parts = ()
        return (*scaled, None, None, None)


def _loss_and_gradients(
    rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, chunk: int, trains: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the sum of cross-entropies and the gradients of rows, weight and bias."""
    vocab_size, precise = len(weight), torch.promote_types(rows.dtype, torch.float32)
    padding = -vocab_size % _ALIGNMENT if rows.is_cuda else 0
    table = F.pad(weight.to(rows.dtype), (0, 0, 0, padding))
    # No row predicts padding.
    offset = F.pad(bias.to(precise), (0, padding), value=float("-inf"))
    softmax = _compiled_softmax_gradient if rows.is_cuda else _softmax_gradient
    total = torch.zeros((), device=rows.device, dtype=precise)
    if trains:
        row_gradient = torch.empty_like(rows)
        weight_gradient = torch.zeros_like(table, dtype=precise)
        bias_gradient = torch.zeros_like(offset)
    for start in range(0, len(rows), chunk):
        some, labels = rows[start : start + chunk], targets[start : start + chunk]
        loss, gradient = softmax(some @ table.t(), offset, labels)
        total += loss
        if trains:
            torch.mm(gradient, table, out=row_gradient[start : start + chunk])
            _add_product(weight_gradient, gradient.t(), some)
            bias_gradient += gradient.sum(0, dtype=precise)
    if not trains:
        return total, ()
    return total, (row_gradient, weight_gradient[:vocab_size], bias_gradient[:vocab_size])


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add ``left @ right`` to ``total``, on CUDA without rounding the product first."""
    if left.is_cuda and left.dtype != total.dtype:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


def _softmax_gradient(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of logits and its gradient, ``(n, vocab_size)``."""
    scores = logits.to(bias.dtype) + bias
    normaliser = torch.logsumexp(scores, dim=1, keepdim=True)
    chosen = logits.gather(1, targets[:, None]).to(bias.dtype) + bias[targets][:, None]
    columns = torch.arange(logits.shape[1], device=logits.device)
    is_target = columns == targets[:, None]
    gradient = torch.exp(scores - normaliser) - is_target.to(bias.dtype)
    return (normaliser - chosen).sum(), gradient.to(logits.dtype)


_compiled_softmax_gradient = compiled(_softmax_gradient)
