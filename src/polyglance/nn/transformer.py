"""One transformer layer on packed sequences, as BERT and XLM-R have it.

Attention, then a feed-forward network; after each, dropout, the residual and a
layer norm (Vaswani et al. 2017, "post-norm").
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.nn.attention import packed_attention
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
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"a width of {hidden_size} does not divide into {num_heads} heads")
        self.heads, self.head_width = num_heads, hidden_size // num_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attended = nn.Linear(hidden_size, hidden_size)
        self.attention_norm = nn.LayerNorm(hidden_size, norm_eps)
        self.widen = nn.Linear(hidden_size, intermediate_size)
        self.narrow = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.attention_dropout = attention_dropout
        self.activation = F.gelu if activation == "gelu" else F.relu

    def forward(
        self,
        rows: Tensor,
        packing: Packing,
        context: Tensor | None = None,
        contexts: Packing | None = None,
        *,
        output_rows: Tensor | None = None,
    ) -> Tensor:
        """Rows after one layer; with a ``context``, keys and values are taken from it alone.

        ``only`` names the rows that are wanted, if not all are.
        """
        query, key, value = self.project_query_key_value(rows, context)
        attended = packed_attention(
            query,
            key,
            value,
            packing,
            contexts,
            dropout=self.attention_dropout if self.training else 0.0,
        )
        if output_rows is not None:
            rows, attended = rows[output_rows], attended[output_rows]
        return self.after_attention(rows, attended)

    def after_attention(self, rows: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer, given what rows got from the others, head by head."""
        rows = self.attention_norm(rows + self.dropout(self.attended(attended.flatten(1))))
        inner = self.activation(self.widen(rows))
        output: Tensor = self.output_norm(rows + self.dropout(self.narrow(inner)))
        return output

    def project_query_key_value(
        self, rows: Tensor, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What rows ask for, and what they (or a ``context``) offer: (rows, heads, width) each."""
        width, heads = rows.shape[1], (self.heads, self.head_width)
        if context is None:
            query, key, value = self.query_key_value(rows).view(len(rows), 3, *heads).unbind(1)
            return query, key, value
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = F.linear(rows, weight[:width], bias[:width]).view(len(rows), *heads)
        key_value = F.linear(context, weight[width:], bias[width:])
        key, value = key_value.view(len(context), 2, *heads).unbind(1)
        return query, key, value
