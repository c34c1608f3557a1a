"""Tasks that bring together what belongs together: captions and pictures, translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP, MMPObjective, Sentences, mmp_losses
from polyglance.nn.packing import Packing
from polyglance.objectives.nce import nce
from polyglance.training.distribution import gather_rows
from polyglance.training.mixture import Task
from polyglance.training.visuals import Visuals

Indices = NDArray[np.int64]


def packed(captions: CaptionTable, rows: Indices, device: torch.device) -> Sentences:
    """Captions by row, packed on a device."""
    ids, lengths = captions.gather(rows)
    on_device = torch.from_numpy(ids.astype(np.int64)).to(device, non_blocking=True)
    return Sentences(on_device, Packing.of(lengths, device))


class CaptionedVisuals:
    """Pictures or clips with captions: one task of MMP (equations 1 to 6)."""

    def __init__(
        self,
        model: MMP,
        visuals: Visuals,
        captions: CaptionTable,
        objective: MMPObjective,
        *,
        batch: int,
        captions_each: int = 1,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """``captions_each`` captions are drawn a picture, each in a language by ``weights``."""
        self.model, self.visuals, self.captions = model, visuals, captions
        self.objective, self.captions_each, self.weights = objective, captions_each, weights
        drawn = np.array([weights is None or weights.get(n, 0) > 0 for n in captions.names])
        self.items = np.unique(captions.owners[drawn[captions.languages]])
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pictures, a caption or more for each, and compare all with all."""
        items = generator.choice(self.items, self.batch, replace=False)
        features, visuals = self.visuals.rows(items, generator)
        sentences = [
            packed(
                self.captions,
                self.captions.sample(items, generator, weights=self.weights),
                features.device,
            )
            for _ in range(self.captions_each)
        ]
        return mmp_losses(self.model, features, visuals, sentences, self.objective, gather_rows)


class ParallelSentences:
    """Sentences and their translations: what means the same lies together, no picture needed."""

    def __init__(
        self, model: MMP, captions: CaptionTable, *, batch: int, temperature: float = 0.1
    ) -> None:
        self.model, self.captions, self.temperature = model, captions, temperature
        languages = [set[int]() for _ in range(captions.records)]
        for owner, language in zip(captions.owners, captions.languages, strict=True):
            languages[owner].add(int(language))
        self.items = np.array([i for i, found in enumerate(languages) if len(found) > 1])
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw sentences in two languages each."""
        items = generator.choice(self.items, self.batch, replace=False)
        first = self.captions.sample(items, generator)
        second = self.captions.sample(items, generator)
        # Where both draws fell on one language, draw again: a few rounds settle nearly all.
        for _ in range(8):
            same = self.captions.languages[first] == self.captions.languages[second]
            if not same.any():
                break
            second[same] = self.captions.sample(items[same], generator)
        device = next(self.model.parameters()).device
        both = packed(self.captions, np.concatenate([first, second]), device)
        vectors = self.model.encode_text(both.ids, both.packing)
        left, right = (gather_rows(part) for part in vectors.chunk(2))
        return {"parallel": nce(left, right, temperature=self.temperature, negatives="symmetric")}


class Together:
    """Several tasks in one step, each with a weight."""

    def __init__(self, tasks: Sequence[tuple[str, Task, float]]) -> None:
        self.tasks = tasks

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """All losses, named after their tasks."""
        return {
            f"{name}.{key}": weight * loss
            for name, task, weight in self.tasks
            for key, loss in task.losses(generator).items()
        }
