"""Training that begins with a checkpoint which others published; how these are read: models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from polyglance.models.train import M3P, UC2, M3PConfig, UC2Config
from polyglance.recipes.train import train

from helpers.toy_regions import WIDTH, write_region_data
from polyglance.errors import PolyglanceError
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.cross_encoder import build
from polyglance.recipes.cross_encoder.data import CaptionedImages
from polyglance.recipes.m3p.config import M3PRecipe
from polyglance.recipes.m3p.data import World as M3PWorld
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.recipes.uc2.data import World as UC2World
from polyglance.training.loop import LoopConfig

ENCODER = EncoderConfig(
    vocab_size=400,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=70,
    first_position=0,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, ("en", "de"), {"train": 20, "test": 6})
    (folder / "theirs.pt").write_bytes(b"read by a stand-in")
    return folder


def settings(data: Path) -> dict[str, Any]:
    return {
        "encoder": str(data / "encoder"),
        "train": CaptionedImages("train.jsonl", "regions"),
        "validation": None,
        "test": CaptionedImages("test.jsonl", "regions"),
        "pretraining": None,
        "fine_tuning": None,
        "initialise_from": str(data / "theirs.pt"),
        "dropout": 0.3,
        "loop": LoopConfig(steps=1),
    }


def test_uc2_begins_with_what_others_trained(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = UC2(UC2Config(ENCODER, WIDTH, variant="reference"))
    monkeypatch.setattr(build, "load_uc2", lambda path: theirs)
    recipe = UC2Recipe(form="reference", early_adaptation=None, **settings(data))
    world = UC2World.open(recipe, data, "cpu")
    model = train.build_model(recipe, world)
    assert model.config.encoder.first_position == 0
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), theirs.parameters(), strict=True)
    )
    assert model.encoder.dropout.p == 0.3
    report = train.run(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100
    with pytest.raises(PolyglanceError, match="set form to reference"):
        train.build_model(replace(recipe, form="paper"), world)
    wider = UC2(UC2Config(ENCODER, WIDTH + 1, variant="reference"))
    monkeypatch.setattr(build, "load_uc2", lambda path: wider)
    with pytest.raises(PolyglanceError, match=f"sees features {WIDTH + 1} wide"):
        train.build_model(recipe, world)
    few = UC2(UC2Config(replace(ENCODER, vocab_size=9), WIDTH, variant="reference"))
    monkeypatch.setattr(build, "load_uc2", lambda path: few)
    with pytest.raises(PolyglanceError, match="knows 9 sub-words, and the tokenizer has"):
        train.build_model(recipe, world)


def test_m3p_begins_with_what_others_trained_but_for_their_languages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = tuple(map(str, range(5)))
    theirs = M3P(M3PConfig(ENCODER, numbered, WIDTH, num_labels=1600, variant="reference"))
    torch.nn.init.normal_(theirs.languages.weight)
    monkeypatch.setattr(build, "load_m3p", lambda path: theirs)
    recipe = M3PRecipe(layout="reference", **settings(data))
    model = train.build_model(recipe, M3PWorld.open(recipe, data, "cpu"))
    assert model.config.languages == ("en", "de")
    assert model.languages.weight.abs().sum() == 0
    assert torch.equal(model.encoder.words.weight, theirs.encoder.words.weight)
    report = train.run(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100
