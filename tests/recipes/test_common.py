"""What recipes of every kind do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from polyglance.batches.inputs import FeatureTable
from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.recipes import common, open_recipe
from polyglance.recipes.common import Measured, keep, retrieval_by_language, with_mask
from polyglance.recipes.mmp.config import MMPRecipe
from polyglance.records import Record
from polyglance.training.loop import LoopConfig


def test_the_mask_is_that_of_the_tokenizer() -> None:
    tokenizer: Any = SimpleNamespace(mask_id=103)
    assert with_mask(MMPObjective(), tokenizer, "mBERT").mask_id == 103
    still = MMPObjective(intra=False)
    assert with_mask(still, tokenizer, "mBERT") is still
    maskless: Any = SimpleNamespace(mask_id=None)
    assert with_mask(still, maskless, "words") is still
    with pytest.raises(PolyglanceError, match=r"of words has no mask.* set objective\.intra to"):
        with_mask(MMPObjective(), maskless, "words")


def test_a_run_goes_on_only_by_the_recipe_it_began_with(tmp_path: Path) -> None:
    recipe = MMPRecipe(width=64)
    keep(recipe, "features", tmp_path)
    assert open_recipe(tmp_path / "recipe.yaml").settings == recipe
    keep(replace(recipe, width=32), "features", tmp_path)  # nothing was trained yet
    (tmp_path / "latest").mkdir()
    longer = replace(recipe, width=32, loop=LoopConfig(steps=9999))
    keep(longer, "features", tmp_path)  # the loop looks at its own settings
    with pytest.raises(PolyglanceError, match="a run by another recipe"):
        keep(recipe, "features", tmp_path)
    assert open_recipe(tmp_path / "recipe.yaml").settings == longer


class Mirror(torch.nn.Module):
    """A model for which a sentence is its first word's unit vector, and a clip its first row."""

    def __init__(self) -> None:
        super().__init__()
        self.still = torch.nn.Parameter(torch.zeros(1))

    def encode_text(self, ids: torch.Tensor, sentences: Any) -> torch.Tensor:
        return torch.eye(8)[sentences.first(ids)]

    def encode_visual(self, features: torch.Tensor, visuals: Any) -> torch.Tensor:
        return visuals.first(features)


class Numbers:
    def encode_batch(self, texts: Any) -> list[list[int]]:
        return [[int(text)] for text in texts]


def test_retrieval_by_language_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "BLOCK", 3)
    clips = FeatureTable(torch.eye(8).repeat_interleave(2, dim=0), np.full(8, 2))
    records = [
        # English names every clip; German gets half of the clips wrong, and tells of each twice.
        Record(captions={"en": (str(n),), "de": (str(n), str((n + n % 2) % 8))})
        for n in range(8)
    ]
    measured = Measured(clips, CaptionTable.build(records, Numbers()))
    model: Any = Mirror().train()
    found = retrieval_by_language(model, measured)
    assert not model.training
    assert found["en"].text_to_image.recalls[1] == 100
    assert found["de"].text_to_image.recalls[1] == 75
    assert found["de"].text_to_image.queries == 16
    assert set(retrieval_by_language(model, measured, ["de"])) == {"de"}
