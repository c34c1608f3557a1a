"""Encoders can be pickled before and after use, and work in spawned processes."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.clip_models import save_clip
from helpers.small_smalr import export, word_model
from polyglance.encoders import Encoder, load

TEXTS = ["a dog in the snow", "ein Hund im Schnee"]
PICTURE = Image.new("RGB", (64, 64), "red")


def encode(encoder: Encoder) -> np.ndarray:
    return np.concatenate([encoder.encode_texts(TEXTS), encoder.encode_pictures([PICTURE])])


@pytest.fixture(params=["sub-words", "words", "transformers"])
def model_folder(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Path:
    if request.param == "words":
        return export(word_model(tmp_path / "run"), tmp_path / "model")
    return folder if request.param == "sub-words" else save_clip(tmp_path / "clip")


def test_an_encoder_is_pickled_before_and_after_use(model_folder: Path) -> None:
    encoder = load(model_folder, threads=1)
    before = pickle.dumps(encoder)
    expected = encode(encoder)
    after = pickle.dumps(encoder)
    assert len(after) < 10_000  # without networks and vocabularies
    for content in (before, after):
        copy = pickle.loads(content)
        assert (copy.name, copy.width, copy.fingerprint) == (
            encoder.name,
            encoder.width,
            encoder.fingerprint,
        )
        np.testing.assert_array_equal(encode(copy), expected)


def test_a_used_encoder_works_in_a_spawned_process(folder: Path) -> None:
    encoder = load(folder, threads=1)
    expected = encoder.encode_texts(TEXTS)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(encoder.encode_texts, (TEXTS,)), expected)
