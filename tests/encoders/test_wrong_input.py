"""Wrong input to an encoder raises one clear error and never gives a wrong vector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polyglance.encoders import Encoder, load
from polyglance.errors import DataError, PolyglanceError

SIZE = 64


def test_a_16_bit_picture_has_the_same_vector_as_file_and_opened(
    encoder: Encoder, tmp_path: Path
) -> None:
    rows, columns = np.mgrid[0:SIZE, 0:SIZE]
    values = {"sixteen.png": rows * 700 + columns * 300, "float.tiff": rows / 9 + columns / 90}
    for name, grey in values.items():
        kind = np.uint16 if name == "sixteen.png" else np.float32
        path = tmp_path / name
        Image.fromarray(grey.astype(kind)).save(path)
        vectors = encoder.encode_pictures([path, Image.open(path)])
        np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([None], "number 0 of the texts is None"),
        (["a dog", b"ein Hund"], "number 1 of the texts is b'ein Hund'"),
        ([["a dog"]], r"number 0 of the texts is \['a dog'\]"),
        ("a dog", "a list, not 'a dog': put it in brackets"),
        (b"a dog", "put it in brackets"),
        (None, "a list, not None"),
        (7, "a list, not 7"),
    ],
)
def test_texts_that_are_not_a_list_of_str_are_refused(
    encoder: Encoder, texts: Any, message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        encoder.encode_texts(texts)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        ([None], "a file, its bytes, an opened picture or pixels, not None"),
        ([b"\x89PNG"], "is not a picture of a known kind"),
        ([b""], "the picture: the file is empty"),
        ([np.zeros((8, 9, 1), np.uint8)], r"RGB or RGBA\), not an array of uint8 \(8, 9, 1\)"),
        ([np.zeros((8, 9, 5), np.uint8)], r"\(8, 9, 5\)"),
        ([np.zeros((0, 9, 3), np.uint8)], r"\(0, 9, 3\)"),
        ([np.zeros((9, 0), np.uint8)], r"\(9, 0\)"),
        ([np.zeros(9, np.uint8)], r"\(9,\)"),
        ([np.zeros((2, 8, 9, 3), np.uint8)], r"\(2, 8, 9, 3\)"),
        ([np.zeros((8, 9, 3), np.float32)], "float32"),
        ([Image.new("RGB", (0, 9))], "0 x 9 pixels is empty"),
        (Image.new("RGB", (9, 9)), "put it in brackets"),
        (np.zeros((8, 9, 3), np.uint8), "put it in brackets"),
        (np.zeros((8, 9), np.uint8), "put it in brackets"),
        ("dog.jpg", "put it in brackets"),
        (Path("dog.jpg"), "put it in brackets"),
        (None, "a list, not None"),
    ],
)
def test_pictures_that_are_not_a_list_are_refused(
    encoder: Encoder, pictures: Any, message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        encoder.encode_pictures(pictures)


def test_an_opened_truncated_file_is_refused(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "whole.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(PolyglanceError, match="cannot be decoded"):
        encoder.encode_pictures([Image.open(path)])


def test_a_batch_of_pixels_is_a_list(encoder: Encoder) -> None:
    many = np.random.default_rng(0).integers(0, 255, (3, 20, 30, 3), np.uint8)
    np.testing.assert_array_equal(
        encoder.encode_pictures(many),  # type: ignore[arg-type]
        encoder.encode_pictures(list(many)),
    )


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain.update(files=None), "files: expected a mapping, found null"),
        (lambda plain: plain["files"].update({"text.onnx": 5}), r"files\.text\.onnx: expected"),
        (lambda plain: plain.update(files={}), "checksum is wrong"),
        (lambda plain: plain.update(width="wide"), "width: expected a whole number"),
        (lambda plain: plain.update(width=0), "width is 0: give 1 or more"),
        (lambda plain: plain.update(width=63), "has a width of 64 and its description says 63"),
        (lambda plain: plain.pop("width"), "width: is missing"),
        (lambda plain: plain.update(colour="red"), "colour: is not a known setting"),
        (lambda plain: plain["pictures"].update(size=0), "size is 0: give 1 or more"),
        (
            lambda plain: plain["pictures"].update(size=65),
            "a picture size of 64 and .* says 65",
        ),
        (lambda plain: plain["pictures"].update(mean=5), r"pictures\.mean: expected a list of 3"),
        (lambda plain: plain["pictures"].update(resize="no"), r"pictures\.resize: expected"),
        (lambda plain: plain.update(pictures=None), "takes either pictures or features"),
        (lambda plain: plain.update(longest=1), "max_length is 1: give 3 or more"),
        (lambda plain: plain.update(longest=4000), "does not compute as its description says"),
        (lambda plain: plain.update(format="new"), "does not describe a model"),
        (lambda plain: plain.clear(), "does not describe a model .'format'"),
    ],
)
def test_a_wrong_description_is_refused(
    folder: Path, tmp_path: Path, change: Change, message: str
) -> None:
    wrong = tmp_path / "model"
    shutil.copytree(folder, wrong)
    plain = json.loads((wrong / "model.json").read_text())
    change(plain)
    (wrong / "model.json").write_text(json.dumps(plain))

    def use() -> None:
        wrong_encoder = load(wrong, threads=1)
        wrong_encoder.encode_pictures([np.zeros((9, 9, 3), np.uint8)])
        wrong_encoder.encode_texts(["a dog " * 500])

    with pytest.raises(DataError, match=message) as caught:
        use()
    assert "install Polyglance again, or export the model again" in str(caught.value)
    assert "\n" not in str(caught.value)
