"""Teach MMP the names of the classes that its image backbone was pre-trained on.

A network trained on ImageNet knows a thousand classes, few of which captions mention. Its
knowledge reaches the text encoder in two ways:

- an image's vector is drawn to the names of the classes that the network predicts for it
  (UC2's early adaptation, with the text encoder in place of word vectors);
- the features of a pure class are drawn to the class's name. They follow from a linear
  classifier: for classes of one covariance S with means m, its weights are S^-1 m, so that
  S w is the mean up to a constant (linear discriminant analysis).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels, VisualBatch, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.nn.packed_pairs import Text
from polyglance.nn.packing import Packing
from polyglance.objectives.nce import nce
from polyglance.training.mixture import item_draws, rank_share

_STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
_CELLS = 4
_NOISE = 0.3


@dataclass(frozen=True)
class ClassStatistics:
    """Predictions and features of an image backbone before it is fine-tuned."""

    probabilities: tuple[Tensor, ...]
    """For each image table its class distributions, ``(images, classes)``."""
    class_features: Tensor
    """Features of each pure class, ``(classes, width)``."""
    std: Tensor
    """Standard deviation of image features, ``(width,)``."""


@torch.inference_mode()
def class_statistics(
    tables: Sequence[ImagePixels], classifier: nn.Linear, *, batch: int = 512
) -> ClassStatistics:
    """Encode all images once and collect predictions and features."""
    features, probabilities = [], []
    for table in tables:
        rows = []
        for start in range(0, len(table), batch):
            items = np.arange(start, min(start + batch, len(table)))
            on_accelerator = table.device.type == "cuda"
            with torch.autocast(table.device.type, torch.bfloat16, enabled=on_accelerator):
                cells, packing = table.rows(items, None)
            rows.append(cells[packing.cu_seqlens[:-1]].float())  # the first row is the global one
        features.append(torch.cat(rows))
        probabilities.append(classifier(features[-1]).softmax(-1))
    every = torch.cat(features)
    return ClassStatistics(
        tuple(distribution.clone() for distribution in probabilities),
        class_features(every, classifier.weight.float()).clone(),
        every.std(0).clone(),
    )


def class_features(features: Tensor, weights: Tensor) -> Tensor:
    """Return the features of each pure class, ``(classes, width)``.

    Their norm is about that of image features, and none is negative, as none of those is.

    Args:
        features: Of images, ``(images, width)``.
        weights: Of a linear classifier on them, ``(classes, width)``.
    """
    mean = features.mean(0)
    centred = features - mean
    directions = (weights - weights.mean(0)) @ (centred.T @ centred / len(features))
    usual_norm = features.norm(dim=1).mean()
    result = (mean + _STRENGTHS[0] * directions).clamp(min=0)
    for strength in _STRENGTHS[1:]:
        stronger = (mean + strength * directions).clamp(min=0)
        if stronger.norm(dim=1).mean() > 1.4 * usual_norm:
            break
        result = stronger
    return result


@dataclass(frozen=True, eq=False)
class NamedImageBatch(Batch):
    """A name of each class, and images of one corpus."""

    names: Text
    corpus: int
    items: Tensor
    """The images' numbers in the corpus."""
    images: VisualBatch
    noise_seed: int
    """Of the noise of pure classes, the same on all processes."""

    def counts(self) -> dict[str, int]:
        """Return the number of images; the classes are the same on all processes."""
        return {"images": len(self.items)}


class ClassNameTask:
    """Draws images, and the features of pure classes, to the classes' names."""

    def __init__(
        self,
        model: MMP,
        tables: Sequence[ImagePixels],
        names: CaptionTable,
        statistics: ClassStatistics,
        *,
        weights: Mapping[str, float] | None = None,
        batch: int = 128,
        temperature: float = 0.05,
    ) -> None:
        """Prepare to draw.

        Args:
            model: The model.
            tables: Image corpora.
            names: A record for each class, with its names as captions.
            statistics: Of the image backbone on ``tables``.
            weights: How often each language is drawn; None for all equally.
            batch: Images a step.
            temperature: Of both losses.
        """
        self.model, self.tables, self.names = model, tables, names
        self.statistics, self.weights = statistics, weights
        self.batch, self.temperature = batch, temperature

    def sample(self, generator: np.random.Generator) -> NamedImageBatch:
        """Draw a name for each class and images of one corpus."""
        classes = np.arange(len(self.statistics.class_features))
        rows = self.names.sample(classes, generator, weights=self.weights)
        number = int(generator.integers(len(self.tables)))
        table = self.tables[number]
        count = min(self.batch, len(table))
        share = rank_share(count)
        items = generator.choice(len(table), count, replace=False)[share]
        images = table.select(items, item_draws(generator, count, share))
        names = pack_captions(self.names, rows)
        seed = int(generator.integers(2**62))
        return NamedImageBatch(names, number, torch.from_numpy(items), images, seed)

    def losses(self, batch: NamedImageBatch) -> dict[str, Tensor]:
        """Compare images and pure classes with the names."""
        batch = batch.to(self.statistics.class_features.device)
        names = self.model.encode_text(batch.names.ids, batch.names.packing)
        images = self.model.encode_visual(*batch.images.load())
        target = self.statistics.probabilities[batch.corpus][batch.items]
        scores = images @ names.T / self.temperature
        pure = self.model.encode_visual(*self._pure_classes(batch.noise_seed))
        return {
            "images": F.kl_div(scores.log_softmax(-1), target, reduction="batchmean"),
            "classes": nce(pure, names, temperature=self.temperature, negatives="symmetric"),
        }

    def _pure_classes(self, seed: int) -> tuple[Tensor, Packing]:
        """Return each class as an image of a few cells that differ by noise."""
        classes, std = self.statistics.class_features, self.statistics.std
        generator = torch.Generator(classes.device).manual_seed(seed)
        shape = (len(classes), _CELLS, classes.shape[1])
        noise = torch.randn(shape, generator=generator, device=classes.device)
        cells = (classes[:, None] + _NOISE * std * noise).clamp(min=0)
        rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return rows.flatten(0, 1), Packing.of([1 + _CELLS] * len(classes), classes.device)
