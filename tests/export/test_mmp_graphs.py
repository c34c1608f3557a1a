"""MMP's graphs agree with the modules they were written from."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from helpers.small_mmp import (
    TEXTS,
    cosines,
    pixel_values,
    small_model,
    tokenizer,
    torch_pictures,
    torch_texts,
)
from polyglance.encoders.half_precision import without_float16
from polyglance.export import layers
from polyglance.export.to_torch import load_torch, read_compact_state


@pytest.fixture
def unrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round only stored weights, so that graph and module agree closely."""
    monkeypatch.setattr(layers, "_EIGHT_BIT_INPUT", layers._FLOAT_INPUT)


@cache
def session(path: Path) -> Any:
    """Open a graph in float32."""
    content = without_float16(path.read_bytes())
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def run(path: Path, **inputs: Any) -> Any:
    return session(path).run(None, inputs)


def text_vectors(folder: Path, ids: list[list[int]], order: Any, padding: int = 1) -> Any:
    """Run the graph on a batch padded with an arbitrary row."""
    lengths = np.array([len(one) for one in ids])
    rows = np.full((len(ids), lengths.max() + padding), 17)
    for row, one in enumerate(ids):
        rows[row, : len(one)] = order[one]
    mask = (np.arange(rows.shape[1]) < lengths[:, None]).astype(np.int64)
    return run(folder / "text.onnx", input_ids=rows, attention_mask=mask)[0]


def table_order(folder: Path) -> Any:
    return read_compact_state(folder)["encoder.words.order"]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"text_pooling": "mean"},
    {"text_layer": 2, "frozen_layers": 3, "activation": "relu"},
    {"encoder_width": 128, "text_pooling": "mean", "frequent": 5000},
    {"share_pooling": True, "pooling_layers": 1, "pooling_heads": 2},
]


@pytest.mark.usefixtures("unrounded")
@pytest.mark.parametrize("changes", VARIANTS)
def test_text_agrees_with_torch(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = small_model(**changes).export(tmp_path / "model")
    model, order = load_torch(folder), table_order(folder)
    ids = [tokenizer().encode(text, max_length=40) for text in TEXTS[::7]] + [[0, 2], [0, 9, 2]]
    assert len({len(one) for one in ids}) > 5
    expected = torch_texts(model, ids)
    vectors = text_vectors(folder, ids, order)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert cosines(vectors, expected).min() > 0.99999
    alone = np.concatenate([text_vectors(folder, [one], order, padding=0) for one in ids])
    np.testing.assert_allclose(alone, vectors, atol=1e-4)
    assert cosines(expected[:-1], expected[1:]).max() < 0.99  # texts do differ


@pytest.mark.usefixtures("unrounded")
@pytest.mark.parametrize(
    ("size", "changes"), [(64, {}), (50, {"share_pooling": True}), (96, {"pooling_layers": 1})]
)
def test_pictures_agree_with_torch(tmp_path: Path, size: int, changes: dict[str, Any]) -> None:
    small = small_model(size=size, **changes)
    folder = small.export(tmp_path / "model")
    pixels = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    pixels[1, : size // 2] = 0
    pixels[2] //= 4
    expected = torch_pictures(load_torch(folder), pixels, small.pictures)
    vectors = run(folder / "picture.onnx", pixel_values=pixel_values(pixels, small.pictures))[0]
    assert cosines(vectors, expected).min() > 0.99999
    one = run(folder / "picture.onnx", pixel_values=pixel_values(pixels[1:2], small.pictures))[0]
    np.testing.assert_allclose(one, vectors[1:2], atol=1e-4)
    assert cosines(expected[:-1], expected[1:]).max() < 0.9999


def test_rounding_for_speed_changes_vectors_little(tmp_path: Path) -> None:
    """As exported: inputs of most layers in 8 bits, large kernels in float16."""
    small = small_model(text_pooling="mean")
    folder = small.export(tmp_path / "model")
    model = load_torch(folder)
    ids = [tokenizer().encode(text, max_length=40) for text in TEXTS]
    vectors = text_vectors(folder, ids, table_order(folder))
    assert cosines(vectors, torch_texts(model, ids)).min() > 0.999
    pixels = np.random.default_rng(2).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    vectors = run(folder / "picture.onnx", pixel_values=pixel_values(pixels, small.pictures))[0]
    assert cosines(vectors, torch_pictures(model, pixels, small.pictures)).min() > 0.999
