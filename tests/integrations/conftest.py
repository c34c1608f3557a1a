"""The default model, loaded once; numbered pictures, and the recalls that we measure of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import polyglance
from helpers.doc_pages import ROOT, blocks
from helpers.noisy_encoder import NoisyEncoder, write_captioned_pictures
from polyglance.encoders import Encoder
from polyglance.encoders.model_folder import ModelFolder
from polyglance.evaluation.retrieval import RetrievalResult, evaluate_retrieval
from polyglance.records import read_manifest

RunExample = Callable[[str], None]
PICTURES, CAPTIONS = 40, 2
"""Recalls are whole numbers of fortieths and eightieths: MTEB rounds to five decimals."""


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder of the default model."""
    return ModelFolder.open().path


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The default model, loaded once."""
    return polyglance.load(threads=1)


@pytest.fixture(autouse=True)
def _load_once(folder: Path, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(model: str | Path | None = None, **options: Any) -> Encoder:
        known = model is None or Path(model).resolve() == folder.resolve()
        return encoder if known else polyglance.load(model, **options)

    monkeypatch.setattr("polyglance.integrations.models.load", load)


@pytest.fixture
def run_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunExample:
    """Run the Python of one section of docs/integrations.md."""
    monkeypatch.chdir(tmp_path)

    def run(heading: str) -> None:
        page = ROOT / "docs" / "integrations.md"
        section = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
        found = [block for block in blocks(page) if block.language == "python"]
        own = [block for block in found if not block.is_marked and block.text in section]
        assert own
        names: dict[str, Any] = {"__name__": "example"}
        for block in (found[0], *own):
            exec(compile(block.text, heading, "exec", dont_inherit=True), names)

    return run


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
