"""Attention weights, which flash attention never materialises.

For one sequence at a time, eagerly: slow, with the same outputs as `packed_attention`.
"""

from __future__ import annotations

from torch import Tensor

from polyglance.nn.encoder import Encoder
from polyglance.nn.transformer import TransformerLayer


def layer_with_attention(layer: TransformerLayer, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Apply a layer to one sequence; also return its ``(heads, rows, rows)`` weights."""
    query, key, value = layer.project_query_key_value(rows)
    scores = (query.transpose(0, 1) @ key.permute(1, 2, 0)) / layer.head_size**0.5
    weights = scores.softmax(-1)
    attended = (weights @ value.transpose(0, 1)).transpose(0, 1)
    return layer.after_attention(rows, attended), weights


def forward_with_attention(encoder: Encoder, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Apply all layers to one sequence; also return the weights of each layer."""
    weights = []
    for layer in encoder.layers:
        assert isinstance(layer, TransformerLayer)
        rows, of_layer = layer_with_attention(layer, rows)
        weights.append(of_layer)
    return rows, weights
