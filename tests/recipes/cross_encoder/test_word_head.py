"""The head for masked words: XLM-R's own, or trained on captions alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.toy_regions import write_region_data
from polyglance.models.cross_encoder import CrossEncoderModel
from polyglance.recipes.cross_encoder.config import CaptionedImages, WordHeadStage
from polyglance.recipes.m3p import config as m3p_config
from polyglance.recipes.m3p import train as m3p_train
from polyglance.recipes.m3p.data import load_data as load_m3p_data
from polyglance.recipes.uc2 import config as uc2_config
from polyglance.recipes.uc2 import train as uc2_train
from polyglance.recipes.uc2.data import load_data as load_uc2_data
from polyglance.training.loop import LoopConfig

ONLY_MLM = uc2_config.ObjectiveWeights(itm=0, mlm=1, mrtm=0, vtlm=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, ("en", "de"), {"train": 30, "test": 4})
    return folder


def uc2_recipe(data: Path, **changes: Any) -> uc2_config.UC2Recipe:
    settings = {
        "encoder": str(data / "encoder"),
        "train": CaptionedImages("train.jsonl", "regions"),
        "early_adaptation": None,
        "pretraining": uc2_config.Pretraining(batch=8, steps=2, mixture=ONLY_MLM),
        "fine_tuning": None,
        "loop": LoopConfig(steps=1),
        "word_head": WordHeadStage(batch=32, steps=60, learning_rate=3e-2),
    }
    return uc2_config.UC2Recipe(**(settings | changes))


def build_uc2(recipe: uc2_config.UC2Recipe, data: Path) -> tuple[CrossEncoderModel, list[str]]:
    loaded = load_uc2_data(recipe, data, "cpu")
    model = uc2_train.build_model(recipe, loaded)
    return model, [stage.name for stage in uc2_train.build_stages(recipe, model, loaded)]


def with_head(data: Path, out: Path) -> Path:
    """Copy the toy encoder as a masked language model with a head of random weights."""
    out.mkdir()
    for file in (data / "encoder").iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    weights = load_file(data / "encoder" / "model.safetensors")
    words, width = weights["embeddings.word_embeddings.weight"].shape
    torch.manual_seed(3)
    save_file(
        {f"roberta.{name}": value for name, value in weights.items()}
        | {
            "lm_head.dense.weight": torch.randn(width, width),
            "lm_head.dense.bias": torch.randn(width),
            "lm_head.layer_norm.weight": torch.randn(width),
            "lm_head.layer_norm.bias": torch.randn(width),
            "lm_head.bias": torch.randn(words),
        },
        out / "model.safetensors",
        {"format": "pt"},
    )
    return out


def test_a_new_head_is_trained_on_captions_before_all_else(data: Path, tmp_path: Path) -> None:
    recipe = uc2_recipe(data)
    loaded = load_uc2_data(recipe, data, "cpu")
    model = uc2_train.build_model(recipe, loaded)
    stages = uc2_train.build_stages(recipe, model, loaded)
    assert [stage.name for stage in stages] == ["word_head", "pretraining"]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    entry = stages[0].run(model, tmp_path / "word_head")
    assert entry["loss_after"] < entry["loss_before"] - 0.5  # nats
    changed = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert {name.split(".")[0] for name in changed} == {"word_transform", "word_bias"}


def test_a_run_that_continues_another_has_its_head_and_no_such_stage(
    data: Path, tmp_path: Path
) -> None:
    recipe = uc2_recipe(data, word_head=WordHeadStage(batch=8, steps=1))
    report = uc2_train.train(recipe, data, tmp_path / "first")
    assert set(report) == {"languages", "word_head", "pretraining"}
    stage = tmp_path / "first" / "pretraining"
    second = replace(recipe, initialise_from=str(stage), pretraining=None)
    model, names = build_uc2(second, data)
    assert (model.config.word_transform, names) == (True, [])
    uc2_train.train(second, data, tmp_path / "second")


def test_a_language_models_head_is_loaded_instead(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_head(data, tmp_path / "language-model")
    saved = load_file(folder / "model.safetensors")
    for variant in ("paper", "reference"):
        model, names = build_uc2(uc2_recipe(data, encoder=str(folder), variant=variant), data)
        assert names == ["pretraining"]
        assert torch.equal(model.word_transform[0].weight, saved["lm_head.dense.weight"])
        assert torch.equal(model.word_transform[2].bias, saved["lm_head.layer_norm.bias"])
        assert torch.equal(model.word_bias, saved["lm_head.bias"])
    assert "masked language model" not in capsys.readouterr().err


def test_without_the_stage_an_untrained_head_is_reported(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, names = build_uc2(uc2_recipe(data, word_head=None), data)
    assert names == ["pretraining"]
    assert not model.config.word_transform
    assert "is no masked language model" in capsys.readouterr().err
    silent = uc2_recipe(data, word_head=None, pretraining=None)
    assert build_uc2(silent, data)[1] == []
    assert "masked language model" not in capsys.readouterr().err


def test_m3p_has_the_same_stage_in_the_papers_variant(data: Path, tmp_path: Path) -> None:
    head = with_head(data, tmp_path / "language-model")
    for encoder, variant, expected in (
        (data / "encoder", "paper", ["word_head", "pretraining"]),
        (data / "encoder", "reference", ["pretraining"]),  # its head is a bias alone
        (head, "paper", ["pretraining"]),
        (head, "reference", ["pretraining"]),
    ):
        recipe = m3p_config.M3PRecipe(
            encoder=str(encoder),
            variant=variant,
            train=CaptionedImages("train.jsonl", "regions"),
            pretraining=m3p_config.Pretraining(batch=4, text_batch=0, code_switched=False),
            fine_tuning=None,
            word_head=WordHeadStage(batch=8, steps=1),
        )
        loaded = load_m3p_data(recipe, data, "cpu")
        model = m3p_train.build_model(recipe, loaded)
        assert [s.name for s in m3p_train.build_stages(recipe, model, loaded)] == expected
        if encoder == head and variant == "paper":
            saved = load_file(head / "model.safetensors")
            assert torch.equal(model.word_transform[0].bias, saved["lm_head.dense.bias"])


def test_reference_variants_have_the_published_epsilons(data: Path) -> None:
    for variant, layers, embeddings in (("paper", 1e-5, 1e-5), ("reference", 1e-12, 1e-5)):
        model, _ = build_uc2(uc2_recipe(data, variant=variant), data)
        assert {layer.output_norm.eps for layer in model.encoder.layers} == {layers}
        assert model.encoder.norm.eps == model.feature_norm.eps == embeddings
