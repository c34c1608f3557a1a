"""UC2 or M3P at work: sentences read beside pictures, how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.languages import normalise_language
from polyglance.models.m3p import M3P
from polyglance.nn.joint import Rows, Text
from polyglance.nn.packing import Packing
from polyglance.recipes.pairs.folder import PairModel, open_pair_model
from polyglance.recipes.pairs.meeting_vectors import closer_vectors
from polyglance.recipes.pairs.region_splits import look_at

if TYPE_CHECKING:
    from PIL.Image import Image

_PICTURES, _PAIRS = 16, 64
"""How many are looked at, and read, at a time."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What a model sees in a picture."""

    rows: Tensor
    """What its regions enter the model as."""
    vector: NDArray[np.float32] | None
    """Of a closer look, in the space of the dual encoder; None of a model that has none."""


class PairReader:
    """A `polyglance.search.reranking.Reranker` of a trained model."""

    def __init__(self, opened: PairModel, *, trust: float | None = None) -> None:
        """``trust`` is what the cosine counts beside; None for what validation found best."""
        self.opened = opened
        self.trust = opened.told.trust if trust is None else trust

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        trust: float | None = None,
        backbone: str | None = None,
        device: str = "cpu",
    ) -> PairReader:
        """Open a run, its fine-tuned model first, or what was exported from it."""
        return cls(open_pair_model(folder, backbone=backbone, device=device), trust=trust)

    @torch.no_grad()
    def look(self, pictures: Sequence[str | Path | Image]) -> list[Seen]:
        """What the model sees in each picture, read in one look, with a closer one if it has it."""
        opened, seen = self.opened, []
        for start in range(0, len(pictures), _PICTURES):
            some = pictures[start : start + _PICTURES]
            table = look_at(some, opened.eyes, opened.told.eyes)
            rows = opened.model.embed_regions(table.take(np.arange(len(some)))[0])
            vectors: Sequence[NDArray[np.float32] | None] = [None] * len(some)
            if opened.meeting is not None:
                vectors = [*closer_vectors(opened.meeting, some, opened.eyes, opened.told.eyes)]
            each = torch.split(rows.rows, rows.packing.lengths.tolist())
            # A view would keep the rows of its neighbours.
            seen += [Seen(own.clone(), one) for own, one in zip(each, vectors, strict=True)]
        return seen

    def closer(
        self, query: NDArray[np.floating], seen: Sequence[Seen], *, model: str
    ) -> NDArray[np.float32] | None:
        """The cosine of a query's vector with each picture, as it was looked at more closely.

        None where the vector is of another ``model``, by its fingerprint, or nothing was seen so.
        """
        meeting = self.opened.meeting
        if meeting is None or meeting.config.model != model:
            return None
        vectors = [one.vector for one in seen if one.vector is not None]
        return np.asarray(np.stack(vectors) @ query, np.float32)

    @torch.no_grad()
    def read(
        self, text: str, seen: Sequence[Seen], *, language: str | None = None
    ) -> NDArray[np.float32]:
        """How well a text fits each picture, of which `look` told."""
        opened, found = self.opened, []
        ids = torch.tensor(opened.tokenizer.encode(text, max_length=opened.told.longest_text))
        for start in range(0, len(seen), _PAIRS):
            some = [one.rows for one in seen[start : start + _PAIRS]]
            told = self._spoken(language, len(some))
            texts = Text(ids.repeat(len(some)), Packing.of([len(ids)] * len(some)), told)
            device = some[0].device
            rows = Rows(torch.cat(some), Packing.of([len(one) for one in some], device))
            found.append(opened.model.score(texts.to(device), rows).float().cpu())
        return torch.cat(found).numpy() if found else np.zeros(0, np.float32)

    def _spoken(self, language: str | None, count: int) -> Tensor | None:
        """The language as M3P counts it; one that it was not told of is not told."""
        model = self.opened.model
        if not isinstance(model, M3P) or language is None:
            return None
        try:
            code = normalise_language(language)
        except ValueError:
            return None
        if code not in model.config.languages:
            return None
        return torch.from_numpy(model.config.language_numbers([code] * count))
