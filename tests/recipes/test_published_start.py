"""Training that begins with a published checkpoint; tests/models checks how these are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.toy_regions import WIDTH, write_region_data
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import M3P, M3PConfig
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.cross_encoder.config import CaptionedImages
from polyglance.recipes.m3p import train as m3p_train
from polyglance.recipes.m3p.config import M3PRecipe, Pretraining
from polyglance.recipes.m3p.data import load_data as load_m3p_data
from polyglance.recipes.uc2 import train as uc2_train
from polyglance.recipes.uc2.config import UC2Recipe
from polyglance.recipes.uc2.data import load_data as load_uc2_data
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
    (folder / "published.pt").write_bytes(b"the reader is replaced in these tests")
    return folder


def settings(data: Path) -> dict[str, Any]:
    return {
        "encoder": str(data / "encoder"),
        "train": CaptionedImages("train.jsonl", "regions"),
        "validation": None,
        "test": CaptionedImages("test.jsonl", "regions"),
        "pretraining": None,
        "fine_tuning": None,
        "initialise_from": str(data / "published.pt"),
        "dropout": 0.3,
        "loop": LoopConfig(steps=1),
    }


def test_uc2_begins_with_the_published_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = UC2(UC2Config(ENCODER, WIDTH, variant="reference"))
    monkeypatch.setattr(uc2_train, "load_uc2", lambda path, **_: published)
    recipe = UC2Recipe(variant="reference", early_adaptation=None, **settings(data))
    uc2_data = load_uc2_data(recipe, data, "cpu")
    model = uc2_train.build_model(recipe, uc2_data)
    assert model.config.encoder.first_position == 0
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), published.parameters(), strict=True)
    )
    assert model.encoder.dropout.p == 0.3
    report = uc2_train.train(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100
    with pytest.raises(PolyglanceError, match="set variant to reference"):
        uc2_train.build_model(replace(recipe, variant="paper"), uc2_data)
    wider = UC2(UC2Config(ENCODER, WIDTH + 1, variant="reference"))
    monkeypatch.setattr(uc2_train, "load_uc2", lambda path, **_: wider)
    with pytest.raises(PolyglanceError, match=f"takes features of size {WIDTH + 1}"):
        uc2_train.build_model(recipe, uc2_data)
    few_words = UC2(UC2Config(replace(ENCODER, vocab_size=9), WIDTH, variant="reference"))
    monkeypatch.setattr(uc2_train, "load_uc2", lambda path, **_: few_words)
    with pytest.raises(PolyglanceError, match="knows 9 sub-words and the tokenizer has"):
        uc2_train.build_model(recipe, uc2_data)


def test_m3p_begins_with_the_published_weights_of_the_languages_it_has(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = ("ar", "de", "fr")
    published = M3P(M3PConfig(ENCODER, named, WIDTH, num_labels=1600, variant="reference"))
    torch.nn.init.normal_(published.languages.weight)
    monkeypatch.setattr(m3p_train, "load_m3p", lambda path, **_: published)
    recipe = M3PRecipe(variant="reference", **settings(data))
    model = m3p_train.build_model(recipe, load_m3p_data(recipe, data, "cpu"))
    assert model.config.languages == ("en", "de")
    assert model.languages.weight[0].abs().sum() == 0
    assert torch.equal(model.languages.weight[1], published.languages.weight[1])
    assert torch.equal(model.encoder.words.weight, published.encoder.words.weight)
    report = m3p_train.train(recipe, data, tmp_path)
    assert 0 < report["test"]["all_pairs"]["average"]["mR"] <= 100


def test_m3p_needs_a_head_for_all_labels_only_where_it_predicts_them(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published head has 1,600 classes; UNITER's regions have the background besides."""
    published = M3P(M3PConfig(ENCODER, ("en", "de"), WIDTH, num_labels=1, variant="reference"))
    monkeypatch.setattr(m3p_train, "load_m3p", lambda path, **_: published)
    recipe = M3PRecipe(variant="reference", **settings(data))
    loaded = load_m3p_data(recipe, data, "cpu")
    assert loaded.train.regions.max_label() >= 1
    assert m3p_train.build_model(recipe, loaded).config.num_labels == 1
    pretrained = replace(recipe, pretraining=Pretraining())
    with pytest.raises(
        PolyglanceError, match=r"published\.pt predicts 1 labels .* leave mc_mrm out"
    ):
        m3p_train.build_model(pretrained, loaded)
