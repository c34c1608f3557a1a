"""Variants of a reader's training, trained and compared on four photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from benchmarks.experiments import reader_trials
from benchmarks.experiments.reader_trials import open_variants, try_variants
from helpers.photo_manifests import write_photo_manifests
from polyglance.errors import PolyglanceError
from polyglance.recipes.compact_reader.train import build_model


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Four photographs of the demo, in training and in validation, and a recipe of a few pairs."""
    write_photo_manifests(tmp_path, "train", "val")
    settings = {
        "system": "compact_reader", "layers": 1, "image_layers": True,
        "captions": [{"manifest": "train.jsonl"}], "questions": [{"manifest": "train.jsonl"}],
        "validation": {"manifest": "val.jsonl"},
        "retrieval": {"batch": 4, "negatives": 1, "hard_negative_pool": 2, "candidates": 3},
        "answering": {"batch": 2, "min_score": 1, "held_out": 0},
    }  # fmt: skip
    path = tmp_path / "reader.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def test_variants_are_trained_alike_and_compared_with_the_first(recipe: Path) -> None:
    changes = {"lists": [], "again": [], "groups": ["retrieval.group_size=2"]}
    found = try_variants(open_variants(changes, 1, recipe), recipe.parent, 2, "cpu")
    assert {name: len(own) for name, own in found["mR"].items()} == dict.fromkeys(changes, 2)
    # The same settings and seeds give the same reader; others do not.
    np.testing.assert_allclose(found["mR"]["again"], found["mR"]["lists"], atol=1e-6)
    assert found["above_the_first"]["again"]["mean"] == pytest.approx(0, abs=1e-6)
    assert set(found["above_the_first"]) == {"again", "groups"}
    for name, compared in found["above_the_first"].items():
        difference = np.mean(found["mR"][name]) - np.mean(found["mR"]["lists"])
        assert compared["mean"] == pytest.approx(difference, abs=1e-6)
        assert (compared["seeds"], compared["queries"]) == (2, 4)


def test_variants_of_other_data_are_refused(recipe: Path) -> None:
    for change in (
        "max_text_tokens=10", "retrieval.candidates=9", "captions.0.max_images=2",
        "answering.held_out=0.5", "answering.min_score=2",
    ):  # fmt: skip
        with pytest.raises(PolyglanceError, match="other has other data"):
            open_variants({"one": [], "other": [change]}, 1, recipe)
    for change in (
        "retrieval.negatives=2", "loop.learning_rate=1e-5", "answering.weight=1",
        "retrieval.hard_negative_pool=1", "captions.0.repeat=2",
    ):  # fmt: skip
        assert len(open_variants({"one": [], "other": [change]}, 1, recipe)) == 2
    opened = open_variants({"one": ["max_text_tokens=10"]}, 7, recipe)["one"]
    assert (opened.max_text_tokens, opened.loop.steps, opened.test) == (10, 7, None)


def test_mr_is_that_of_the_readers_own_evaluation(recipe: Path) -> None:
    settings = open_variants({"one": []}, 1, recipe)["one"]
    data = reader_trials.load_data(settings, recipe.parent, "cpu")
    model = build_model(settings, data, "cpu")
    assert data.validation is not None
    dual = reader_trials.dual_scores(data.dual, data.validation)
    evaluation = reader_trials.ReaderEvaluation(data, 3)
    tuned = evaluation.tune(model)["by_dual_weight"]
    scores = reader_trials.reranked_scores(model, data, dual, 3)
    assert scores.shape == (len(tuned), 4)
    assert scores.mean(1) == pytest.approx([*tuned.values()], abs=0.01)
