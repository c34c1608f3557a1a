"""Attention on packed sequences, which all models call.

On an accelerator this is variable-length flash attention, or kernels of our own where sequences
are short; elsewhere the same calls pad, mask and use PyTorch's scaled dot product.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.nn.packing import Packing

SHORT = 128
"""Sequences up to this mean length take the kernels for short sequences."""


def packed_self_attention(qkv: Tensor, packing: Packing, *, dropout: float = 0.0) -> Tensor:
    """Let each sequence attend to itself.

    Args:
        qkv: ``(rows, 3, heads, head_size)``: queries, keys and values, packed as ``packing``.
        packing: the packing of ``qkv``.
        dropout: on attention weights, as in `packed_attention`.

    Returns:
        ``(rows, heads, head_size)``.
    """
    query, key, value = qkv.unbind(1)
    short = packing.num_tokens <= SHORT * len(packing) and qkv.shape[3] in (16, 32, 64, 128)
    if dropout == 0 and short and _flash_supports(query) and _has_triton():
        from polyglance.nn.short_attention import short_attention

        return short_attention(qkv.contiguous(), packing.cu_seqlens, packing.max_seqlen)
    return packed_attention(query, key, value, packing, dropout=dropout)


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Packing,
    keys: Packing | None = None,
    *,
    dropout: float = 0.0,
) -> Tensor:
    """Let the n-th sequence of ``queries`` attend to the n-th of ``keys`` (itself by default).

    Args:
        query: ``(rows, heads, head_size)``, packed as ``queries``.
        key: ``(rows, heads, head_size)``, packed as ``keys``.
        value: likewise.
        queries: the packing of the queries.
        keys: the packing of keys and values, if it differs.
        dropout: on attention weights; forces the padded implementation, since flash attention
            on packed rows has none.

    Returns:
        ``(rows, heads, head_size)``, packed as ``queries``.
    """
    keys = queries if keys is None else keys
    if len(queries) != len(keys):
        raise ValueError(f"{len(queries)} sequences cannot attend to {len(keys)}")
    if dropout == 0 and _flash_supports(query):
        # Imported only when needed: it takes more than a second.
        from torch.nn.attention.varlen import varlen_attn

        attended = varlen_attn(
            query,
            key,
            value,
            queries.cu_seqlens,
            keys.cu_seqlens,
            queries.max_seqlen,
            keys.max_seqlen,
        )
        assert isinstance(attended, Tensor)  # a tuple only with return_aux
        return attended
    return _padded_attention(query, key, value, queries, keys, dropout)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _flash_supports(query: Tensor) -> bool:
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and query.shape[2] % 8 == 0
        and query.shape[2] <= 256
        and torch.cuda.get_device_capability(query.device) >= (8, 0)
    )


def _padded_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, dropout: float
) -> Tensor:
    # (sequences, heads, steps, head_size), as scaled_dot_product_attention takes it
    padded_query = queries.pad(query).transpose(1, 2)
    padded_key = keys.pad(key).transpose(1, 2)
    padded_value = keys.pad(value).transpose(1, 2)
    mask = None if keys.is_uniform else keys.mask[:, None, None, :]
    attended = F.scaled_dot_product_attention(
        padded_query, padded_key, padded_value, attn_mask=mask, dropout_p=dropout
    )
    return queries.unpad(attended.transpose(1, 2))
