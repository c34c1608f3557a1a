"""Models in our own format on torch, as on a GPU: the vectors of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import polyglance
from helpers.rounding import ON_ARM
from helpers.small_mmp import TEXTS, cosines
from helpers.small_smalr import export, word_model
from polyglance.demo.photographs import photographs
from polyglance.encoders import sessions
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import PolyglanceError


def on_torch(folder: Path | None) -> OnnxEncoder:
    return OnnxEncoder(ModelFolder.open(folder), device="cpu", runtime="torch")


def test_the_shipped_model_on_torch_gives_the_vectors_of_onnx_runtime() -> None:
    torch_encoder, encoder = on_torch(None), polyglance.load(threads=1)
    texts = ["a dog in the snow", "雪の中の犬", "x", "زرافتان بين الأشجار", "long " * 40]
    found = cosines(torch_encoder.encode_texts(texts), encoder.encode_texts(texts)).min()
    assert found > (0.998 if ON_ARM else 0.999)
    pictures = [photo.path for photo in photographs()[::60]]
    vectors = torch_encoder.encode_pictures(pictures)
    assert cosines(vectors, encoder.encode_pictures(pictures)).min() > 0.999
    assert torch_encoder.fingerprint == encoder.fingerprint


def test_models_of_all_formats_run_on_torch(folder: Path) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures"
    pixels = list(np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), dtype=np.uint8))
    for model in (folder, fixtures / "model_format_2"):
        torch_encoder, encoder = on_torch(model), polyglance.load(model, threads=1)
        texts = torch_encoder.encode_texts(TEXTS[::9])
        assert cosines(texts, encoder.encode_texts(TEXTS[::9])).min() > 0.99
        pictures = torch_encoder.encode_pictures(pixels)
        assert cosines(pictures, encoder.encode_pictures(pixels)).min() > 0.99
    features = list(np.random.default_rng(0).normal(size=(2, 3, 12)).astype(np.float32))
    torch_encoder = on_torch(fixtures / "model_format_3")
    taken = torch_encoder.feature_input
    assert taken is not None
    features = [row[:, : taken.width] for row in np.tile(features, (1, 1, 99))]
    expected = OnnxEncoder(ModelFolder.open(fixtures / "model_format_3")).encode_features(features)
    assert cosines(torch_encoder.encode_features(features), expected).min() > 0.9999


def test_cuda_is_onnx_runtime_s_where_it_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolyglanceError, match="the device 'cuda' cannot be used here"):
        polyglance.load(device="cuda")
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    encoder = polyglance.load(device="cuda:1")
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.runtime == "onnxruntime"
    assert sessions.providers_for("cuda:1") == [
        ("CUDAExecutionProvider", {"device_id": "1"}),
        "CPUExecutionProvider",
    ]


def test_a_model_of_other_operators_is_refused(tmp_path: Path) -> None:
    model = export(word_model(tmp_path / "words"), tmp_path / "model")
    with pytest.raises(PolyglanceError, match="torch does not run this model's GRU for us"):
        on_torch(model).encode_texts(["a dog"], language="en")
