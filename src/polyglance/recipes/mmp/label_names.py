"""Teach MMP the names of what people labelled in pictures.

Captions mention a few things in a few languages; people search with single words in any. COCO's
pictures have labels of eighty classes, whose names are known in many languages. For each picture
a label's name is told apart from the names of all classes that the picture does not show; other
labels of the same picture are left out, since they are right too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.batches.inputs import ImagePixels, VisualBatch, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMP
from polyglance.nn.packed_pairs import Text
from polyglance.records import Record
from polyglance.training.mixture import item_draws, rank_share
from polyglance.vision.labels import label_languages, label_names


@dataclass(frozen=True, eq=False)
class LabelledBatch(Batch):
    """A name of each class, and labelled images."""

    names: Text
    images: VisualBatch
    labels: Tensor
    """Which classes each image shows, ``(images, classes)``."""

    def counts(self) -> dict[str, int]:
        """Return the number of labels; the classes are the same on all processes."""
        return {"labels": int(self.labels.sum())}


class LabelNameTask:
    """Draws images to the names of their labels, in a language drawn for each class."""

    def __init__(
        self,
        model: MMP,
        tables: Sequence[ImagePixels],
        labels: Sequence[NDArray[np.bool_]],
        names: CaptionTable,
        *,
        batch: int = 256,
        temperature: float = 0.05,
    ) -> None:
        """Prepare to draw.

        Args:
            model: The model.
            tables: Image corpora.
            labels: Which classes each image shows, ``(images, classes)``, for each corpus.
            names: A record for each class, with its names as captions.
            batch: Images a step.
            temperature: Of the loss.
        """
        self.model, self.tables, self.labels, self.names = model, tables, labels, names
        self.items = [np.flatnonzero(own.any(1)) for own in labels]
        self.batch, self.temperature = batch, temperature
        self._share = np.array([len(own) for own in self.items], float)
        if not self._share.sum():
            raise PolyglanceError(
                "no image has labels to learn the names of: merge a manifest with labels into the"
                " corpus, or set label_names to null"
            )
        self._share /= self._share.sum()

    def sample(self, generator: np.random.Generator) -> LabelledBatch:
        """Draw a name for each class and labelled images of one corpus."""
        classes = self.labels[0].shape[1]
        rows = self.names.sample(np.arange(classes), generator)
        number = int(generator.choice(len(self.tables), p=self._share))
        count = min(self.batch, len(self.items[number]))
        share = rank_share(count)
        items = generator.choice(self.items[number], count, replace=False)[share]
        images = self.tables[number].select(items, item_draws(generator, count, share))
        shown = torch.from_numpy(self.labels[number][items])
        return LabelledBatch(pack_captions(self.names, rows), images, shown)

    def losses(self, batch: LabelledBatch) -> dict[str, Tensor]:
        """Tell each label's name apart from those of the classes that an image does not show."""
        batch = batch.to(next(self.model.parameters()).device)
        names = self.model.encode_text(batch.names.ids, batch.names.packing)
        images = self.model.encode_visual(*batch.images.load())
        scores = (images @ names.T / self.temperature).float()
        return {"labels": label_loss(scores, batch.labels)}


def label_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over labels of the cross-entropy of a label among it and absent classes.

    Args:
        scores: ``(images, classes)``.
        labels: Which classes each image shows, ``(images, classes)``.
    """
    absent = scores.masked_fill(labels, -torch.inf).logsumexp(1, keepdim=True)
    return (torch.logaddexp(scores, absent) - scores)[labels].mean()


def label_name_records(languages: Sequence[str] | None = None) -> list[Record]:
    """Return a record for each of COCO's classes with its names by language."""
    codes = label_languages("coco") if languages is None else tuple(languages)
    names = {code: label_names(code, "coco") for code in codes}
    count = len(names[codes[0]])
    return [Record(captions={code: names[code][row] for code in codes}) for row in range(count)]
