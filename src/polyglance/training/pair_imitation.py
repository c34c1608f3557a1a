"""Scoring pairs as a dual encoder does: what a model that reads pairs may learn first.

A corpus says of each picture what fits and of nothing how far off it is. A dual encoder
says that of any sentence and any picture, described or not, and has often seen more of
both. Whoever has learned to agree with it need not begin fine-tuning with a coin's toss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.nn.joint import ReadsPairs
from polyglance.nn.sending import sent
from polyglance.training.caption_sources import read_captions
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]

_AT_ONCE = 512
"""Pictures compared with all sentences at a time."""
_SAMPLE = 100_000
"""Pairs by which it is found out how far scores lie apart."""


@dataclass(frozen=True, eq=False)
class Likeness:
    """What a dual encoder makes of pictures and sentences: unit vectors of both."""

    pictures: Tensor
    texts: Tensor

    @torch.no_grad()
    def nearest(self, count: int) -> NDArray[np.int32]:
        """For each picture the sentences that it finds most alike, the nearest first."""
        count = min(count, len(self.texts))
        found = [
            (block @ self.texts.T).topk(count, dim=1).indices.int().cpu()
            for block in torch.split(self.pictures, _AT_ONCE)
        ]
        return torch.cat(found).numpy()

    def of(self, pictures: Indices, texts: Indices) -> Tensor:
        """The cosine of each pair."""
        device = self.pictures.device
        left = self.pictures[sent(torch.from_numpy(pictures), device)]
        right = self.texts[sent(torch.from_numpy(texts), device)]
        return (left.float() * right.float()).sum(1)


class PairImitation:
    """Any sentence beside any picture, scored as the dual encoder scores them.

    Targets are its cosines less what a sentence has that is near a picture, in units of
    the deviation of all: zero is hard to tell, a true pair is some points above, and
    pairs at random as many below. So they suit losses that end in a sigmoid.
    """

    def __init__(
        self,
        model: ReadsPairs,
        regions: RegionTable,
        texts: CaptionTable,
        likeness: Likeness,
        *,
        batch: int,
        near: float = 0.5,
        nearest: int = 100,
        languages: Indices | None = None,
    ) -> None:
        """``near`` of the pairs are of a picture and one of its ``nearest`` sentences.

        Each tenfold of distance is drawn alike: the first ten sentences as often as the next
        ninety. So what is nearest is told apart best, and nothing between it and any other
        sentence is left out.

        ``languages`` says how the model counts those of the table, if it does.
        """
        if (len(regions), len(texts)) != (len(likeness.pictures), len(likeness.texts)):
            raise PolyglanceError(
                f"the dual encoder has seen {len(likeness.pictures)} pictures and"
                f" {len(likeness.texts)} sentences, and there are {len(regions)} and {len(texts)}"
            )
        self.model, self.regions, self.texts = model, regions, texts
        self.likeness, self.languages = likeness, languages
        self.batch, self.near = batch, near
        self._nearest = likeness.nearest(nearest)
        generator = np.random.default_rng(0)
        pictures = generator.integers(len(regions), size=_SAMPLE)
        any_ = likeness.of(pictures, generator.integers(len(texts), size=_SAMPLE))
        near_ = likeness.of(pictures, self._near(pictures, generator))
        self.middle, self.unit = float(near_.mean()), max(float(any_.std()), 1e-6)

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pairs and agree on them."""
        pictures, texts = self.draw(generator)
        regions, _ = self.regions.take(pictures, generator)
        text = read_captions(self.texts, texts, self.languages).to(self.regions.features.device)
        scores = self.model.score(text, self.model.embed_regions(regions))
        return {"imitation": F.smooth_l1_loss(scores.float(), self.targets(pictures, texts))}

    def draw(self, generator: np.random.Generator) -> tuple[Indices, Indices]:
        """Pictures and sentences, the n-th of either a pair."""
        pictures = generator.integers(len(self.regions), size=self.batch)
        texts = generator.integers(len(self.texts), size=self.batch)
        near = generator.random(self.batch) < self.near
        return pictures, np.where(near, self._near(pictures, generator), texts)

    def targets(self, pictures: Indices, texts: Indices) -> Tensor:
        """What the dual encoder says of pairs."""
        return (self.likeness.of(pictures, texts) - self.middle) / self.unit

    def _near(self, pictures: Indices, generator: np.random.Generator) -> Indices:
        places = (self._nearest.shape[1] + 1) ** generator.random(len(pictures)) - 1
        return np.asarray(self._nearest[pictures, places.astype(np.int64)], np.int64)
