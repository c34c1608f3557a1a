"""Sentences and the regions of images as one packed input, as cross-encoders take it.

A batch has as many sentences as images; the n-th sentence and the n-th image are a pair. An
input that is missing altogether (text only, images only) is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from polyglance.nn.encoder import Encoder
from polyglance.nn.packing import Packing, concat_packings, to_device


@dataclass(frozen=True, eq=False)
class Text:
    """Packed sentences."""

    ids: Tensor
    """``(sub-words,)``."""
    packing: Packing
    languages: Tensor | None = None
    """``(sentences,)``: the model's language ids; None for no language embedding."""

    def to(self, device: torch.device | str) -> Text:
        """Copy to ``device`` asynchronously."""
        languages = None if self.languages is None else to_device(self.languages, device)
        cu_seqlens = to_device(self.packing.cu_seqlens, device)
        packing = Packing(cu_seqlens, self.packing.max_seqlen, self.packing.num_tokens)
        return Text(to_device(self.ids, device), packing, languages)


@dataclass(frozen=True, eq=False)
class Regions:
    """Packed regions of images: a detector's, or the cells of a grid."""

    features: Tensor
    """``(regions, visual_width)``."""
    boxes: Tensor
    """``(regions, 4)``: left, top, right and bottom, as fractions of the image's size."""
    packing: Packing


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Packed input or output rows of a transformer."""

    rows: Tensor
    """``(rows, hidden_size)``."""
    packing: Packing


class PairScorer(Protocol):
    """A model that scores a sentence and an image together."""

    def embed_regions(self, regions: Regions) -> PackedRows:
        """Return the first layer's input for regions; it does not depend on any text."""
        ...

    def score(self, text: Text, images: PackedRows) -> Tensor:
        """Return how well the n-th sentence fits the n-th image, ``(pairs,)``."""
        ...


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """Sequences of two inputs, concatenated pair by pair."""

    rows: Tensor
    packing: Packing
    index: Tensor
    """``rows`` are the rows of the first input, then the second's, taken at this index."""
    num_first: int
    """The number of rows of the first input."""

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """For each row of the first and of the second input, its joint row."""
        inverse = torch.empty_like(self.index)
        inverse[self.index] = torch.arange(len(inverse), device=inverse.device)
        return inverse[: self.num_first], inverse[self.num_first :]


def concat_packed(first: PackedRows, second: PackedRows) -> PackedPairs:
    """Concatenate the n-th sequence of ``first`` with the n-th of ``second``."""
    packing, index = concat_packings(first.packing, second.packing)
    rows = torch.cat([first.rows, second.rows])[index]
    return PackedPairs(rows, packing, index, first.packing.num_tokens)


def box_geometry(boxes: Tensor) -> Tensor:
    """Return M3P's 5-D box vector: top-left, bottom-right and area, ``(regions, 5)``."""
    left, top, right, bottom = boxes.unbind(1)
    area = (right - left) * (bottom - top)
    return torch.cat([boxes, area[:, None]], dim=1)


def box_location(boxes: Tensor) -> Tensor:
    """Return UC2's 7-D box vector: corners, width, height and area, ``(regions, 7)``."""
    left, top, right, bottom = boxes.unbind(1)
    width, height = right - left, bottom - top
    return torch.cat([boxes, torch.stack([width, height, width * height], dim=1)], dim=1)


def encode_first(encoder: Encoder, pairs: PackedPairs) -> Tensor:
    """Encode only the first token of each pair, which represents the pair.

    The last layer is computed for that row alone; returns ``(pairs, hidden_size)``.
    """
    rows = encoder.contextualise(pairs.rows, pairs.packing, layer=encoder.config.num_layers - 1)
    single = Packing.of([1] * len(pairs.packing), rows.device)
    first: Tensor = encoder.layers[-1](pairs.packing.first(rows), single, rows, pairs.packing)
    return first
