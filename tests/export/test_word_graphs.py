"""The graphs of word models against the modules they were written from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from polyglance.encoders.folder import PICTURE, TEXT
from polyglance.errors import PolyglanceError
from polyglance.export.graph import stored_weights
from polyglance.export.reading import load_torch
from polyglance.export.words import Eyes
from polyglance.models.smalr import SMALRConfig
from polyglance.models.word_folder import WordFolder
from polyglance.nn.compression import eight_bits, from_eight_bits
from polyglance.vision import resnet
from small_models import cosines
from small_words import (
    SHAPE,
    export,
    small_eyes,
    torch_seen,
    torch_words,
    untrained,
    word_model,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> WordFolder:
    return word_model(tmp_path_factory.mktemp("run") / "words")


@pytest.fixture(scope="module")
def folder(model: WordFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(model, tmp_path_factory.mktemp("exported") / "model")


def run(path: Path, **inputs: Any) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def sentence_vectors(folder: Path, model: WordFolder, numbers: list[list[int]], pad: int) -> Any:
    """What the graph makes of a batch, with the row ``pad`` in the place of padding."""
    lengths = np.array([len(one) for one in numbers])
    places = np.full((len(numbers), max(1, lengths.max()) + 2), pad)
    for row, one in enumerate(numbers):
        places[row, : len(one)] = model.text.slots[one].numpy()
    return run(folder / TEXT, places=places, lengths=lengths)


def sentences_of(model: WordFolder) -> list[list[int]]:
    """Words drawn from the whole lexicon: one of each length to 12, some longer, one empty."""
    random = np.random.default_rng(3)
    lengths = [*range(1, 13), 33, 64, 0, 7]
    return [random.integers(2, len(model.lexicon), length).tolist() for length in lengths]


def test_sentences_of_all_lengths_agree_with_torch(model: WordFolder, folder: Path) -> None:
    numbers = sentences_of(model)
    assert len(set(model.text.slots.tolist())) < len(model.text.slots)  # some words share a token
    expected = torch_words(model, numbers)
    found = sentence_vectors(folder, model, numbers, pad=5)
    assert cosines(found, expected).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(sentence_vectors(folder, model, numbers, pad=9), found, atol=1e-6)
    alone = [sentence_vectors(folder, model, [one], pad=2) for one in numbers]
    np.testing.assert_allclose(np.concatenate(alone), found, atol=1e-5)
    assert cosines(expected[:-1], expected[1:]).max() < 0.99  # sentences do differ


def test_only_the_stored_numbers_are_rounded(model: WordFolder, folder: Path) -> None:
    """With torch's table rounded the same way hardly a difference is left."""
    numbers = sentences_of(model)
    text = model.text
    whole = text.table
    try:
        text.table = from_eight_bits(*eight_bits(whole))
        expected = torch_words(model, numbers)
    finally:
        text.table = whole
    assert cosines(sentence_vectors(folder, model, numbers, pad=0), expected).min() > 0.99999


def test_a_sentence_of_no_word_is_what_torch_makes_of_it(model: WordFolder, folder: Path) -> None:
    expected = torch_words(model, [[]])
    alone = sentence_vectors(folder, model, [[]], pad=3)
    beside = sentence_vectors(folder, model, [[4, 5, 6], []], pad=3)[1:]
    for found in (alone, beside):
        assert cosines(found, expected).min() > 0.99999


def narrow_resnet(monkeypatch: pytest.MonkeyPatch, last: int) -> Eyes:
    """ResNet-50's parts, fewer and narrower, with random weights."""
    monkeypatch.setattr(resnet, "_STAGES", ((2, 8), (1, 8), (2, 16), (1, last // 4)))
    torch.manual_seed(2)
    network = resnet.Network().eval().requires_grad_(False)
    return Eyes(network, replace(small_eyes().pictures, std=(1.0, 1.0, 1.0)))


def pictures(size: int) -> NDArray[np.uint8]:
    pixels = np.random.default_rng(1).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    pixels[1, : size // 2] = 0
    pixels[2] //= 4
    return pixels


@pytest.mark.parametrize("kind", ["efficientnet", "resnet"])
@pytest.mark.parametrize("size", [64, 50])
def test_pictures_agree_with_torch(
    model: WordFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int
) -> None:
    eyes = small_eyes() if kind == "efficientnet" else narrow_resnet(monkeypatch, 64)
    eyes = Eyes(eyes.network, replace(eyes.pictures, size=size))
    folder = export(model, tmp_path / "model", eyes)
    pixels = pictures(size)
    expected = torch_seen(model, eyes, pixels)
    found = run(folder / PICTURE, pixels=pixels)
    assert cosines(found, expected).min() > 0.9999
    one = run(folder / PICTURE, pixels=pixels[1:2])
    np.testing.assert_allclose(one, found[1:2], atol=1e-4)
    assert cosines(expected[:-1], expected[1:]).max() < 0.9999


def test_the_paper_s_shape_needs_seven_million_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the table and the network over pictures, neither of which the paper counts."""
    model = word_model(tmp_path / "run", config=SMALRConfig(own_words=30))
    folder = export(model, tmp_path / "model", narrow_resnet(monkeypatch, 2048))
    counted = 0
    for file in (TEXT, PICTURE):
        for name, value in stored_weights(onnx.load(folder / file)).items():
            if not name.startswith(("words.", "eyes.")) and not name.endswith(".scales"):
                counted += value.size
    batch_norm = 2 * 2048  # which became part of the layer before it
    assert counted == untrained(model.config, model.lexicon).test_time_parameters() - batch_norm
    assert 7_000_000 < counted < 7_150_000


def test_what_cannot_be_exported_is_one_sentence(model: WordFolder, tmp_path: Path) -> None:
    parallel = word_model(tmp_path / "run", config=replace(SHAPE, branches="language"))
    with pytest.raises(PolyglanceError, match="a sentence branch for each language"):
        export(parallel, tmp_path / "model")
    strange = Eyes(torch.nn.Identity(), small_eyes().pictures)
    with pytest.raises(PolyglanceError, match="Identity cannot be exported"):
        export(model, tmp_path / "model", strange)
    assert not (tmp_path / "model").exists()


def test_a_folder_of_words_is_not_read_back(folder: Path) -> None:
    with pytest.raises(PolyglanceError, match="holds a model of words"):
        load_torch(folder)
