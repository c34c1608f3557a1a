"""Tasks that bring together what belongs together: captions and pictures, translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP, MMPObjective, Sentences, mmp_losses
from polyglance.nn.packing import Packing
from polyglance.nn.sending import sent
from polyglance.objectives.nce import nce
from polyglance.training.distribution import gather_rows, own_share
from polyglance.training.mixture import Task
from polyglance.training.visuals import Visuals

Indices = NDArray[np.int64]


def packed(captions: CaptionTable, rows: Indices, device: torch.device) -> Sentences:
    """Captions by row, packed on a device."""
    ids, lengths = captions.gather(rows)
    on_device = sent(torch.from_numpy(ids.astype(np.int64)), device)
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
        """``captions_each`` captions are drawn a picture, each in a language by ``weights``.

        A caption is in another language than the one drawn before it, wherever
        its picture has captions in more than one.
        """
        if objective.cross and captions_each != 2:
            raise PolyglanceError(
                f"equation 6 (cross) compares two captions a picture, not {captions_each}:"
                " set captions_each to 2 or cross to false"
            )
        self.model, self.visuals, self.captions = model, visuals, captions
        self.objective, self.captions_each, self.weights = objective, captions_each, weights
        drawn = np.array([weights is None or weights.get(n, 0) > 0 for n in captions.names], bool)
        self.items = own_share(np.unique(captions.owners[drawn[captions.languages]]))
        if not len(self.items):
            raise PolyglanceError(
                "no picture has a caption to train on: choose languages that the corpus has"
            )
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw pictures, a caption or more for each, and compare all with all."""
        items = generator.choice(self.items, self.batch, replace=False)
        features, visuals = self.visuals.rows(items, generator)
        sentences, drawn = [], None
        for _ in range(self.captions_each):
            drawn = self.captions.sample(items, generator, weights=self.weights, beside=drawn)
            sentences.append(packed(self.captions, drawn, features.device))
        return mmp_losses(self.model, features, visuals, sentences, self.objective, gather_rows)


class ParallelSentences:
    """Sentences and their translations: what means the same lies together, no picture needed."""

    def __init__(
        self, model: MMP, captions: CaptionTable, *, batch: int, temperature: float = 0.1
    ) -> None:
        self.model, self.captions, self.temperature = model, captions, temperature
        self.items = own_share(np.flatnonzero(captions.languages_each > 1))
        if not len(self.items):
            raise PolyglanceError(
                "no sentence has a translation to train on: a corpus of texts needs records"
                " with captions in two languages or more"
            )
        self.batch = min(batch, len(self.items))

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """Draw sentences in two languages each."""
        items = generator.choice(self.items, self.batch, replace=False)
        first = self.captions.sample(items, generator)
        second = self.captions.sample(items, generator, beside=first)
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
