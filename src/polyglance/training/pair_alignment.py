"""Pictures and sentences read apart, each brought beside what it belongs to.

A transformer that reads a sentence beside a picture has to compare the two before it knows
what either means. Who reads each alone can be shown a thousand false pairs for every true
one at the price of reading both once, as a dual encoder. Li et al. 2021 ("Align before
fuse", section 3.2) begin so; here one encoder reads both, and goes on to read them
together. Neither M3P nor UC2 has such a stage.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.joint import Regions, Rows, Text
from polyglance.objectives.nce import nce
from polyglance.training.caption_sources import read_captions
from polyglance.training.distribution import own_share
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]

_AT_ONCE = 512
"""Pictures or sentences embedded at a time."""


class Understood(Protocol):
    """What was made of either side, None where it was missing."""

    @property
    def text(self) -> Tensor | None:
        """A vector a sub-word."""
        ...

    @property
    def regions(self) -> Tensor | None:
        """A vector a region."""
        ...


class ReadsEither(Protocol):
    """A model that reads sentences and pictures, together or either alone."""

    def embed_regions(self, regions: Regions) -> Rows:
        """What pictures enter as, whatever is said of them."""
        ...

    def read(self, text: Text | None, seen: Rows | None) -> Understood:
        """Read what there is."""
        ...


class PairAlignment:
    """Tell which of many captions belongs to a picture, and of many pictures to a caption."""

    def __init__(
        self,
        model: ReadsEither,
        regions: RegionTable,
        captions: CaptionTable,
        *,
        batch: int,
        temperature: float = 0.05,
        languages: Indices | None = None,
    ) -> None:
        """A step has ``batch`` pictures with a caption each, in any language it has.

        ``languages`` says how the model counts those of the table, if it does.
        """
        self.model, self.regions, self.captions = model, regions, captions
        self.temperature, self.languages = temperature, languages
        self._described = own_share(np.unique(captions.owners))
        self.batch = min(batch, len(self._described))
        if self.batch < 2:
            raise PolyglanceError("two pictures with captions at least are needed to tell apart")

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pictures, no two the same, and captions of theirs."""
        pictures = generator.choice(self._described, self.batch, replace=False)
        rows = self.captions.sample(pictures, generator)
        seen = picture_vectors(self.model, self.regions.take(pictures, generator)[0])
        read = sentence_vectors(
            self.model, read_captions(self.captions, rows, self.languages).to(seen.device)
        )
        told = nce(seen.float(), read.float(), temperature=self.temperature, negatives="symmetric")
        return {"alignment": told}


def picture_vectors(model: ReadsEither, regions: Regions) -> Tensor:
    """The mean of what becomes of a picture's regions, read without a word."""
    found = model.read(None, model.embed_regions(regions)).regions
    assert found is not None
    return regions.packing.mean(found)


def sentence_vectors(model: ReadsEither, text: Text) -> Tensor:
    """The mean of what becomes of a sentence's sub-words, read without a picture."""
    found = model.read(text, None).text
    assert found is not None
    return text.packing.mean(found)


@torch.no_grad()
def embed_apart(
    model: ReadsEither,
    regions: RegionTable,
    captions: CaptionTable,
    rows: Indices,
    languages: Indices | None = None,
) -> tuple[Tensor, Tensor]:
    """Unit vectors of all pictures, and of some captions."""
    device = regions.features.device

    def blocks(count: int) -> list[Indices]:
        return np.array_split(np.arange(count), -(-count // _AT_ONCE))

    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        seen = [picture_vectors(model, regions.take(some)[0]) for some in blocks(len(regions))]
        read = [
            sentence_vectors(model, read_captions(captions, rows[some], languages).to(device))
            for some in blocks(len(rows))
        ]
    pictures, sentences = torch.cat(seen).float(), torch.cat(read).float()
    return (
        torch.nn.functional.normalize(pictures, dim=1),
        torch.nn.functional.normalize(sentences, dim=1),
    )
