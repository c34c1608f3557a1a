"""The shipped model gives the vectors that it gave when it was added."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import polyglance
from polyglance.demo.photographs import FOLDER
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.reader import Reader
from polyglance.errors import PolyglanceError
from polyglance.export.copy_model import copy_model
from polyglance.search.model_info import check_model
from polyglance.search.store import ModelInfo

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = FIXTURES / "fifth_edition" / "shipped_vectors.npz"
"""Photographs of the demo, sentences in ten languages, and their vectors."""
BEFORE = FIXTURES / "fourth_edition" / "shipped_vectors.npz"
"""The same of the edition before, which encoded pictures at 224 pixels."""


def assert_same(
    vectors: NDArray[np.float32], before: NDArray[np.float32], tolerance: float, *, is_same: bool
) -> None:
    """Compare vectors with those of the same machine architecture, or of another.

    ONNX Runtime's kernels round differently on another architecture: on ARM inputs of 4-bit
    layers to 8 bits. Then vectors are near by their cosines alone.
    """
    assert (vectors * before).sum(1) == pytest.approx(1, abs=1e-4 if is_same else 3e-3)
    if is_same:
        assert vectors == pytest.approx(before, abs=tolerance)


def assert_recorded(encoder: OnnxEncoder, recorded: Path) -> None:
    with np.load(recorded, allow_pickle=False) as expected:
        assert encoder.fingerprint == expected["fingerprint"]
        paths = [FOLDER / f"{name}.webp" for name in expected["photographs"]]
        is_same = platform.machine() == expected["machine"]
        texts = encoder.encode_texts(expected["sentences"].tolist())
        assert_same(texts, expected["text_vectors"], 1e-6, is_same=is_same)
        pictures = encoder.encode_pictures(paths)
        assert_same(pictures, expected["picture_vectors"], 2e-3, is_same=is_same)


def test_shipped_model_gives_the_vectors_of_its_fifth_edition() -> None:
    encoder = polyglance.load(threads=1)
    assert isinstance(encoder, OnnxEncoder)
    assert_recorded(encoder, RECORDED)


def test_exported_at_224_pixels_it_opens_libraries_of_the_fourth_edition(tmp_path: Path) -> None:
    copy_model(None, tmp_path / "model", image_size=224)
    encoder = polyglance.load(tmp_path / "model", threads=1)
    assert isinstance(encoder, OnnxEncoder)
    assert_recorded(encoder, BEFORE)
    made = ModelInfo("polyglance-small", "polyglance-small", encoder.fingerprint, 384, "")
    check_model(made, encoder, "my.polyglance")
    with pytest.raises(PolyglanceError, match="polyglance-small --out MODEL --image-size 224'"):
        check_model(made, shipped := polyglance.load(threads=1), "my.polyglance")
    made = ModelInfo("polyglance-small", "polyglance-small", shipped.fingerprint, 384, "")
    with pytest.raises(PolyglanceError, match="leave out the model, since the library's is the"):
        check_model(made, encoder, "my.polyglance")
    reader = Reader.open(tmp_path / "model", threads=1)
    assert reader.image_size == 256
