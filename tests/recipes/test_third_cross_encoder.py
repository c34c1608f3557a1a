"""A third cross-encoder needs a model file, a recipe folder and one line of the registry."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import polyglance.models
import polyglance.recipes
from helpers.colour_encoder import ColourEncoder
from helpers.toy_questions import save_image_backbone
from helpers.toy_regions import write_region_data
from polyglance import CrossEncoder
from polyglance.cli import app
from polyglance.cross_encoders.model_folder import load_cross_encoder, read_config
from polyglance.errors import PolyglanceError
from polyglance.evaluation.cross_encoders import evaluate_cross_encoder
from polyglance.models.cross_encoder import cross_encoder_class
from polyglance.recipes import SYSTEMS, open_recipe
from polyglance.records import read_manifest
from polyglance.search.library import Library

MODEL = '''
"""A cross-encoder without boxes: regions are projected and follow the sentence."""

from dataclasses import dataclass, field

import torch
from torch import nn

from polyglance.models.cross_encoder import CrossEncoderModel, CrossEncoderOutput, bert_linear
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packed_pairs import PackedRows


@dataclass(frozen=True)
class TinyConfig:
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    visual_width: int = 2048


class Tiny(CrossEncoderModel):
    config_class = TinyConfig

    def __init__(self, config, encoder=None):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        self.project = bert_linear(config.visual_width, config.encoder.hidden_size)
        self.match = bert_linear(config.encoder.hidden_size, 1)
        self.word_bias = nn.Parameter(torch.zeros(config.encoder.vocab_size))

    def embed_regions(self, regions):
        return PackedRows(self.project(regions.features), regions.packing)

    def embed_text(self, text, images=None):
        return PackedRows(self.encoder.embed(text.ids, text.packing), text.packing)

    def encode(self, text, images):
        if text is None or images is None:
            part = images if text is None else self.embed_text(text)
            output = self.encoder.contextualise(part.rows, part.packing)
            rows = (None, output) if text is None else (output, None)
            return CrossEncoderOutput(*rows, part.packing.first(output))
        pairs = self.join(self.embed_text(text, images), images)
        output = self.encoder.contextualise(pairs.rows, pairs.packing)
        of_text, of_regions = pairs.positions
        return CrossEncoderOutput(output[of_text], output[of_regions], pairs.packing.first(output))

    def match_logits(self, pooled):
        return self.match(pooled)[:, 0]

    def masked_region(self):
        return self.project.weight.new_zeros(self.config.visual_width)
'''

CONFIG = '''
"""Settings of the tiny cross-encoder."""

from dataclasses import dataclass

from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe


@dataclass(frozen=True)
class TinyRecipe(CrossEncoderRecipe):
    batch: int = 4
'''

TASKS = '''
"""Image-text matching for any cross-encoder."""

import torch

from polyglance.batches.inputs import pack_captions
from polyglance.objectives.matching import itm_loss
from polyglance.recipes.cross_encoder.batches import PairBatch
from polyglance.recipes.cross_encoder.hard_negatives import sample_pairs
from polyglance.training.mixture import item_draws


class MatchingTask:
    def __init__(self, model, regions, captions, *, batch):
        self.model, self.regions, self.captions, self.batch = model, regions, captions, batch

    def sample(self, generator):
        images = generator.choice(self.captions.images, self.batch, replace=False)
        pairs = sample_pairs(
            images, self.captions.images, self.captions, generator, negatives=1
        )
        draws = item_draws(generator, len(pairs.images))
        return PairBatch(
            "matching",
            pack_captions(self.captions.table, pairs.captions),
            self.regions.select(pairs.images, draws),
            torch.from_numpy(pairs.matched),
            len(pairs.matched),
        )

    def losses(self, batch):
        scores = self.model.score(batch.text, self.model.embed_regions(batch.regions.load()))
        return {"matching": itm_loss(scores, batch.matched)}
'''

TRAIN = '''
"""Train the tiny cross-encoder: one stage of matching."""

import torch

from polyglance import weights
from polyglance.models.tiny import Tiny, TinyConfig
from polyglance.nn.pretrained import load_encoder
from polyglance.recipes.cross_encoder.build import (
    load_initial_weights,
    prepare_run,
    write_model_folder,
)
from polyglance.recipes.cross_encoder.captions import PlainCaptions
from polyglance.recipes.cross_encoder.data import SplitReader
from polyglance.recipes.cross_encoder.evaluation import evaluate_test, validate
from polyglance.recipes.run_folder import write_report
from polyglance.recipes.stages import Stage, parameter_groups
from polyglance.recipes.tiny.tasks import MatchingTask
from polyglance.text import open_tokenizer
from polyglance.training.mixture import Mixture


def train(recipe, data, run, *, device="cpu"):
    recipe = prepare_run(recipe, "tiny", data, run)
    tokenizer = open_tokenizer(recipe.encoder)
    reader = SplitReader.from_recipe(recipe, data, tokenizer, device)
    split = reader.read_train(recipe.train, *recipe.extra_train)
    validation = reader.read_eval(recipe.validation, recipe.validation_images)
    test = reader.read_eval(recipe.test, recipe.test_images)

    encoder = load_encoder(weights.folder(recipe.encoder), dropout=recipe.dropout)
    torch.manual_seed(recipe.loop.seed)
    model = Tiny(TinyConfig(encoder.config, split.regions.width), encoder).to(device)
    load_initial_weights(model, recipe)

    captions = PlainCaptions(split.captions)
    task = MatchingTask(model, split.regions, captions, batch=recipe.batch)
    languages = split.captions.language_codes
    stage = Stage(
        "fine_tuning",
        Mixture({"matching": task}),
        recipe.loop,
        parameter_groups(model, model.encoder, recipe.head_lr_multiplier),
        validate=lambda: validate(model, validation, languages),
    )
    folder = (run, "tiny", recipe, model, tokenizer, data, {stage.name: False})
    write_model_folder(*folder)

    report = {stage.name: stage.run(model, run / stage.name)}
    report |= evaluate_test(
        model, test, validation, reader, all_pairs=True, reranking=recipe.reranking
    )
    write_model_folder(*folder, dual_weight=report.get("validation", {}).get("dual_weight"))
    write_report(report, run)
    return report
'''

YAML = """
system: tiny
train: {manifest: train.jsonl, features: regions}
validation: {manifest: val.jsonl, features: regions}
test: {manifest: test.jsonl, features: regions}
loop: {steps: 2, learning_rate: 1e-3, save_every: 0}
reranking: {dual_embeddings: dual-test, validation_embeddings: dual-val, candidates: 5}
"""

LANGUAGES = ("en", "de")
COUNTS = {"train": 20, "val": 8, "test": 8}


@pytest.fixture
def recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add the system: its model file, its recipe folder, and its line of the registry."""
    models, recipes = tmp_path / "models", tmp_path / "recipes"
    (recipes / "tiny").mkdir(parents=True)
    models.mkdir()
    (models / "tiny.py").write_text(MODEL)
    files = {"__init__": "", "config": CONFIG, "tasks": TASKS, "train": TRAIN}
    for name, text in files.items():
        (recipes / "tiny" / f"{name}.py").write_text(text)
    (recipes / "tiny" / "tiny-toy.yaml").write_text(YAML)
    monkeypatch.setattr(polyglance.models, "__path__", [*polyglance.models.__path__, str(models)])
    monkeypatch.setattr(
        polyglance.recipes, "__path__", [*polyglance.recipes.__path__, str(recipes)]
    )
    importlib.invalidate_caches()

    monkeypatch.setitem(SYSTEMS, "tiny", ("tiny.config.TinyRecipe", "tiny.train.train"))

    yield recipes / "tiny" / "tiny-toy.yaml"
    for name in [name for name in sys.modules if name.split(".")[1:3][-1:] == ["tiny"]]:
        if name.startswith("polyglance."):
            del sys.modules[name]
    for package in (polyglance.models, polyglance.recipes):
        vars(package).pop("tiny", None)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write stored regions, the images' pixels, an image backbone and a dual encoder's vectors."""
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, LANGUAGES, COUNTS)
    generator = np.random.default_rng(0)
    for split, count in COUNTS.items():
        for record in read_manifest(folder / f"{split}.jsonl"):
            pixels = generator.integers(256, size=(64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / str(record.image))
        (folder / f"dual-{split}").mkdir()
        for name in ("pictures", *LANGUAGES):
            vectors = generator.standard_normal((count, 8))
            np.save(folder / f"dual-{split}" / f"{name}.npy", vectors)
    save_image_backbone(folder / "image_backbone", 64)
    return folder


def test_third_cross_encoder_trains_on_stored_regions(
    recipe_file: Path, data: Path, tmp_path: Path
) -> None:
    recipe = open_recipe(recipe_file, [f"encoder={data / 'encoder'}"])
    assert recipe.system == "tiny"
    run = tmp_path / "run"
    report = recipe.train(data, run)
    assert report["fine_tuning"]["steps"] == 2
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}
    assert set(report["test"]["reranked"]) == {"en", "de", "average"}
    assert json.loads((run / "report.json").read_text()) == report
    assert recipe.train(data, run)["test"] == report["test"]  # nothing is left to train

    config = read_config(run)
    assert config is not None
    assert type(config.model) is cross_encoder_class("tiny").config_class
    assert config.dual_weight == report["validation"]["dual_weight"]
    with pytest.raises(PolyglanceError, match="stored regions that cannot be computed"):
        load_cross_encoder(run)


def test_third_cross_encoder_works_from_pixels_to_search(
    recipe_file: Path, data: Path, tmp_path: Path
) -> None:
    backbone = f"{{backbone: {data / 'image_backbone'}, size: 64, grid: 2, views: 2}}"
    changes = [f"encoder={data / 'encoder'}", f"image_backbone={backbone}"]
    run, exported = tmp_path / "run", tmp_path / "exported"
    options = [part for change in changes for part in ("--set", change)]
    command = ["train", str(recipe_file), "--data", str(data), "--out", str(run), *options]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "test.reranked.average" in result.stdout
    CliRunner().invoke(app, ["export", str(run), "--out", str(exported)], catch_exceptions=False)

    image = next(data.glob("*.png"))
    for folder in (run, run / "fine_tuning", exported):
        loaded = load_cross_encoder(folder)
        assert type(loaded.model).__name__ == "Tiny"
        assert loaded.image_backbone.grid == 2
    cross_encoder = CrossEncoder(exported)
    scores = cross_encoder.score("a red circle", [image, image], language="en")
    assert scores[0] == pytest.approx(scores[1])
    attribution = cross_encoder.explain(image, "a red circle")
    assert (attribution.method, attribution.heatmaps.shape) == ("attention", (3, 2, 2))

    evaluation = evaluate_cross_encoder(load_cross_encoder(run), data / "test.jsonl", quiet=True)
    report = json.loads((run / "report.json").read_text())
    for language in LANGUAGES:
        expected = report["test"]["all_pairs"][language]["mR"]
        assert evaluation.languages[language].mean_recall == pytest.approx(expected)
    with Library(tmp_path / "l", model=ColourEncoder(), reranker=exported) as library:
        library.add(image)
        assert library.search("a red circle", k=1)[0].rerank_score is not None


def test_nothing_else_knows_the_third_cross_encoder(
    recipe_file: Path, data: Path, tmp_path: Path
) -> None:
    open_recipe(recipe_file, [f"encoder={data / 'encoder'}"]).train(data, tmp_path / "run")
    loaded = {
        name: module.__file__
        for name, module in sys.modules.items()
        if name.startswith("polyglance.") and "tiny" in name.split(".")
    }
    assert set(loaded) == {
        "polyglance.models.tiny",
        "polyglance.recipes.tiny",
        *(f"polyglance.recipes.tiny.{name}" for name in ("config", "tasks", "train")),
    }
    assert all(Path(str(file)).is_relative_to(tmp_path) for file in loaded.values())
    added = {path.relative_to(tmp_path) for path in tmp_path.glob("*/**/*.py")}
    assert added == {
        Path("models/tiny.py"),
        *(Path(f"recipes/tiny/{name}.py") for name in ("__init__", "config", "tasks", "train")),
    }
    source = Path(polyglance.recipes.__file__).parent.parent
    assert not [
        path for path in source.rglob("*.py") if "tiny" in path.parts or path.stem == "tiny"
    ]
