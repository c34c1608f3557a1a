"""Every recipe on features that ships, by the real command, on a few clips and a small encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.text_encoder import save_text_encoder
from helpers.toy_clips import write_store
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe, recipe_names
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.records import Cue, Record, write_manifest

PUBLISHED = [name for name in recipe_names() if open_recipe(name).system == "mmp"]
PAPER = [name for name in PUBLISHED if open_recipe(name).settings.encoder == "xlm-roberta-large"]
CLIPS = 8
WORDS = ["red", "green", "blue", "fast", "slow", "left", "right", "up", "down", "round"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many layers as the recipes take their output from."""
    folder = tmp_path_factory.mktemp("encoder") / "xlm-r"
    save_text_encoder(
        folder, [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS], layers=12
    )
    return folder


def everything(recipe: MMPRecipe) -> Iterator[FeatureSplit]:
    yield from recipe.corpora
    yield from (part for part in (recipe.validation, recipe.test) if part is not None)


def lay_out(recipe: MMPRecipe, data: Path) -> None:
    """All files that a recipe names, with a few clips in each."""
    random = np.random.default_rng(0)
    manifests: dict[str, list[Record]] = {}
    features: dict[str, dict[str, np.ndarray]] = {}
    languages = recipe.languages or ("en", "de")

    def say() -> str:
        return " ".join(random.choice(WORDS, 4))

    for part in everything(recipe):
        names = [f"{part.manifest}-{part.split}-{n}.mp4" for n in range(CLIPS)]
        subtitled = isinstance(part, TrainingCorpus) and part.subtitles is not None
        captioned = ("en",) if part.translations else languages
        captions = {} if subtitled else {name: (say(), say()) for name in captioned}
        cues = {name: (Cue(0, 2, say()), Cue(3, 4, say())) for name in languages}
        manifests.setdefault(part.manifest, []).extend(
            Record(
                video=name,
                captions=captions,
                split=part.split,
                subtitles=cues if subtitled else {},
            )
            for name in names
        )
        if part.translations:
            into = part.translation_languages or ("de", "sw")
            manifests.setdefault(part.translations, []).extend(
                Record(video=name, captions={language: (say(),) for language in into})
                for name in names
            )
        for path in [part.features] if isinstance(part.features, str) else part.features:
            rows = {name: random.normal(size=(5, 6)) for name in names}
            features.setdefault(path, {}).update(rows)
    for path, records in manifests.items():
        write_manifest(data / path, records)
    for path, rows in features.items():
        if path.endswith(".npz"):
            np.savez(data / path, ids=np.array(list(rows)), features=np.stack(list(rows.values())))
        else:
            write_store(data / path, rows)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_recipe_runs_from_the_command_line(
    name: str, encoder: Path, tmp_path: Path
) -> None:
    recipe = open_recipe(name).settings
    lay_out(recipe, tmp_path / "data")
    changes = [f"encoder={encoder}", "width=32", "loop.steps=2", "loop.precision=float32"]
    arguments = ["train", name, "--data", tmp_path / "data", "--out", tmp_path / "run"]
    for change in changes:
        arguments += ["--set", change]
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    expected = set(recipe.languages or ("en", "de"))
    if any(corpus.translations for corpus in recipe.corpora):
        expected = {"en", *recipe.corpora[0].translation_languages}
    assert set(report["trained_on"]) == expected
    if recipe.test is None:
        assert done.output == ""
    else:
        assert "test.en.text_to_visual" in done.output
        assert report["test"]["en"]["text_to_visual"]["candidates"] == CLIPS


@pytest.mark.parametrize("name", PAPER)
def test_published_recipes_follow_the_paper(name: str) -> None:
    recipe = open_recipe(name).settings
    assert (recipe.text_layer, recipe.frozen_layers) == (12, 9)
    assert (recipe.width, recipe.pooling_layers, recipe.pooling_heads) == (1024, 2, 4)
    assert recipe.dropout == 0.3
    objective, loop = recipe.objective, recipe.loop
    assert (objective.temperature, objective.noise, objective.intra) == (0.1, 0.05, True)
    assert (objective.loss, objective.negatives) == ("nce", "joint")
    assert objective.cross == (recipe.captions_per_image == 2)
    assert (loop.learning_rate, loop.grad_clip, loop.weight_decay) == (2e-4, 0.2, 0)
    assert (loop.schedule, loop.warmup) == ("constant", 0)
    pretraining = recipe.corpora[0].subtitles is not None
    assert recipe.corpora[0].batch == (64 if pretraining else 128)
    assert recipe.max_text_tokens == (192 if pretraining else 96)
    assert recipe.max_visual_tokens == 36
    assert len(PAPER) == 5


EPOCHS: dict[str, tuple[int, int]] = {
    "mmp-msrvtt": (20, 6_513 * 20),
    "mmp-msrvtt-translated": (20, 6_513 * 20),
    "mmp-vatex": (30, 25_991 * 10),
    "mmp-multi30k": (20, 29_000 * 5),
    "mmp-howto100m": (16, 1_238_911),
}


@pytest.mark.parametrize("name", PAPER)
def test_steps_match_the_paper_s_epochs(name: str) -> None:
    recipe: Any = open_recipe(name).settings
    epochs, pairs = EPOCHS[name]
    assert recipe.loop.steps == pytest.approx(epochs * pairs / recipe.corpora[0].batch, abs=1)


def test_missing_encoder_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="no weights called 'xlm-roberta-large'"):
        open_recipe("mmp-vatex").train(tmp_path, tmp_path / "run")
