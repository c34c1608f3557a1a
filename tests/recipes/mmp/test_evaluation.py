"""Retrieval results of MMP, and the objective's mask token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from polyglance.batches.inputs import FeatureTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.mmp import evaluation
from polyglance.recipes.mmp.data import with_mask_id
from polyglance.recipes.mmp.evaluation import RetrievalSplit, retrieval_by_language
from polyglance.records import Record


def test_mask_token_comes_from_the_tokenizer() -> None:
    tokenizer: Any = SimpleNamespace(mask_id=103)
    assert with_mask_id(MMPObjective(), tokenizer, "mBERT").mask_id == 103
    without_noise = MMPObjective(intra=False)
    assert with_mask_id(without_noise, tokenizer, "mBERT") is without_noise
    maskless: Any = SimpleNamespace(mask_id=None)
    assert with_mask_id(without_noise, maskless, "words") is without_noise
    with pytest.raises(PolyglanceError, match=r"of words has no mask.* set objective\.intra to"):
        with_mask_id(MMPObjective(), maskless, "words")


class OneHotModel(torch.nn.Module):
    """Encodes a sentence as the unit vector of its first word, and a clip as its first row."""

    def __init__(self) -> None:
        super().__init__()
        self.parameter = torch.nn.Parameter(torch.zeros(1))

    def encode_text(self, ids: torch.Tensor, sentences: Any) -> torch.Tensor:
        return torch.eye(8)[sentences.first(ids)]

    def encode_visual(self, features: torch.Tensor, visuals: Any) -> torch.Tensor:
        return visuals.first(features)


class Numbers:
    def encode_batch(self, texts: Any) -> list[list[int]]:
        return [[int(text)] for text in texts]


def test_retrieval_by_language_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BLOCK", 3)
    clips = FeatureTable(torch.eye(8).repeat_interleave(2, dim=0), np.full(8, 2))
    records = [
        # English is right for every clip; German has two captions each, half of the second wrong.
        Record(captions={"en": (str(n),), "de": (str(n), str((n + n % 2) % 8))})
        for n in range(8)
    ]
    split = RetrievalSplit(clips, CaptionTable.build(records, Numbers()))
    model: Any = OneHotModel().train()
    results = retrieval_by_language(model, split)
    assert not model.training
    assert results["en"].text_to_image.recalls[1] == 100
    assert results["de"].text_to_image.recalls[1] == 75
    assert results["de"].text_to_image.queries == 16
    assert set(retrieval_by_language(model, split, ["de"])) == {"de"}
