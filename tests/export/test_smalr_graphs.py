"""SMALR's graphs agree with the modules they were written from."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from helpers.small_mmp import cosines, pixel_values
from helpers.small_smalr import (
    SHAPE,
    export,
    small_backbone,
    torch_pictures,
    torch_words,
    untrained,
    word_model,
)
from polyglance.encoders.half_precision import without_float16
from polyglance.encoders.model_folder import PICTURE, TEXT
from polyglance.errors import PolyglanceError
from polyglance.export.smalr import ImageBackbone
from polyglance.export.to_torch import load_torch
from polyglance.models.smalr import SMALRConfig
from polyglance.models.smalr_folder import SMALRFolder
from polyglance.nn.compression import dequantise_8bit, quantise_8bit
from polyglance.vision import resnet


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SMALRFolder:
    return word_model(tmp_path_factory.mktemp("run") / "words")


@pytest.fixture(scope="module")
def folder(model: SMALRFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(model, tmp_path_factory.mktemp("exported") / "model")


def run(path: Path, **inputs: Any) -> Any:
    content = without_float16(path.read_bytes())  # in float32, as the modules compute
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def sentence_vectors(folder: Path, model: SMALRFolder, numbers: list[list[int]], pad: int) -> Any:
    """Run the graph on a batch padded with the row ``pad``."""
    lengths = np.array([len(one) for one in numbers])
    rows = np.full((len(numbers), max(1, lengths.max()) + 2), pad)
    for row, one in enumerate(numbers):
        rows[row, : len(one)] = model.text.slots[one].numpy()
    mask = (np.arange(rows.shape[1]) < lengths[:, None]).astype(np.int64)
    return run(folder / TEXT, input_ids=rows, attention_mask=mask)


def sample_sentences(model: SMALRFolder) -> list[list[int]]:
    """Random words of the lexicon: one sentence of each length to 12, longer ones, one empty."""
    random = np.random.default_rng(3)
    lengths = [*range(1, 13), 33, 64, 0, 7]
    return [random.integers(2, len(model.lexicon), length).tolist() for length in lengths]


def test_sentences_of_all_lengths_agree_with_torch(model: SMALRFolder, folder: Path) -> None:
    numbers = sample_sentences(model)
    assert len(set(model.text.slots.tolist())) < len(model.text.slots)  # some words share a token
    expected = torch_words(model, numbers)
    vectors = sentence_vectors(folder, model, numbers, pad=5)
    assert cosines(vectors, expected).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(sentence_vectors(folder, model, numbers, pad=9), vectors, atol=1e-6)
    alone = [sentence_vectors(folder, model, [one], pad=2) for one in numbers]
    np.testing.assert_allclose(np.concatenate(alone), vectors, atol=1e-5)
    assert cosines(expected[:-1], expected[1:]).max() < 0.99  # sentences do differ


def test_only_weights_in_the_file_are_rounded(model: SMALRFolder, folder: Path) -> None:
    """With torch's table rounded the same way, hardly a difference remains."""
    numbers = sample_sentences(model)
    text = model.text
    table = text.table
    try:
        text.table = dequantise_8bit(*quantise_8bit(table))
        expected = torch_words(model, numbers)
    finally:
        text.table = table
    assert cosines(sentence_vectors(folder, model, numbers, pad=0), expected).min() > 0.99999


def test_a_sentence_without_words_agrees_with_torch(model: SMALRFolder, folder: Path) -> None:
    expected = torch_words(model, [[]])
    alone = sentence_vectors(folder, model, [[]], pad=3)
    beside = sentence_vectors(folder, model, [[4, 5, 6], []], pad=3)[1:]
    for vectors in (alone, beside):
        assert cosines(vectors, expected).min() > 0.99999


def narrow_resnet(monkeypatch: pytest.MonkeyPatch, last: int) -> ImageBackbone:
    """A shallow, narrow ResNet with random weights."""
    monkeypatch.setattr(resnet, "_STAGES", ((2, 8), (1, 8), (2, 16), (1, last // 4)))
    torch.manual_seed(2)
    network = resnet.Network().eval().requires_grad_(False)
    return ImageBackbone(network, replace(small_backbone().preprocessing, std=(1.0, 1.0, 1.0)))


def pictures(size: int) -> NDArray[np.uint8]:
    pixels = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    pixels[1, : size // 2] = 0
    pixels[2] //= 4
    return pixels


@pytest.mark.parametrize("kind", ["efficientnet", "resnet"])
@pytest.mark.parametrize("size", [64, 50])
def test_pictures_agree_with_torch(
    model: SMALRFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int
) -> None:
    backbone = small_backbone() if kind == "efficientnet" else narrow_resnet(monkeypatch, 64)
    backbone = ImageBackbone(backbone.network, replace(backbone.preprocessing, size=size))
    folder = export(model, tmp_path / "model", backbone)
    pixels = pictures(size)
    expected = torch_pictures(model, backbone, pixels)
    vectors = run(folder / PICTURE, pixel_values=pixel_values(pixels, backbone.preprocessing))
    assert cosines(vectors, expected).min() > 0.9999
    one = run(folder / PICTURE, pixel_values=pixel_values(pixels[1:2], backbone.preprocessing))
    np.testing.assert_allclose(one, vectors[1:2], atol=1e-4)
    assert cosines(expected[:-1], expected[1:]).max() < 0.9999


def test_the_paper_s_shape_needs_seven_million_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the table and the image network, which the paper does not count."""
    model = word_model(tmp_path / "run", config=SMALRConfig(own_words=30))
    folder = export(model, tmp_path / "model", narrow_resnet(monkeypatch, 2048))
    counted = 0
    for file in (TEXT, PICTURE):
        for tensor in onnx.load(folder / file).graph.initializer:  # constants begin with a slash
            others = ("/", "words.", "image_backbone.")
            if not tensor.name.startswith(others) and not tensor.name.endswith(".scales"):
                counted += math.prod(tensor.dims)
    batch_norm = 2 * 2048  # folded into the layer before it
    assert counted == untrained(model.config, model.lexicon).num_test_time_parameters() - batch_norm
    assert 7_000_000 < counted < 7_150_000


def test_unsupported_models_are_refused(model: SMALRFolder, tmp_path: Path) -> None:
    parallel = word_model(tmp_path / "run", config=replace(SHAPE, branches="language"))
    with pytest.raises(PolyglanceError, match="a sentence branch per language"):
        export(parallel, tmp_path / "model")
    strange = ImageBackbone(torch.nn.Identity(), small_backbone().preprocessing)
    with pytest.raises(PolyglanceError, match="Identity cannot be exported"):
        export(model, tmp_path / "model", strange)
    assert not (tmp_path / "model").exists()


def test_a_smalr_folder_is_not_loaded_into_torch(folder: Path) -> None:
    with pytest.raises(PolyglanceError, match="holds a model of words"):
        load_torch(folder)
