"""Batches of captions and images, as tasks of cross-encoders sample them on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.regions import RegionBatch
from polyglance.nn.packed_pairs import Text


@dataclass(frozen=True, eq=False)
class MaskedBatch(Batch):
    """Captions and images with some words or regions masked, and the sub-words to predict."""

    loss: str
    """The loss's name."""
    text: Text
    regions: RegionBatch | None
    positions: Tensor
    """Rows to predict, counted through all text, then translations, then regions."""
    targets: Tensor
    """Their sub-words."""
    translation: Text | None = None
    masked_regions: Tensor | None = None
    """Rows of the regions that are masked."""

    def counts(self) -> dict[str, int]:
        """Return the number of words to predict."""
        return {self.loss: len(self.targets)}


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    """Captions and images; the n-th of each make a pair, with nothing masked."""

    loss: str
    """The loss's name."""
    text: Text
    regions: RegionBatch
    matched: Tensor
    """``(pairs,)``: true for matching pairs."""
    items: int
    """Terms of the loss."""

    def counts(self) -> dict[str, int]:
        """Return the number of pairs, or of matching pairs with their negatives."""
        return {self.loss: self.items}
