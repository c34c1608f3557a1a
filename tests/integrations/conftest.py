"""A small exported model, numbered pictures, and the recalls that we measure of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.noisy_encoder import NoisyEncoder, write_captioned_pictures
from polyglance.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from polyglance.records import read_manifest

PICTURES, CAPTIONS = 40, 2
"""Recalls are whole numbers of fortieths and eightieths: MTEB rounds to five decimals."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights."""
    from helpers.small_mmp import small_model

    small = small_model(size=64, text_pooling="mean")
    return small.export(tmp_path_factory.mktemp("integrations") / "model")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three pictures that are nothing like each other."""
    rng = np.random.default_rng(0)
    paths = [tmp_path_factory.mktemp("photos") / f"{number}.png" for number in range(3)]
    for path, colour in zip(paths, ((255, 0, 0), (0, 128, 0), (20, 20, 255)), strict=True):
        pixels = np.array(colour) * rng.uniform(size=(48, 64, 1))
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return paths


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captioned_pictures(tmp_path_factory.mktemp("manifest"), PICTURES, CAPTIONS)


@pytest.fixture(scope="session")
def ours(manifest: Path) -> RetrievalResult:
    """What we measure of `NoisyEncoder`."""
    encoder, records = NoisyEncoder(), list(read_manifest(manifest))
    images = encoder.encode_pictures([manifest.parent / str(record.image) for record in records])
    texts = encoder.encode_texts([text for record in records for text in record.captions["en"]])
    result = evaluate_retrieval(images, texts, np.repeat(np.arange(PICTURES), CAPTIONS))
    for direction in (result.image_to_text, result.text_to_image):
        assert 20 < direction.recalls[1] < direction.recalls[10] <= 100  # not all or nothing
    return result
