"""Attention that can be looked at: the weights themselves, which flash attention never makes.

For one sequence, eagerly: slow, and equal to what `packed_attention` computes.
"""

from __future__ import annotations

from torch import Tensor

from polyglance.nn.encoder import Encoder
from polyglance.nn.transformer import TransformerLayer


def layer_with_attention(layer: TransformerLayer, rows: Tensor) -> tuple[Tensor, Tensor]:
    """One sequence after a layer, and (heads, rows, rows): how far each row looked at each."""
    query, key, value = layer.project_query_key_value(rows)
    scores = (query.transpose(0, 1) @ key.permute(1, 2, 0)) / layer.head_width**0.5
    weights = scores.softmax(-1)
    attended = (weights @ value.transpose(0, 1)).transpose(0, 1)
    return layer.after_attention(rows, attended), weights


def forward_with_attention(encoder: Encoder, rows: Tensor) -> tuple[Tensor, list[Tensor]]:
    """One sequence after all layers, and the weights of each."""
    found = []
    for layer in encoder.layers:
        assert isinstance(layer, TransformerLayer)
        rows, weights = layer_with_attention(layer, rows)
        found.append(weights)
    return rows, found
