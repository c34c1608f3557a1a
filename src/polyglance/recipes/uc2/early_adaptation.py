"""UC2's first stage: the image encoder learns where words lie (section 3.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.regions import RegionSource, RegionTable
from polyglance.batches.streamed_regions import StoredRegions, StreamedRegions
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.early_adaptation import early_adaptation, label_ranks
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.objectives.similarity import cosines
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.training.mixture import rank_share
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.store import FeatureStore
from polyglance.vision.tokens import UNLABELLED

_READ_BATCH = 256
"""Images read from a store at a time."""


@dataclass(frozen=True, eq=False)
class SoftLabels:
    """A detector's label distribution for the labelled regions of a table."""

    rows: Tensor
    """``(n,)``: these regions' rows in the table."""
    labels: Tensor
    """``(n, k)``: the most probable labels of each, best first."""
    probabilities: Tensor
    """``(n, k)``: their probabilities."""

    @classmethod
    def from_stores(
        cls, stores: Sequence[tuple[FeatureStore, Sequence[str]]], regions: RegionTable
    ) -> SoftLabels:
        """Read the distributions of the stores and keys that the table was read from."""
        for store, _ in stores:
            if not store.info.labels:
                raise PolyglanceError(
                    f"{store.path} has no labels of regions: extract features with labels, or"
                    " leave early adaptation and MRTM out"
                )
        labelled = regions.labels.cpu() != NO_LABEL
        counts, done = regions.lengths - int(regions.prepend_global), 0
        k = min(store.info.labels for store, _ in stores)
        labels, probabilities = [], []
        for store, keys in stores:
            for start in range(0, len(keys), _READ_BATCH):
                tokens = store.gather(keys[start : start + _READ_BATCH])
                first = np.cumsum(tokens.lengths) - tokens.lengths
                # A table keeps the first regions of an image.
                rows = ragged_arange(first, counts[done : done + len(first)])
                rows = rows[tokens.label_ids[rows, 0] != UNLABELLED]
                done += len(first)
                labels.append(torch.from_numpy(tokens.label_ids[rows, :k].astype(np.int64)))
                probabilities.append(
                    torch.from_numpy(tokens.label_probs[rows, :k].astype(np.float32))
                )
        device = regions.labels.device
        soft = cls(
            labelled.nonzero()[:, 0].to(device),
            torch.cat(labels).to(device),
            torch.cat(probabilities).to(device),
        )
        if not torch.equal(soft.labels[:, 0], regions.labels[soft.rows]):
            raise ValueError("the table of regions was made of other stores, or of other keys")
        return soft

    def __len__(self) -> int:
        return len(self.rows)

    def sample(
        self, regions: RegionTable, count: int, generator: np.random.Generator
    ) -> IndexedLabels:
        """Sample regions, of which this process gets its share."""
        count = min(count, len(self))
        sampled = generator.choice(len(self), count, replace=False)[rank_share(count)]
        return IndexedLabels(self, regions, torch.from_numpy(sampled))


class StreamedSoftLabels:
    """A detector's label distributions, read from stores with the regions."""

    def sample(
        self, regions: StreamedRegions, count: int, generator: np.random.Generator
    ) -> StoredLabels:
        """Sample images with about so many regions, of which this process gets its share."""
        images = min(len(regions), max(1, round(count / float(regions.lengths.mean()))))
        sampled = generator.choice(len(regions), images, replace=False)[rank_share(images)]
        batch = regions.select(sampled)
        labels, probabilities = regions.soft_labels(sampled)
        rows = (batch.labels != NO_LABEL).nonzero()[:, 0]
        return StoredLabels(batch, rows, labels[rows], probabilities[rows])


@dataclass(frozen=True, eq=False)
class IndexedLabels(Batch):
    """Labelled regions in memory, by their numbers among the soft labels."""

    soft_labels: SoftLabels
    table: RegionTable
    numbers: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    def load(self) -> tuple[Regions, Tensor, Tensor]:
        """Return regions, labels ``(n, k)`` and probabilities ``(n, k)`` on the device."""
        soft = self.soft_labels
        index = to_device(self.numbers, soft.rows.device)
        regions = take_rows(self.table.features, self.table.boxes, soft.rows[index])
        return regions, soft.labels[index], soft.probabilities[index]


@dataclass(frozen=True, eq=False)
class StoredLabels(Batch):
    """Labelled regions as they are stored."""

    regions: StoredRegions
    rows: Tensor
    """Which of the regions have labels."""
    labels: Tensor
    probabilities: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def load(self) -> tuple[Regions, Tensor, Tensor]:
        """Return regions, labels ``(n, k)`` and probabilities ``(n, k)``."""
        regions = self.regions.load()
        return (
            take_rows(regions.features, regions.boxes, self.rows),
            self.labels,
            self.probabilities,
        )


@dataclass(frozen=True, eq=False)
class LabelledRegionBatch(Batch):
    """Labelled regions, and the names' language."""

    regions: IndexedLabels | StoredLabels
    language: str

    def counts(self) -> dict[str, int]:
        """Return the number of regions."""
        return {"early_adaptation": len(self.regions)}


class EarlyAdaptationTask:
    """Move regions closer to the word embeddings of their labels, which stay as they are."""

    def __init__(
        self,
        model: UC2,
        regions: RegionSource,
        soft_labels: SoftLabels | StreamedSoftLabels,
        labels: LabelTokens,
        *,
        languages: Sequence[str] = ("en",),
        batch: int = 1024,
        temperature: float = 1.0,
    ) -> None:
        """Prepare the task.

        Args:
            model: whose image encoder is trained.
            regions: of the training images.
            soft_labels: the detector's distributions, in memory as the regions, or not.
            labels: the labels' names.
            languages: one of them is drawn at each step.
            batch: regions a step; about so many where they are read from disk.
            temperature: of the softmax over labels.
        """
        self.model, self.regions, self.labels = model, regions, labels
        self.soft_labels, self.languages = soft_labels, tuple(languages)
        self.batch, self.temperature = batch, temperature
        labels.language_ids(languages)

    def sample(self, generator: np.random.Generator) -> LabelledRegionBatch:
        """Sample regions, and the language of the names."""
        sampled: IndexedLabels | StoredLabels
        if isinstance(self.soft_labels, SoftLabels):
            assert isinstance(self.regions, RegionTable)
            sampled = self.soft_labels.sample(self.regions, self.batch, generator)
        else:
            assert isinstance(self.regions, StreamedRegions)
            sampled = self.soft_labels.sample(self.regions, self.batch, generator)
        language = self.languages[int(generator.integers(len(self.languages)))]
        return LabelledRegionBatch(sampled, language)

    def losses(self, batch: LabelledRegionBatch) -> dict[str, Tensor]:
        """Compare regions with the names of all labels."""
        regions, labels, probabilities = batch.to(self.regions.device).regions.load()
        similarity = region_label_cosines(self.model, regions, self.labels, batch.language)
        loss = early_adaptation(similarity, labels, probabilities, temperature=self.temperature)
        return {"early_adaptation": loss}


def take_rows(features: Tensor, boxes: Tensor, rows: Tensor) -> Regions:
    """Return some regions, each an image of its own."""
    return Regions(features[rows].float(), boxes[rows], Packing.of([1] * len(rows), rows.device))


def region_label_cosines(
    model: UC2, regions: Regions, labels: LabelTokens, language: str
) -> Tensor:
    """Return the cosines of regions with all label names, ``(regions, labels)``.

    Args:
        model: its image encoder embeds the regions.
        regions: which.
        labels: the labels' names.
        language: of the names.
    """
    embeddings = model.encoder.words.weight
    assert isinstance(embeddings, Tensor)
    return cosines(model.embed_image(regions), labels.embed(embeddings, language))


@torch.no_grad()
def label_rank_statistics(
    model: UC2,
    regions: RegionSource,
    labels: LabelTokens,
    languages: Sequence[str] = ("en",),
    *,
    max_regions: int = 20_000,
) -> dict[str, dict[str, float]]:
    """Rank each region's own label among all labels by cosine.

    Args:
        model: its image encoder embeds the regions.
        regions: labelled regions.
        labels: the labels' names.
        languages: of the names.
        max_regions: the first so many labelled regions are used.

    Returns:
        By language, the ``mean`` and ``median`` rank (at chance half the labels) and the share
        of regions whose label comes ``first``, in percent.
    """
    model.eval()
    found: list[tuple[Regions, Tensor]] = []
    missing = max_regions
    for start in range(0, len(regions), _READ_BATCH):
        if missing <= 0:
            break
        batch, own = regions.take(np.arange(start, min(len(regions), start + _READ_BATCH)))
        rows = (own != NO_LABEL).nonzero()[:missing, 0]
        missing -= len(rows)
        found.append((take_rows(batch.features, batch.boxes, rows), own[rows]))
    statistics = {}
    for language in languages:
        blocks = [
            label_ranks(region_label_cosines(model, some, labels, language), own)
            for some, own in found
            if len(own)
        ]
        ranks = torch.cat(blocks).double()
        statistics[language] = {
            "mean": float(ranks.mean()),
            "median": float(ranks.median()),
            "first": 100 * float((ranks == 1).double().mean()),
        }
    return statistics
