"""Pooling heads: MMP's transformer pooling (section 3.1) and the mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyglance.nn.packing import Packing, concat_packings
from polyglance.nn.transformer import TransformerLayer


class PoolingHead(nn.Module):
    """Two transformer layers (Vaswani et al. 2017) without positions; pools to the first output.

    ``c_x = Trans(query = key = value = e_x)[0]``. With a ``context`` (equation 6)
    keys and values are extended by the rows of the image or clip:
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
        """Return one vector per sequence, ``(sequences, width)``, not normalised.

        Args:
            rows: ``(rows, width)``.
            packing: the packing of ``rows``.
            context: ``(context rows, width)``, as in equation 6.
            contexts: the packing of ``context``.
        """
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
    """The mean of all rows, through a linear layer initialised to the identity.

    For encoders trained with mean pooling, such as e5: training then starts from their own
    multilingual embedding space.
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
        """Return one vector per sequence, not normalised; a context's rows join the mean."""
        if context is not None and contexts is not None:
            packing, index = concat_packings(packing, contexts)
            rows = torch.cat([rows, context])[index]
        pooled: Tensor = self.linear(packing.mean(rows))
        return pooled
