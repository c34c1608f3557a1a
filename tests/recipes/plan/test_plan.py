"""The estimates of ``polyglance plan``: against arithmetic by hand, and on tiny shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from helpers.random_store import write_random_store
from helpers.small_mmp import image_backbone_state
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.plan import estimate
from polyglance.recipes.plan.estimate import Plan, exchange_seconds, plan_recipe
from polyglance.recipes.plan.prepare import PlanOptions, bytes_per_image
from polyglance.recipes.plan.probe import StageProbe, TaskProbe
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    encoder_shape,
    random_captions,
    with_batch_limit,
)

HIDDEN, INNER, LAYERS = 32, 64, 2
WIDTH = 16


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    config = {
        "model_type": "xlm-roberta", "vocab_size": 300, "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INNER,
        "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def plan(encoder: Path, recipe: str, *changes: str, gpus: int = 1) -> Plan:
    options = PlanOptions(gpus=gpus, region_width=WIDTH, warmup=0, steps=1)
    return plan_recipe(open_recipe(recipe, (f"encoder={encoder}", *changes)), options)


def test_every_stage_of_uc2_is_planned(encoder: Path) -> None:
    planned = plan(encoder, "uc2-conceptual-captions", "loop.precision=float32")
    assert [(stage.name, stage.steps, stage.batch) for stage in planned.stages] == [
        ("early_adaptation", 10_000, 4096),
        ("pretraining", 97_217, 1024),
    ]
    adaptation, pretraining = planned.stages
    assert pretraining.pairs_per_step == pytest.approx(1024)
    # Early adaptation trains the image encoder alone.
    assert adaptation.memory.gradients < pretraining.memory.gradients
    assert pretraining.memory.gradients == pretraining.memory.weights
    assert pretraining.memory.optimiser == 2 * pretraining.memory.weights
    assert pretraining.checkpoint_bytes == 2 * 3 * pretraining.memory.weights
    # 36 regions of 16 numbers, 28 bytes and 100 labels of 4, and the whole image.
    assert planned.feature_bytes == 3_318_333 * (36 * (16 + 28 + 400) + 16 + 12)


def test_stages_of_m3p_and_their_negatives(encoder: Path) -> None:
    changes = ("pretraining.batch=64", "loop.precision=float32", "distillation={steps: 7}")
    planned = plan(encoder, "m3p-flickr8k", *changes)
    names = [stage.name for stage in planned.stages]
    assert names == ["word_head", "itm_only", "pretraining", "distillation", "fine_tuning"]
    by_name = dict(zip(names, planned.stages, strict=True))
    # MC-MLM, MC-MRM, and MC-VLM with one negative.
    assert by_name["pretraining"].pairs_per_step == 4 * 64
    assert by_name["fine_tuning"].pairs_per_step == 128 * 4  # three negatives
    assert by_name["distillation"].steps == 7


def test_operations_are_those_of_the_layers(encoder: Path) -> None:
    changes = ("pretraining.mixture.itm=0", "pretraining.mixture.mrtm=0",
               "pretraining.mixture.vtlm=0", "early_adaptation=null",
               "loop.precision=float32")  # fmt: skip
    (stage,) = plan(encoder, "uc2-conceptual-captions", *changes).stages
    tokens = 18 + 36
    layer = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER
    # Two operations a weight and row, three times: forward, and backward by input and weight.
    matrices = 6 * LAYERS * layer * tokens
    assert 0.6 * matrices < stage.flops_per_pair < 2 * matrices


def test_accelerators_share_batches_and_exchange_gradients() -> None:
    probe = StageProbe(
        (
            TaskProbe("a", 0.25, pairs=10, compute_seconds=0.4, update_seconds=0.02,
                      activation_bytes=500, flops=4e12),
            TaskProbe("b", 0.75, pairs=10, compute_seconds=0.8, update_seconds=0.02,
                      activation_bytes=700, flops=8e12),
        ),
        weight_bytes=1000, gradient_bytes=800,
    )  # fmt: skip
    recipe = open_recipe("uc2-flickr8k", ("loop.steps=3600", "loop.keep_checkpoints=3"))

    class Stage:
        name, loop = "fine_tuning", recipe.settings.loop

    planned = estimate._estimate(
        Stage(),  # type: ignore[arg-type]
        probe, batch=80, probe_batch=10, options=PlanOptions(gpus=4, bandwidth=1e-6),
        validates=True, peak=2e13,
    )  # fmt: skip
    # A share of 20 is two batches of the probe: 0.25 * 0.8 + 0.75 * 1.6 + 0.02.
    assert planned.compute_seconds == pytest.approx(1.42)
    assert planned.exchange_seconds == pytest.approx(2 * 3 / 4 * 800 / 1e3)
    assert planned.pairs_per_step == pytest.approx(80)
    assert planned.hours == pytest.approx(1.42 + 1.2)
    assert planned.pairs_per_second == pytest.approx(80 / 2.62)
    assert planned.memory.activations == 1400
    assert planned.memory.total == 1000 + 800 + 1600 + 1400
    assert planned.checkpoint_bytes == (3 + 1) * (1000 + 1600)
    assert planned.tflops == pytest.approx(2 * 7 / 1.42)
    assert planned.peak_share == pytest.approx(2 * 7 / 1.42 / 20)


def test_exchange_of_one_and_of_shards() -> None:
    assert exchange_seconds(1e9, 1, 100, "ddp") == 0
    assert exchange_seconds(1e9, 2, 100, "fsdp") == pytest.approx(0.015)


def test_batches_are_split_and_limited() -> None:
    settings = open_recipe("m3p-conceptual-captions").settings
    assert with_batch_limit(settings, 8, None).pretraining.batch == 128
    limited = with_batch_limit(settings, 8, 16).pretraining
    assert (limited.batch, limited.text_batch) == (16, 16)


def test_bytes_of_an_image_are_those_of_a_store(tmp_path: Path) -> None:
    store = write_random_store(
        tmp_path, {str(n): 36 for n in range(8)}, labels=3, width=512, shard_size=8
    )
    written = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    corpus = CorpusShape(regions=36, region_width=512, labels_per_region=3)
    assert written / 8 == pytest.approx(bytes_per_image(corpus), rel=0.03)


def test_captions_have_the_asked_mean_length() -> None:
    table = random_captions(400, CorpusShape(mean_tokens=18), 300, ("en", "de"), 60)
    lengths = table.offsets[1:] - table.offsets[:-1]
    assert lengths.mean() == pytest.approx(18, rel=0.05)
    assert random_captions(40, CorpusShape(mean_tokens=18), 300, ("en",), 9).offsets[-1] <= 9 * 40


def test_shapes_by_name() -> None:
    large = encoder_shape("models/xlm-roberta-large")
    assert (large.num_layers, large.hidden_size) == (24, 1024)
    with pytest.raises(PolyglanceError, match="set encoder to its folder, or to one of xlm-rob"):
        encoder_shape("./no-such-encoder")


@pytest.mark.parametrize("name", ["vqa-v2", "vqa-en-vi"])
def test_question_answering_is_planned(encoder: Path, name: str) -> None:
    changes = ("answers.max_answers=30", "loop.precision=float32", "batch=40")
    planned = plan(encoder, name, *changes, gpus=2)
    (stage,) = planned.stages
    assert (stage.name, stage.batch) == ("training", 40)
    assert stage.pairs_per_step == pytest.approx(40)
    assert stage.memory.gradients == stage.memory.weights
    answers, regions = {"vqa-v2": (30, 36), "vqa-en-vi": (60, 50)}[name]
    assert f"{answers} answers and images of {regions} regions" in planned.assumptions[0]
    images = {"vqa-v2": 123_287 + 108_249, "vqa-en-vi": None}[name]
    assert planned.images == images


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        ("smalr", ["pretraining", "training"]),
        ("mule", ["pretraining", "training"]),
        ("embn", ["en", "de"]),
        ("small-liwe", ["training"]),
    ],
)
def test_word_models_are_planned(model: str, stages: list[str]) -> None:
    narrow = {"latent_tokens": 50} if model == "smalr" else {}
    changes = (
        f"model={model}", "languages=[en, de]", "word_vector_dim=300", "batch=20",
        "loop.steps=30", "pretraining.steps=7", f"model_config={narrow}",
    )  # fmt: skip
    options = PlanOptions(words=40, region_width=WIDTH, images=100, warmup=0, steps=1)
    planned = plan_recipe(open_recipe("smalr-flickr8k", changes), options)
    assert [stage.name for stage in planned.stages] == stages
    training = planned.stages[-1]
    # Models without a first stage train as many steps more.
    assert training.steps == (30 if stages[0] == "pretraining" else 37)
    assert training.pairs_per_step == pytest.approx(20)
    assert planned.feature_bytes == 100 * 2 * WIDTH
    if model == "mule":  # its first stage trains the projections alone
        first = planned.stages[0]
        assert first.memory.gradients < first.memory.weights < training.memory.weights


def test_the_caption_translator_is_planned() -> None:
    changes = (
        "network={hidden_size: 16, num_heads: 2, encoder_layers: 1, decoder_layers: 1}",
        "vocabulary.size=300", "loop.precision=float32",
    )  # fmt: skip
    recipe = open_recipe("caption-translator", changes)
    planned = plan_recipe(recipe, PlanOptions(warmup=0, steps=1))
    (stage,) = planned.stages
    tokens = recipe.settings.batch_tokens
    assert stage.batch == tokens
    assert 0.3 * tokens < stage.pairs_per_step <= 1.5 * tokens  # without padding
    assert stage.flops_per_pair > 0


@pytest.mark.parametrize("name", ["mmp-msrvtt", "mmp-howto100m"])
def test_mmp_is_planned_on_features(encoder: Path, name: str) -> None:
    changes = (f"encoder={encoder}", "text_layer=2", "frozen_layers=1", "width=16",
               "loop.precision=float32")  # fmt: skip
    recipe = open_recipe(name, changes)
    options = PlanOptions(gpus=2, images=100, region_width=16, warmup=0, steps=1, probe_batch=3)
    planned = plan_recipe(recipe, options)
    (stage,) = planned.stages
    batch = sum(corpus.batch for corpus in recipe.settings.corpora)
    assert (stage.name, stage.steps, stage.batch) == ("training", recipe.settings.loop.steps, batch)
    assert stage.pairs_per_step == pytest.approx(batch)
    # Embeddings and one of two layers are frozen.
    assert 0 < stage.memory.gradients < stage.memory.weights / 2
    assert stage.flops_per_pair > 0
    assert planned.feature_bytes is not None
    assert "clips of" in planned.assumptions[0]


def test_the_default_model_is_planned_on_photos(encoder: Path, tmp_path: Path) -> None:
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (tmp_path / "config.json").write_text(json.dumps({"variant": 0, **half}))
    save_file(image_backbone_state(), tmp_path / "model.safetensors")
    changes = (f"encoder={encoder}", f"image_backbone={tmp_path}", "image_size=32", "width=32",
               "pooling_heads=2", "loop.precision=float32")  # fmt: skip
    recipe = open_recipe("polyglance-small", changes)
    options = PlanOptions(warmup=0, steps=1, probe_batch=2)
    (stage,) = plan_recipe(recipe, options).stages
    assert stage.batch == 128 + 1024 + 512 + 512  # the last by turns
    assert stage.pairs_per_step == pytest.approx(stage.batch)
    assert stage.memory.gradients == stage.memory.weights


def test_the_command_prints_a_table_or_json(encoder: Path) -> None:
    arguments = [
        "plan", "uc2-multi30k", "--gpus", "2", "--set", f"encoder={encoder}", "--device", "cpu",
        "--region-width", "16", "--probe-batch", "2", "--probe-steps", "1", "--images", "1000",
        "--set", "loop.precision=float32",
    ]  # fmt: skip
    text = CliRunner().invoke(app, arguments).output
    assert "2 accelerators, probed on CPU" in text
    assert "8x40" in text  # gradient accumulation
    assert "for 1,000 images" in text
    result = CliRunner().invoke(app, [*arguments, "--json"])
    planned = json.loads(result.stdout)
    (stage,) = planned["stages"]
    assert stage["pairs_per_step"] == pytest.approx(8 * 40 * 3)
    assert planned["hours"] == pytest.approx(stage["hours"])
    assert stage["exchange_seconds"] > 0
