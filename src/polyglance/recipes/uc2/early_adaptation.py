"""UC2's first stage: the image encoder learns where words lie (section 3.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.regions import RegionTable
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import UC2
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing
from polyglance.objectives.early_adaptation import early_adaptation, label_ranks
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.objectives.similarity import cosines
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.training.mixture import rank_share
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.store import FeatureStore

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
        images = np.repeat(np.arange(len(regions)), regions.lengths)[labelled.numpy()]
        counts, done = np.bincount(images, minlength=len(regions)), 0
        k = min(store.info.labels for store, _ in stores)
        labels, probabilities = [], []
        for store, keys in stores:
            for start in range(0, len(keys), _READ_BATCH):
                tokens = store.gather(keys[start : start + _READ_BATCH])
                first = np.cumsum(tokens.lengths) - tokens.lengths
                # A table keeps the first regions of an image.
                rows = ragged_arange(first, counts[done : done + len(first)])
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


@dataclass(frozen=True, eq=False)
class LabelledRegionBatch(Batch):
    """Labelled regions, by their numbers among the soft labels, and the names' language."""

    numbers: Tensor
    language: str

    def counts(self) -> dict[str, int]:
        """Return the number of regions."""
        return {"early_adaptation": len(self.numbers)}


class EarlyAdaptationTask:
    """Move regions closer to the word embeddings of their labels, which stay as they are."""

    def __init__(
        self,
        model: UC2,
        regions: RegionTable,
        soft_labels: SoftLabels,
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
            soft_labels: the detector's distributions.
            labels: the labels' names.
            languages: one of them is drawn at each step.
            batch: regions a step.
            temperature: of the softmax over labels.
        """
        self.model, self.regions, self.labels = model, regions, labels
        self.soft_labels, self.languages = soft_labels, tuple(languages)
        self.batch, self.temperature = batch, temperature
        labels.language_ids(languages)

    def sample(self, generator: np.random.Generator) -> LabelledRegionBatch:
        """Sample regions, and the language of the names."""
        count = min(self.batch, len(self.soft_labels))
        sampled = generator.choice(len(self.soft_labels), count, replace=False)[rank_share(count)]
        language = self.languages[int(generator.integers(len(self.languages)))]
        return LabelledRegionBatch(torch.from_numpy(sampled), language)

    def losses(self, batch: LabelledRegionBatch) -> dict[str, Tensor]:
        """Compare regions with the names of all labels."""
        index = batch.to(self.soft_labels.rows.device).numbers
        rows = self.soft_labels.rows[index]
        similarity = region_label_cosines(
            self.model, self.regions, rows, self.labels, batch.language
        )
        loss = early_adaptation(
            similarity,
            self.soft_labels.labels[index],
            self.soft_labels.probabilities[index],
            temperature=self.temperature,
        )
        return {"early_adaptation": loss}


def region_label_cosines(
    model: UC2, regions: RegionTable, rows: Tensor, labels: LabelTokens, language: str
) -> Tensor:
    """Return the cosines of regions with all label names, ``(rows, labels)``.

    Args:
        model: its image encoder embeds the regions.
        regions: the table.
        rows: which of its regions.
        labels: the labels' names.
        language: of the names.
    """
    packing = Packing.of([1] * len(rows), rows.device)
    batch = Regions(regions.features[rows].float(), regions.boxes[rows], packing)
    embeddings = model.encoder.words.weight
    assert isinstance(embeddings, Tensor)
    return cosines(model.embed_image(batch), labels.embed(embeddings, language))


@torch.no_grad()
def label_rank_statistics(
    model: UC2,
    regions: RegionTable,
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
    rows = (regions.labels != NO_LABEL).nonzero()[:max_regions, 0]
    statistics = {}
    for language in languages:
        blocks = [
            label_ranks(
                region_label_cosines(model, regions, some, labels, language), regions.labels[some]
            )
            for some in torch.split(rows, 2048)
        ]
        ranks = torch.cat(blocks).double()
        statistics[language] = {
            "mean": float(ranks.mean()),
            "median": float(ranks.median()),
            "first": 100 * float((ranks == 1).double().mean()),
        }
    return statistics
