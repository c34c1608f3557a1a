"""From many vectors to one: the transformer pooling head of MMP (section 3.1), and the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyglance.nn.packing import Packing, concat_packings
from polyglance.nn.transformer import TransformerLayer


class PoolingHead(nn.Module):
    """Two transformer layers (Vaswani et al. 2017) without positions; the first output is taken.

    ``c_x = Trans(query = key = value = e_x)[0]``. With a ``context`` (equation 6)
    keys and values are extended by the rows of the picture or clip:
    ``c_x|v = Trans(query = e_x, key = value = e_x || e_v)[0]``.
    """

    def __init__(
        self, width: int, *, layers: int = 2, heads: int = 4, dropout: float = 0.3
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TransformerLayer(width, heads, 4 * width, dropout=dropout, activation="relu")
            for _ in range(layers)
        )

    def forward(
        self,
        rows: Tensor,
        packing: Packing,
        context: Tensor | None = None,
        contexts: Packing | None = None,
    ) -> Tensor:
        """One vector a sequence, not yet of unit length."""
        if context is None or contexts is None:
            for layer in self.layers:
                rows = layer(rows, packing)
        else:
            joint, index = concat_packings(packing, contexts)
            for layer in self.layers:
                extended = torch.cat([rows, context])[index]
                rows = layer(rows, packing, extended, joint)
        return packing.first(rows)


class MeanHead(nn.Module):
    """The mean of all rows through a linear layer that begins as the identity.

    For encoders that were trained by their mean, as e5: training then starts
    from their own space of meaning, with all the languages that meet in it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(
        self,
        rows: Tensor,
        packing: Packing,
        context: Tensor | None = None,
        contexts: Packing | None = None,
    ) -> Tensor:
        """One vector a sequence, not yet of unit length; of its context's rows too, if given."""
        if context is not None and contexts is not None:
            packing, index = concat_packings(packing, contexts)
            rows = torch.cat([rows, context])[index]
        pooled: Tensor = self.linear(packing.mean(rows))
        return pooled
