"""Teaching a compressed model to act like the one it was made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from polyglance.data.captions import CaptionTable
from polyglance.models.mmp import MMP
from polyglance.training.distribution import own_share
from polyglance.training.pairing import packed
from polyglance.training.visuals import Visuals


class Imitation:
    """A pupil's vectors come near its teacher's, of sentences and of pictures.

    Nothing but sentences is needed to keep a language: also those that were never
    paired with a picture stay where the teacher has them.
    """

    def __init__(
        self,
        pupil: MMP,
        teacher: MMP,
        sentences: Sequence[CaptionTable],
        pictures: Sequence[tuple[Visuals, Visuals]],
        *,
        batch: int,
    ) -> None:
        """``pictures`` are given twice, as pupil and teacher see them.

        A step takes ``batch`` sentences of each corpus and ``batch`` pictures of each.
        """
        self.pupil, self.teacher = pupil, teacher.eval().requires_grad_(False)
        self.sentences = [(table, own_share(np.arange(len(table)))) for table in sentences]
        self.pictures = [(both, own_share(np.arange(len(both[0])))) for both in pictures]
        self.batch = batch

    def losses(self, generator: np.random.Generator) -> dict[str, Tensor]:
        """One less the cosine between pupil and teacher."""
        device = next(self.pupil.parameters()).device
        sentences = []
        for table, rows in self.sentences:
            text = packed(table, self._draw(rows, generator), device)
            with torch.no_grad():
                wanted = self.teacher.encode_text(text.ids, text.packing)
            sentences.append(_distance(self.pupil.encode_text(text.ids, text.packing), wanted))
        pictures = []
        for (seen, seen_by_teacher), rows in self.pictures:
            items, seed = self._draw(rows, generator), int(generator.integers(2**63))
            # Both draw the same crop and mirroring.
            with torch.no_grad():
                features = seen_by_teacher.rows(items, np.random.default_rng(seed))
                wanted = self.teacher.encode_visual(*features)
            features = seen.rows(items, np.random.default_rng(seed))
            pictures.append(_distance(self.pupil.encode_visual(*features), wanted))
        return {
            "sentences": torch.stack(sentences).mean(),
            "pictures": torch.stack(pictures).mean(),
        }

    def _draw(
        self, rows: np.ndarray[tuple[int], np.dtype[np.int64]], generator: np.random.Generator
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return generator.choice(rows, min(self.batch, len(rows)), replace=False)


def _distance(ours: Tensor, wanted: Tensor) -> Tensor:
    return 1 - F.cosine_similarity(ours.float(), wanted.float()).mean()
