"""One transformer layer on packed sequences, as in BERT and XLM-R.

Attention, then a feed-forward network; after each, dropout, the residual and a
layer norm (Vaswani et al. 2017, "post-norm").
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.attention import packed_attention, packed_self_attention
from polyglance.nn.compilation import compiled
from polyglance.nn.layer_norm import LayerNorm
from polyglance.nn.packing import Packing

Activation = Literal["gelu", "relu"]


class TransformerLayer(nn.Module):
    """Attention and feed-forward network, each with residual and layer norm."""

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        intermediate_size: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: Activation = "gelu",
        norm_eps: float = 1e-5,
    ) -> None:
        """Build a layer; ``dropout`` is on outputs, ``attention_dropout`` on attention weights."""
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size {hidden_size} is not divisible by {num_heads} heads")
        self.num_heads, self.head_size = num_heads, hidden_size // num_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attended = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = LayerNorm(hidden_size, norm_eps)
        self.widen = nn.Linear(hidden_size, intermediate_size)
        self.narrow = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.attention_dropout = attention_dropout
        self.activation = F.gelu if activation == "gelu" else F.relu
        self.compiled = False
        """Whether dropout, residuals and norms are fused by ``torch.compile``."""

    def forward(
        self,
        rows: Tensor,
        packing: Packing,
        context: Tensor | None = None,
        contexts: Packing | None = None,
        *,
        output_rows: Tensor | None = None,
    ) -> Tensor:
        """Apply the layer.

        Args:
            rows: ``(rows, hidden_size)``, packed as ``packing``.
            packing: the packing of ``rows``.
            context: rows that keys and values are computed from, instead of ``rows``.
            contexts: the packing of ``context``.
            output_rows: indices of the rows to return; all by default.

        Returns:
            ``(rows, hidden_size)``, or as many rows as ``output_rows`` names.
        """
        dropout = self.attention_dropout if self.training else 0.0
        if context is None:
            attended = packed_self_attention(self._project(rows), packing, dropout=dropout)
        else:
            query, key, value = self.project_query_key_value(rows, context)
            attended = packed_attention(query, key, value, packing, contexts, dropout=dropout)
        if output_rows is not None:
            rows, attended = rows[output_rows], attended[output_rows]
        if self.compiled:
            return _compiled_after_attention(self, rows, attended)
        return self.after_attention(rows, attended)

    def after_attention(self, rows: Tensor, attended: Tensor) -> Tensor:
        """Apply the rest of the layer to attention's output, ``(rows, heads, head_size)``."""
        rows = self.attention_norm(rows + self.dropout(self.attended(attended.flatten(1))))
        intermediate = self.activation(self.widen(rows))
        output: Tensor = self.output_norm(rows + self.dropout(self.narrow(intermediate)))
        return output

    def project_query_key_value(
        self, rows: Tensor, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries of ``rows``, and keys and values of ``context`` (``rows`` by default).

        Each is ``(rows, heads, head_size)``.
        """
        size, heads = rows.shape[1], (self.num_heads, self.head_size)
        if context is None:
            query, key, value = self._project(rows).unbind(1)
            return query, key, value
        weight, bias = self.query_key_value.weight, self._projection_bias()
        query = F.linear(rows, weight[:size], bias[:size]).view(len(rows), *heads)
        key_value = F.linear(context, weight[size:], bias[size:])
        key, value = key_value.view(len(context), 2, *heads).unbind(1)
        return query, key, value

    def _project(self, rows: Tensor) -> Tensor:
        """Return queries, keys and values of rows, ``(rows, 3, heads, head_size)``."""
        qkv = F.linear(rows, self.query_key_value.weight, self._projection_bias())
        return qkv.view(len(rows), 3, self.num_heads, self.head_size)

    def _projection_bias(self) -> Tensor:
        """Return the bias of queries, keys and values, without a gradient for that of keys.

        It adds the same to a query's scores of all keys, which the softmax takes away: its
        gradient is zero. What is computed for it are rounding errors, of which Adam makes steps
        as large as any, and which differ with the number of processes.
        """
        bias = self.query_key_value.bias
        if not (torch.is_grad_enabled() and bias.requires_grad):
            return bias
        query, key, value = bias.chunk(3)
        return torch.cat([query, key.detach(), value])


_compiled_after_attention = compiled(TransformerLayer.after_attention)
"""A layer without its attention, compiled once for all layers and numbers of rows."""


def compile_layers(model: nn.Module, *, enabled: bool = True) -> None:
    """Let all transformer layers of a model be compiled at their next use.

    Attention stays as it is: it takes the lengths of sequences, which differ in every batch.
    """
    for module in model.modules():
        if isinstance(module, TransformerLayer):
            module.compiled = enabled
