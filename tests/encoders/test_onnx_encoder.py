"""The ONNX encoder of an exported model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import polyglance
from helpers.small_mmp import TEXTS, cosines, small_model, tokenizer, torch_pictures, torch_texts
from polyglance.encoders import Encoder, load
from polyglance.encoders.model_folder import PICTURE, TEXT, VOCABULARY, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.to_torch import load_torch

SIZE = 64


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    """A non-square picture with different corners."""
    rows, columns = np.mgrid[0:150, 0:200]
    pixels = np.stack([rows * 1.7, columns * 1.2, (rows * columns) % 255], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def test_the_model_is_an_encoder(encoder: Encoder, folder: Path) -> None:
    assert isinstance(encoder, Encoder)
    assert (encoder.name, encoder.width) == ("small", 64)
    assert polyglance.load(str(folder)).name == "small"


def test_text_vectors_agree_with_torch(encoder: Encoder, folder: Path) -> None:
    vectors = encoder.encode_texts(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (100, 64)
    ids = tokenizer().encode_batch(TEXTS, max_length=40)
    assert len({len(one) for one in ids}) > 10
    assert cosines(vectors, torch_texts(load_torch(folder), ids)).min() > 0.999


def test_a_text_vector_does_not_depend_on_its_batch(encoder: Encoder) -> None:
    texts = [TEXTS[3], "", "a", " ".join(TEXTS[:9]), *TEXTS]  # several batches, all lengths
    together = encoder.encode_texts(texts)
    alone = np.concatenate([encoder.encode_texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_a_long_text_is_truncated(encoder: Encoder, folder: Path) -> None:
    text = " ".join(TEXTS)
    ids = tokenizer().encode(text, max_length=40)
    assert len(ids) == 40
    vectors = encoder.encode_texts([text])
    assert cosines(vectors, torch_texts(load_torch(folder), [ids])).min() > 0.999


def test_picture_vectors_agree_with_torch(
    encoder: Encoder, folder: Path, picture: Image.Image
) -> None:
    """As in training: squashed with Pillow's bicubic filter; global feature, then cells."""
    many = [picture.rotate(turn) for turn in range(0, 360, 30)]  # several batches
    squares = [one.resize((SIZE, SIZE), Image.Resampling.BICUBIC, reducing_gap=3) for one in many]
    settings = small_model(size=SIZE).pictures
    expected = torch_pictures(
        load_torch(folder), np.stack([np.asarray(s) for s in squares]), settings
    )
    assert cosines(encoder.encode_pictures(many), expected).min() > 0.999
    assert cosines(expected[:1], expected[5:6])[0] < 0.9999


def test_a_picture_has_the_same_vector_in_every_form(
    encoder: Encoder, picture: Image.Image, tmp_path: Path
) -> None:
    path = tmp_path / "picture.png"
    picture.save(path)
    turned = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees for display
    picture.transpose(Image.Transpose.ROTATE_90).save(turned, exif=exif)
    see_through = picture.convert("RGBA")
    see_through.putalpha(Image.new("L", picture.size, 255))
    forms = [picture, path, str(path), path.read_bytes(), np.asarray(picture)]
    forms += [turned, turned.read_bytes(), Image.open(turned), see_through]
    vectors = encoder.encode_pictures(forms)
    np.testing.assert_allclose(vectors, np.repeat(vectors[:1], len(forms), 0), atol=1e-5)
    grey = encoder.encode_pictures([picture.convert("L"), np.asarray(picture.convert("L"))])
    np.testing.assert_allclose(grey[0], grey[1], atol=1e-5)
    nothing = Image.new("RGBA", (9, 9), (0, 0, 0, 0))  # transparent parts are white, as in files
    blank = encoder.encode_pictures([nothing, Image.new("RGB", (9, 9), "white")])
    np.testing.assert_allclose(blank[0], blank[1], atol=1e-5)


def test_pictures_in_several_threads_have_the_vectors_of_single_ones(
    folder: Path, picture: Image.Image
) -> None:
    pictures = [picture.rotate(angle) for angle in range(0, 360, 60)]
    encoder = load(folder, threads=3)
    together = encoder.encode_pictures(pictures)
    alone = np.concatenate([encoder.encode_pictures([picture]) for picture in pictures])
    assert np.abs(together - alone).max() < 1e-5
    assert len(np.unique(together.round(4), axis=0)) == len(pictures)


def test_empty_lists_give_empty_arrays(encoder: Encoder) -> None:
    for vectors in (encoder.encode_texts([]), encoder.encode_pictures([])):
        assert vectors.shape == (0, 64)
        assert vectors.dtype == np.float32


def test_graphs_are_loaded_when_first_needed(folder: Path, picture: Image.Image) -> None:
    encoder = load(folder)
    assert isinstance(encoder, OnnxEncoder)
    encoder.encode_texts(["a dog"])
    assert "_picture" not in vars(encoder)
    other = load(folder)
    other.encode_pictures([picture])
    assert not {"_text", "_tokenizer"} & set(vars(other))


def test_invalid_arguments_are_refused(encoder: Encoder, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PolyglanceError, match="brackets"):
        encoder.encode_texts("a dog")
    with pytest.raises(PolyglanceError, match="brackets"):
        encoder.encode_pictures("dog.jpg")
    with pytest.raises(PolyglanceError, match=r"dog\.jpg"):
        encoder.encode_pictures([tmp_path / "dog.jpg"])
    with pytest.raises(PolyglanceError, match="uint8"):
        encoder.encode_pictures([np.zeros((8, 8, 3))])  # type: ignore[list-item]
    with pytest.raises(PolyglanceError, match="no model 'polyglance-huge'"):
        load("polyglance-huge")
    with pytest.raises(PolyglanceError, match="threads"):
        load(folder, threads=0)


@pytest.mark.parametrize(("given", "set_to"), [("3", 3), ("0", 0), ("many", 0)])
def test_threads_are_those_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, set_to: int
) -> None:
    """0 is ONNX Runtime's own choice."""
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    for threads, expected in ((None, set_to), (2, 2)):
        session = OnnxEncoder(ModelFolder.open(folder), threads)._text_session
        assert session.get_session_options().intra_op_num_threads == expected


@pytest.mark.parametrize("name", [TEXT, PICTURE, VOCABULARY, "model.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "flipped"])
def test_a_damaged_folder_is_refused(
    folder: Path, tmp_path: Path, picture: Image.Image, name: str, damage: str
) -> None:
    broken = tmp_path / "model"
    shutil.copytree(folder, broken)
    path = broken / name
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        content[len(content) // 2] ^= 0x80
        path.write_bytes(content)
    else:
        path.write_bytes(content[: 0 if damage == "empty" else len(content) // 2])

    def use() -> None:
        damaged = load(broken)
        damaged.encode_texts(["a dog"])
        damaged.encode_pictures([picture])

    with pytest.raises(DataError, match="install Polyglance again, or export the model again"):
        use()


def test_a_newer_format_is_refused(folder: Path, tmp_path: Path) -> None:
    newer = tmp_path / "model"
    shutil.copytree(folder, newer)
    plain = json.loads((newer / "model.json").read_text())
    (newer / "model.json").write_text(json.dumps(plain | {"format": 99}))
    with pytest.raises(DataError, match="upgrade"):
        load(newer)
