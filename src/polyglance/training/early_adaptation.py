"""The image encoder of UC2 learns where words lie, before anything else does (section 3.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.nn.joint import Regions
from polyglance.nn.packing import Packing
from polyglance.nn.sending import sent
from polyglance.objectives.early_adaptation import early_adaptation, label_ranks
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.objectives.similarity import cosines
from polyglance.text.flat import spread
from polyglance.training.distribution import own_share
from polyglance.training.label_words import LabelWords
from polyglance.training.region_table import RegionTable
from polyglance.vision.store import FeatureStore

_AT_ONCE = 256
"""Pictures read from a store at a time."""


@dataclass(frozen=True, eq=False)
class BelievedLabels:
    """What a detector believes of the regions of a table that have a label."""

    rows: Tensor
    """Which regions of the table these are."""
    labels: Tensor
    """``(regions, k)``: the likeliest labels of each, the likeliest first."""
    shares: Tensor
    """``(regions, k)``: how likely they are."""

    @classmethod
    def of_stores(
        cls, stores: Sequence[tuple[FeatureStore, Sequence[str]]], regions: RegionTable
    ) -> BelievedLabels:
        """Those of feature stores, for the table that was made of them with the same keys."""
        for store, _ in stores:
            if not store.info.labels:
                raise PolyglanceError(
                    f"{store.path} has no labels of regions: extract features with labels, or leave"
                    " early adaptation and MRTM out"
                )
        known = regions.labels.cpu() != NO_LABEL
        owners = np.repeat(np.arange(len(regions)), regions.lengths)[known.numpy()]
        kept, done = np.bincount(owners, minlength=len(regions)), 0
        most = min(store.info.labels for store, _ in stores)
        labels, shares = [], []
        for store, keys in stores:
            for start in range(0, len(keys), _AT_ONCE):
                tokens = store.gather(keys[start : start + _AT_ONCE])
                first = np.cumsum(tokens.lengths) - tokens.lengths
                # A table keeps the first regions of a picture.
                rows = spread(first, kept[done : done + len(first)])
                done += len(first)
                labels.append(torch.from_numpy(tokens.label_ids[rows, :most].astype(np.int64)))
                shares.append(torch.from_numpy(tokens.label_probs[rows, :most].astype(np.float32)))
        device = regions.labels.device
        found = cls(
            known.nonzero()[:, 0].to(device),
            torch.cat(labels).to(device),
            torch.cat(shares).to(device),
        )
        if not torch.equal(found.labels[:, 0], regions.labels[found.rows]):
            raise ValueError("the table of regions was made of other stores, or of other keys")
        return found

    def __len__(self) -> int:
        return len(self.rows)


class EarlyAdaptation:
    """Regions alone, each beside the words of all labels; the words stay where they are."""

    def __init__(
        self,
        model: UC2,
        regions: RegionTable,
        believed: BelievedLabels,
        words: LabelWords,
        *,
        languages: Sequence[str] = ("en",),
        batch: int = 1024,
        temperature: float = 1.0,
    ) -> None:
        """A step has so many regions and the words of one of the ``languages``, drawn evenly."""
        self.model, self.regions, self.believed, self.words = model, regions, believed, words
        self.languages, self.batch, self.temperature = tuple(languages), batch, temperature
        words.numbers(languages)
        self._own = own_share(np.arange(len(believed)))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw regions and bring them nearer to the words of what they show."""
        drawn = generator.choice(self._own, min(self.batch, len(self._own)), replace=False)
        language = self.languages[int(generator.integers(len(self.languages)))]
        index = sent(torch.from_numpy(drawn), self.believed.rows.device)
        near = region_label_cosines(
            self.model, self.regions, self.believed.rows[index], self.words, language
        )
        loss = early_adaptation(
            near,
            self.believed.labels[index],
            self.believed.shares[index],
            temperature=self.temperature,
        )
        return {"adaptation": loss}


def region_label_cosines(
    model: UC2, regions: RegionTable, rows: Tensor, words: LabelWords, language: str
) -> Tensor:
    """The cosine of regions of a table, as the image encoder sees them, to all label words."""
    packing = Packing.of([1] * len(rows), rows.device)
    seen = Regions(regions.features[rows].float(), regions.boxes[rows], packing)
    table = model.encoder.words.weight
    assert isinstance(table, Tensor)
    return cosines(model.see(seen), words.vectors(table, language))


@torch.no_grad()
def adaptation_figures(
    model: UC2,
    regions: RegionTable,
    words: LabelWords,
    languages: Sequence[str] = ("en",),
    *,
    most: int = 20_000,
) -> dict[str, dict[str, float]]:
    """By language, where the word of a region's own label comes by cosine among all label words.

    ``mean`` and ``median`` rank, and the share in percent that come ``first``, over the
    first ``most`` regions that have a label. By chance the mean is half the labels.
    """
    model.eval()
    rows = (regions.labels != NO_LABEL).nonzero()[:most, 0]
    found = {}
    for language in languages:
        blocks = [
            label_ranks(
                region_label_cosines(model, regions, some, words, language), regions.labels[some]
            )
            for some in torch.split(rows, 2048)
        ]
        ranks = torch.cat(blocks).double()
        found[language] = {
            "mean": float(ranks.mean()),
            "median": float(ranks.median()),
            "first": 100 * float((ranks == 1).double().mean()),
        }
    return found
