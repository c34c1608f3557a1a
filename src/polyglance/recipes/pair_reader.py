"""UC2 or M3P at work: sentences read beside pictures, how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
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
from polyglance.recipes.pair_folder import PairModel, open_pair_model
from polyglance.recipes.region_splits import look_at

if TYPE_CHECKING:
    from PIL.Image import Image

_PICTURES, _PAIRS = 16, 64
"""How many are looked at, and read, at a time."""


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
    def look(self, pictures: Sequence[str | Path | Image]) -> list[Tensor]:
        """What regions of each picture enter the model as."""
        model = self.opened.model
        seen: list[Tensor] = []
        for start in range(0, len(pictures), _PICTURES):
            some = pictures[start : start + _PICTURES]
            table = look_at(some, self.opened.eyes, self.opened.told.eyes)
            rows = model.embed_regions(table.take(np.arange(len(some)))[0])
            seen += torch.split(rows.rows, rows.packing.lengths.tolist())
        return [rows.clone() for rows in seen]  # a view would keep those of its neighbours

    @torch.no_grad()
    def read(
        self, text: str, seen: Sequence[Tensor], *, language: str | None = None
    ) -> NDArray[np.float32]:
        """How well a text fits each picture, of which `look` told."""
        opened, found = self.opened, []
        ids = torch.tensor(opened.tokenizer.encode(text, max_length=opened.told.longest_text))
        for start in range(0, len(seen), _PAIRS):
            some = seen[start : start + _PAIRS]
            told = self._spoken(language, len(some))
            texts = Text(ids.repeat(len(some)), Packing.of([len(ids)] * len(some)), told)
            device = some[0].device
            rows = Rows(torch.cat(list(some)), Packing.of([len(one) for one in some], device))
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
