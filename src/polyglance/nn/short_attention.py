"""Self-attention kernels for many short sequences, such as captions with their regions.

Flash attention takes queries and keys in tiles of 128. A caption with 36 regions has about 54
rows, of which such a tile wastes four fifths, and its backward pass adds up partial results
in any order. Here a tile has 64 rows; one program computes all gradients of a head of a
sequence, so that the backward pass is deterministic too.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
"""Rows of a tile."""


def short_attention(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
    """Let each packed sequence attend to itself.

    Args:
        qkv: ``(rows, 3, heads, head_size)``, contiguous, bfloat16 or float16.
        cu_seqlens: ``(sequences + 1,)``, the first row of each sequence and the end.
        max_seqlen: no sequence is longer.

    Returns:
        ``(rows, heads, head_size)``.
    """
    attended: Tensor = _ShortAttention.apply(qkv, cu_seqlens, max_seqlen)
    return attended


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
        rows, _, heads, size = qkv.shape
        out = qkv.new_empty(rows, heads, size)
        lse = torch.empty(heads, rows, device=qkv.device, dtype=torch.float32)
        sequences = len(cu_seqlens) - 1
        grid = (sequences, heads, triton.cdiv(max_seqlen, BLOCK))
        _forward_kernel[grid](
            qkv,
            out,
            lse,
            cu_seqlens,
            rows,
            heads,
            size**-0.5,
            size=size,
            block=BLOCK,
            num_warps=4,
        )
        ctx.save_for_backward(qkv, out, lse, cu_seqlens)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        qkv, out, lse, cu_seqlens = ctx.saved_tensors
        rows, _, heads, size = qkv.shape
        qkv_gradient = torch.empty_like(qkv)
        _backward_kernel[(len(cu_seqlens) - 1, heads)](
            qkv,
            out,
            lse,
            gradient.contiguous(),
            qkv_gradient,
            cu_seqlens,
            rows,
            heads,
            size**-0.5,
            size=size,
            block=BLOCK,
            num_warps=4,
        )
        return qkv_gradient, None, None


@triton.jit
def _load_tile(base, first, length, stride, size: tl.constexpr, block: tl.constexpr):
    """Load rows ``first`` to ``first + block`` of one head; zeros after the sequence."""
    rows = first + tl.arange(0, block)
    columns = tl.arange(0, size)
    return tl.load(
        base + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < length, other=0.0
    )


@triton.jit
def _store_tile(base, tile, first, length, stride, size: tl.constexpr, block: tl.constexpr):
    """Store a tile's rows that belong to the sequence."""
    rows = first + tl.arange(0, block)
    columns = tl.arange(0, size)
    tl.store(
        base + rows[:, None] * stride + columns[None, :],
        tile.to(base.dtype.element_ty),
        mask=rows[:, None] < length,
    )


@triton.jit
def _forward_kernel(
    qkv, out, lse, cu_seqlens, num_rows, heads, scale, size: tl.constexpr, block: tl.constexpr
):
    """Attend from one tile of queries of one head to its whole sequence."""
    sequence, head, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * block
    start = tl.load(cu_seqlens + sequence).to(tl.int64)
    length = (tl.load(cu_seqlens + sequence + 1) - start).to(tl.int32)
    if first >= length:
        return
    width = heads * size
    stride = 3 * width
    queries = qkv + start * stride + head * size
    query = _load_tile(queries, first, length, stride, size, block)
    top = tl.full([block], -float("inf"), tl.float32)
    total = tl.zeros([block], tl.float32)
    summed = tl.zeros([block, size], tl.float32)
    for other in range(0, length, block):
        key = _load_tile(queries + width, other, length, stride, size, block)
        value = _load_tile(queries + 2 * width, other, length, stride, size, block)
        scores = tl.dot(query, tl.trans(key)) * scale
        valid = other + tl.arange(0, block) < length
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        summed = summed * shrink[:, None] + tl.dot(weights.to(value.dtype), value)
        top = new_top
    attended = summed / total[:, None]
    _store_tile(out + start * width + head * size, attended, first, length, width, size, block)
    rows = first + tl.arange(0, block)
    address = lse + head.to(tl.int64) * num_rows + start + rows
    tl.store(address, top + tl.log(total), mask=rows < length)


@triton.jit
def _tile_gradient(query, key, value, gradient, lse, delta, scale, valid):
    """Return attention weights of a tile and the gradient of its scores, both like ``query``."""
    scores = tl.dot(query, tl.trans(key)) * scale
    weights = tl.where(valid[None, :], tl.exp(scores - lse[:, None]), 0.0)
    weights_gradient = tl.dot(gradient, tl.trans(value))
    scores_gradient = weights * (weights_gradient - delta[:, None]) * scale
    return weights.to(query.dtype), scores_gradient.to(query.dtype)


@triton.jit
def _backward_kernel(
    qkv,
    out,
    lse,
    out_gradient,
    qkv_gradient,
    cu_seqlens,
    num_rows,
    heads,
    scale,
    size: tl.constexpr,
    block: tl.constexpr,
):
    """Compute the gradients of one head of one sequence."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    start = tl.load(cu_seqlens + sequence).to(tl.int64)
    length = (tl.load(cu_seqlens + sequence + 1) - start).to(tl.int32)
    width = heads * size
    stride = 3 * width
    queries = qkv + start * stride + head * size
    gradients = qkv_gradient + start * stride + head * size
    outs = out + start * width + head * size
    out_gradients = out_gradient + start * width + head * size
    lses = lse + head.to(tl.int64) * num_rows + start
    steps = tl.arange(0, block)
    if length <= block:  # all in one tile
        query = _load_tile(queries, 0, length, stride, size, block)
        key = _load_tile(queries + width, 0, length, stride, size, block)
        value = _load_tile(queries + 2 * width, 0, length, stride, size, block)
        gradient = _load_tile(out_gradients, 0, length, width, size, block)
        attended = _load_tile(outs, 0, length, width, size, block)
        delta = tl.sum(attended.to(tl.float32) * gradient.to(tl.float32), 1)
        row_lse = tl.load(lses + steps, mask=steps < length, other=float("inf"))
        weights, scores = _tile_gradient(
            query, key, value, gradient, row_lse, delta, scale, steps < length
        )
        _store_tile(gradients, tl.dot(scores, key), 0, length, stride, size, block)
        key_gradient = tl.dot(tl.trans(scores), query)
        _store_tile(gradients + width, key_gradient, 0, length, stride, size, block)
        value_gradient = tl.dot(tl.trans(weights), gradient)
        _store_tile(gradients + 2 * width, value_gradient, 0, length, stride, size, block)
    else:
        for first in range(0, length, block):  # a tile of keys against all queries
            key = _load_tile(queries + width, first, length, stride, size, block)
            value = _load_tile(queries + 2 * width, first, length, stride, size, block)
            key_gradient = tl.zeros([block, size], tl.float32)
            value_gradient = tl.zeros([block, size], tl.float32)
            for other in range(0, length, block):
                query = _load_tile(queries, other, length, stride, size, block)
                gradient = _load_tile(out_gradients, other, length, width, size, block)
                attended = _load_tile(outs, other, length, width, size, block)
                delta = tl.sum(attended.to(tl.float32) * gradient.to(tl.float32), 1)
                rows = other + steps
                row_lse = tl.load(lses + rows, mask=rows < length, other=float("inf"))
                weights, scores = _tile_gradient(
                    query, key, value, gradient, row_lse, delta, scale, first + steps < length
                )
                key_gradient += tl.dot(tl.trans(scores), query)
                value_gradient += tl.dot(tl.trans(weights), gradient)
            _store_tile(gradients + width, key_gradient, first, length, stride, size, block)
            _store_tile(gradients + 2 * width, value_gradient, first, length, stride, size, block)
        for first in range(0, length, block):  # a tile of queries against all keys
            query = _load_tile(queries, first, length, stride, size, block)
            gradient = _load_tile(out_gradients, first, length, width, size, block)
            attended = _load_tile(outs, first, length, width, size, block)
            delta = tl.sum(attended.to(tl.float32) * gradient.to(tl.float32), 1)
            rows = first + steps
            row_lse = tl.load(lses + rows, mask=rows < length, other=float("inf"))
            query_gradient = tl.zeros([block, size], tl.float32)
            for other in range(0, length, block):
                key = _load_tile(queries + width, other, length, stride, size, block)
                value = _load_tile(queries + 2 * width, other, length, stride, size, block)
                weights, scores = _tile_gradient(
                    query, key, value, gradient, row_lse, delta, scale, other + steps < length
                )
                query_gradient += tl.dot(scores, key)
            _store_tile(gradients, query_gradient, first, length, stride, size, block)
