"""Model folders of earlier formats open as they did, and convert to the newest one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyglance
from helpers.rounding import ROUNDING
from polyglance.encoders.model_folder import FORMAT, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.export.copy_model import copy_model

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("version", [2, 3])
def test_a_folder_of_an_earlier_format_gives_the_same_vectors(version: int) -> None:
    folder = FIXTURES / f"model_format_{version}"
    assert ModelFolder.open(folder).description.format == version < FORMAT
    encoder = polyglance.load(folder, threads=1)
    assert isinstance(encoder, OnnxEncoder)
    with np.load(folder / "expected.npz", allow_pickle=False) as expected:
        assert encoder.fingerprint == expected["fingerprint"]
        texts = encoder.encode_texts(expected["texts"].tolist())
        assert texts == pytest.approx(expected["text_vectors"], abs=ROUNDING)
        if "pixels" in expected:
            pictures = encoder.encode_pictures(list(expected["pixels"]))
            assert pictures == pytest.approx(expected["picture_vectors"], abs=2 * ROUNDING)
        else:
            features = encoder.encode_features(list(expected["features"]))
            assert features == pytest.approx(expected["feature_vectors"], abs=1e-3)


@pytest.mark.parametrize("version", [2, 3])
def test_a_copy_has_the_newest_format_and_the_same_vectors(version: int, tmp_path: Path) -> None:
    folder = FIXTURES / f"model_format_{version}"
    copy_model(folder, tmp_path / "copy")
    assert ModelFolder.open(tmp_path / "copy").description.format == FORMAT
    old, new = (polyglance.load(path, threads=1) for path in (folder, tmp_path / "copy"))
    assert isinstance(old, OnnxEncoder)
    assert isinstance(new, OnnxEncoder)
    assert new.fingerprint == old.fingerprint  # libraries stay valid
    assert (tmp_path / "copy" / "tokenizer.json").is_file()
    with np.load(folder / "expected.npz", allow_pickle=False) as expected:
        texts = expected["texts"].tolist()
        np.testing.assert_array_equal(new.encode_texts(texts), old.encode_texts(texts))
        if "pixels" in expected:
            pixels = list(expected["pixels"])
            np.testing.assert_array_equal(new.encode_pictures(pixels), old.encode_pictures(pixels))
