"""Training that begins with a checkpoint which others published; how these are read: models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.pairs import m3p, uc2, untrained
from polyglance.recipes.pairs.m3p_recipe import M3PRecipe
from polyglance.recipes.pairs.m3p_world import World as M3PWorld
from polyglance.recipes.pairs.region_splits import Described
from polyglance.recipes.pairs.uc2_recipe import UC2Recipe
from polyglance.recipes.pairs.uc2_world import World as UC2World
from polyglance.training.loop import LoopConfig
from toy_region_data import make_region_data
from toy_regions import WIDTH

ENCODER = EncoderConfig(
    vocabulary=400, width=16, layers=1, heads=2, inner=32, positions=70, first_position=0
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    make_region_data(folder, ("en", "de"), {"train": 20, "test": 6})
    (folder / "theirs.pt").write_bytes(b"read by a stand-in")
    return folder


def settings(data: Path) -> dict[str, Any]:
    return {
        "encoder": str(data / "encoder"),
        "train": Described("train.jsonl", "regions"),
        "validation": None,
        "test": Described("test.jsonl", "regions"),
        "pretraining": None,
        "fine_tuning": None,
        "initialise_from": str(data / "theirs.pt"),
        "dropout": 0.3,
        "loop": LoopConfig(steps=1),
    }


def test_uc2_begins_with_what_others_trained(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = UC2(UC2Config(ENCODER, WIDTH, form="reference"))
    monkeypatch.setattr(untrained, "load_uc2", lambda path: theirs)
    recipe = UC2Recipe(form="reference", adaptation=None, **settings(data))
    world = UC2World.open(recipe, data, "cpu")
    model = uc2.build_model(recipe, world)
    assert model.config.encoder.first_position == 0
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), theirs.parameters(), strict=True)
    )
    assert model.encoder.dropout.p == 0.3
    report = uc2.run(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100
    with pytest.raises(PolyglanceError, match="set form to reference"):
        uc2.build_model(replace(recipe, form="paper"), world)
    wider = UC2(UC2Config(ENCODER, WIDTH + 1, form="reference"))
    monkeypatch.setattr(untrained, "load_uc2", lambda path: wider)
    with pytest.raises(PolyglanceError, match=f"sees features {WIDTH + 1} wide"):
        uc2.build_model(recipe, world)
    few = UC2(UC2Config(replace(ENCODER, vocabulary=9), WIDTH, form="reference"))
    monkeypatch.setattr(untrained, "load_uc2", lambda path: few)
    with pytest.raises(PolyglanceError, match="knows 9 sub-words, and the tokenizer has"):
        uc2.build_model(recipe, world)


def test_m3p_begins_with_what_others_trained_but_for_their_languages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = tuple(map(str, range(5)))
    theirs = M3P(M3PConfig(ENCODER, numbered, WIDTH, labels=1600, layout="reference"))
    torch.nn.init.normal_(theirs.languages.weight)
    monkeypatch.setattr(untrained, "load_m3p", lambda path: theirs)
    recipe = M3PRecipe(layout="reference", **settings(data))
    model = m3p.build_model(recipe, M3PWorld.open(recipe, data, "cpu"))
    assert model.config.languages == ("en", "de")
    assert model.languages.weight.abs().sum() == 0
    assert torch.equal(model.encoder.words.weight, theirs.encoder.words.weight)
    report = m3p.run(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100
