"""The upper layers of a text encoder, over states that its frozen lower layers made of the text.

A cross-encoder on these aligns before it fuses, as ALBEF does (Li et al. 2021, "Align before
fuse", section 3.1): the text is encoded by itself first, and joins the image's regions half-way up.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from polyglance.nn.encoder import Encoder
from polyglance.nn.packing import Packing


class UpperEncoder(Encoder):
    """An `Encoder` whose embedding of a text is what another encoder's lower layers make of it."""

    def __init__(self, below: Encoder, num_lower: int, num_layers: int, dropout: float) -> None:
        """Copy layers of an encoder; its words stay shared, and its lower layers too.

        Args:
            below: A frozen text encoder.
            num_lower: How many of its layers read the text alone; 0 for its word embeddings.
            num_layers: How many layers are copied: those that follow, or the last where there are
                fewer.
            dropout: Of the copied layers.
        """
        nn.Module.__init__(self)
        for name, module in below.named_children():
            if name != "layers":
                setattr(self, name, module)
        total = below.config.num_layers
        first = min(num_lower, total - num_layers)
        self.layers = copy.deepcopy(below.layers[first : first + num_layers]).requires_grad_(True)
        self.dropout = nn.Dropout(dropout)
        for module in self.layers.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        self.config = replace(below.config, num_layers=num_layers, dropout=dropout)
        self.gradient_checkpointing, self.frozen_layers = False, 0
        self.num_lower = num_lower
        # In a tuple it is no part of this module: not trained, compressed or saved with it.
        self._below = (below,)

    def embed(
        self,
        ids: Tensor,
        packing: Packing,
        *,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return the states of the lower layers, without gradients; positions start at 0."""
        if not self.num_lower:
            return super().embed(ids, packing, segments=segments, positions=positions)
        [below] = self._below
        with torch.no_grad():
            # A copy of this module in half precision has halved the words that they share.
            embedded = below.embed(ids, packing, segments=segments).float()
            rows = below.contextualise(embedded, packing, layer=self.num_lower)
        dropped: Tensor = self.dropout(rows.to(self.norm.weight.dtype))
        return dropped
