"""Sentences and the regions of pictures as one input, packed: what M3P and UC2 read.

A batch has as many sentences as pictures, and the n-th of either make a pair.
Where a side is missing altogether (text alone, pictures alone) it is None.
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
    """Sentences, packed."""

    ids: Tensor
    packing: Packing
    languages: Tensor | None = None
    """The language of each sentence, as the model counts them; None for none to be told."""

    def to(self, device: torch.device | str) -> Text:
        """The same on a device, without waiting for it."""
        told = None if self.languages is None else to_device(self.languages, device)
        boundaries = to_device(self.packing.cu_seqlens, device)
        packing = Packing(boundaries, self.packing.max_seqlen, self.packing.num_tokens)
        return Text(to_device(self.ids, device), packing, told)


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of pictures, packed: what a detector saw, or the cells of a grid."""

    features: Tensor
    boxes: Tensor
    """(rows, 4): left, top, right and bottom, in fractions of the picture's width and height."""
    packing: Packing


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Rows of vectors that enter or leave a transformer, packed."""

    rows: Tensor
    packing: Packing


class PairScorer(Protocol):
    """A model that reads a sentence and a picture together."""

    def embed_regions(self, regions: Regions) -> PackedRows:
        """What pictures enter as, whatever is said of them."""
        ...

    def score(self, text: Text, seen: PackedRows) -> Tensor:
        """How well each sentence fits the picture of the same number."""
        ...


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """Sequences of two sides, each followed by its partner, and the way back."""

    rows: Tensor
    packing: Packing
    index: Tensor
    """Joint rows are the rows of both sides, one after the other, at this index."""
    num_first: int
    """How many rows the first side has."""

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Where the rows of either side are now, in the order in which they came."""
        back = torch.empty_like(self.index)
        back[self.index] = torch.arange(len(back), device=back.device)
        return back[: self.num_first], back[self.num_first :]

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What became of the rows of either side, in the order in which they came."""
        first, second = self.positions
        return rows[first], rows[second]


def concat_packed(first: PackedRows, second: PackedRows) -> PackedPairs:
    """Each sequence of ``first`` followed by the same one of ``second``."""
    packing, index = concat_packings(first.packing, second.packing)
    rows = torch.cat([first.rows, second.rows])[index]
    return PackedPairs(rows, packing, index, first.packing.num_tokens)


def box_geometry(boxes: Tensor) -> Tensor:
    """M3P's 5-D vector of a region: top-left, bottom-right and the share of the picture."""
    left, top, right, bottom = boxes.unbind(1)
    area = (right - left) * (bottom - top)
    return torch.cat([boxes, area[:, None]], dim=1)


def box_location(boxes: Tensor) -> Tensor:
    """UC2's 7-D vector of a region: top-left, bottom-right, width, height and their product."""
    left, top, right, bottom = boxes.unbind(1)
    width, height = right - left, bottom - top
    return torch.cat([boxes, torch.stack([width, height, width * height], dim=1)], dim=1)


def encode_first(encoder: Encoder, pairs: PackedPairs) -> Tensor:
    """What becomes of the first row of each pair, for whom that one stands for the pair.

    The last layer is computed for that row alone.
    """
    before = encoder.config.num_layers - 1
    rows = encoder.contextualise(pairs.rows, pairs.packing, layer=before)
    alone = Packing.of([1] * len(pairs.packing), rows.device)
    first: Tensor = encoder.layers[-1](pairs.packing.first(rows), alone, rows, pairs.packing)
    return first
