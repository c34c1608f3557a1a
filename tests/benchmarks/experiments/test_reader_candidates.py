"""The shipped reader, read back into torch, scores as ONNX Runtime computes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.reader_candidates import evaluate, keep_scores, load_shipped
from benchmarks.experiments.reader_sizes import shorten
from helpers.photo_manifests import write_photo_manifests
from polyglance.encoders.reader import Reader
from polyglance.evaluation.pair_scores import pair_scores
from polyglance.recipes import open_recipe
from polyglance.recipes.compact_reader.config import ReaderCorpus


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four photographs of the demo with a caption and a question each."""
    write_photo_manifests(tmp_path, "train", "test")
    return tmp_path


def test_scores_are_those_of_the_shipped_reader(data: Path) -> None:
    train, test = ReaderCorpus("train.jsonl"), ReaderCorpus("test.jsonl")
    recipe = shorten(open_recipe("polyglance-reader").settings, None)
    recipe = replace(
        recipe, captions=(train,), questions=(train,), validation=test, test=test, question_tests=()
    )
    loaded, model = load_shipped(recipe, data, "cpu")
    assert loaded.test is not None
    split = loaded.test.split
    scores = pair_scores(model.cross_encoder, split.regions, split.captions, language_ids=None)
    table = scores.table(np.arange(4))
    reader = Reader.open(threads=1)
    encoded = reader.encode_images(list(split.files))
    expected = np.stack(
        [reader.score(record.captions["en"][0], encoded) for record in split.records], 1
    )
    assert np.corrcoef(table.ravel(), expected.ravel())[0, 1] > 0.999
    np.testing.assert_allclose(table, expected, atol=0.05 * np.ptp(expected))
    result = evaluate(model, loaded, 2, shipped_weight=4.0)
    assert result["shipped_weight"].keys() >= {"dual", "reranked"}
    assert set(result["shipped_weight"]["reranked"]) == {"en", "average"}
    keep_scores(model, loaded, 2, data / "scores")
    with np.load(data / "scores" / "test.npz") as kept:
        assert list(kept["languages"]) == ["en"]
        images, scores = kept["en.images"], kept["en.scores"][kept["en.texts"].size :]
    np.testing.assert_allclose(
        scores.reshape(4, 2), np.take_along_axis(table.T, images.astype(int), 1), rtol=2e-3
    )
