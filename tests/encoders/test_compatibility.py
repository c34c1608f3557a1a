"""The shipped model gives the vectors that it gave when it was added."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import polyglance
from polyglance.demo.photographs import FOLDER

RECORDED = Path(__file__).parents[1] / "fixtures" / "third_edition" / "shipped_vectors.npz"
"""Photographs of the demo, sentences in ten languages, and their vectors."""


def test_shipped_model_gives_the_vectors_of_its_third_edition() -> None:
    encoder = polyglance.load(threads=1)
    with np.load(RECORDED, allow_pickle=False) as expected:
        assert encoder.fingerprint == expected["fingerprint"]
        paths = [FOLDER / f"{name}.webp" for name in expected["photographs"]]
        # ONNX Runtime's kernels round differently on another architecture: on ARM inputs of 4-bit
        # layers to 8 bits. Then vectors are near by their cosines alone.
        is_same = platform.machine() == expected["machine"]
        for vectors, before, tolerance in (
            (encoder.encode_texts(expected["sentences"].tolist()), expected["text_vectors"], 1e-6),
            (encoder.encode_pictures(paths), expected["picture_vectors"], 2e-3),
        ):
            assert (vectors * before).sum(1) == pytest.approx(1, abs=1e-4 if is_same else 3e-3)
            if is_same:
                assert vectors == pytest.approx(before, abs=tolerance)
