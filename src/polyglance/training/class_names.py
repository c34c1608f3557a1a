"""What a picture network was taught to tell apart, under the names that people give it.

A network trained on ImageNet knows a thousand kinds of things, of which captions
mention few. Its knowledge reaches the words in two ways:

- pictures lie near the names of the classes that the network saw in them
  (UC2's early adaptation, with the text encoder in place of word vectors);
- a picture made up of nothing but a class lies near the class's name. Its features
  are what a linear classifier was fitted to: for classes of one covariance S with
  means m, the weights are S^-1 m, so that S w is the mean but for a constant
  (linear discriminant analysis).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.nn.packing import Packing
from polyglance.objectives.nce import nce
from polyglance.training.pairing import packed
from polyglance.training.visuals import PixelTable

_STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
_CELLS = 4
_NOISE = 0.3


@dataclass(frozen=True)
class Taught:
    """What a network makes of pictures before it is trained on."""

    shares: tuple[Tensor, ...]
    """For each table of pictures, its distributions over classes, ``(pictures, classes)``."""
    classes: Tensor
    """The features of nothing but a class, ``(classes, width)``."""
    spread: Tensor
    """How far features lie apart, ``(width,)``."""


@torch.inference_mode()
def taught(pictures: Sequence[PixelTable], classifier: nn.Linear, *, batch: int = 512) -> Taught:
    """Look at all pictures once."""
    features, shares = [], []
    for table in pictures:
        rows = []
        for start in range(0, len(table), batch):
            items = np.arange(start, min(start + batch, len(table)))
            cells, packing = table.rows(items, None)
            rows.append(cells[packing.cu_seqlens[:-1]].float())  # the first is the whole picture's
        features.append(torch.cat(rows))
        shares.append(classifier(features[-1]).softmax(-1))
    seen = torch.cat(features)
    return Taught(
        tuple(share.clone() for share in shares),
        class_features(seen, classifier.weight.float()).clone(),
        seen.std(0).clone(),
    )


def class_features(seen: Tensor, weights: Tensor) -> Tensor:
    """Features of each class alone, from those of pictures and a linear classifier's weights.

    As strong as features of pictures are, and not below zero, as none of them is.
    """
    mean = seen.mean(0)
    apart = seen - mean
    directions = (weights - weights.mean(0)) @ (apart.T @ apart / len(seen))
    usual = seen.norm(dim=1).mean()
    found = (mean + _STRENGTHS[0] * directions).clamp(min=0)
    for strength in _STRENGTHS[1:]:
        stronger = (mean + strength * directions).clamp(min=0)
        if stronger.norm(dim=1).mean() > 1.4 * usual:
            break
        found = stronger
    return found


class NamedClasses:
    """Pictures, and classes themselves, beside the names of the classes."""

    def __init__(
        self,
        model: MMP,
        pictures: Sequence[PixelTable],
        names: CaptionTable,
        knowledge: Taught,
        *,
        weights: Mapping[str, float] | None = None,
        batch: int = 128,
        temperature: float = 0.05,
    ) -> None:
        """``names`` has a record for each class; languages are drawn by ``weights``."""
        self.model, self.pictures, self.names = model, pictures, names
        self.knowledge, self.weights = knowledge, weights
        self.batch, self.temperature = batch, temperature

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw a name for each class, and pictures of one table."""
        device = self.knowledge.classes.device
        every = np.arange(len(self.knowledge.classes))
        drawn = self.names.sample(every, generator, weights=self.weights)
        sentences = packed(self.names, drawn, device)
        names = self.model.encode_text(sentences.ids, sentences.packing)
        which = int(generator.integers(len(self.pictures)))
        table = self.pictures[which]
        items = generator.choice(len(table), min(self.batch, len(table)), replace=False)
        pictures = self.model.encode_visual(*table.rows(items, generator))
        share = self.knowledge.shares[which][torch.from_numpy(items).to(device)]
        scores = pictures @ names.T / self.temperature
        alone = self.model.encode_visual(*self._alone())
        return {
            "seen": F.kl_div(scores.log_softmax(-1), share, reduction="batchmean"),
            "alone": nce(alone, names, temperature=self.temperature, negatives="symmetric"),
        }

    def _alone(self) -> tuple[Tensor, Packing]:
        """Each class as a picture of a few cells that differ a little."""
        classes, spread = self.knowledge.classes, self.knowledge.spread
        noise = torch.randn(len(classes), _CELLS, classes.shape[1], device=classes.device)
        cells = (classes[:, None] + _NOISE * spread * noise).clamp(min=0)
        rows = torch.cat([cells.mean(1, keepdim=True), cells], dim=1)
        return rows.flatten(0, 1), Packing.of([1 + _CELLS] * len(classes), classes.device)
