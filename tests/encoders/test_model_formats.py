"""Model folders of earlier formats open as they did, and convert to the newest one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import polyglance
from helpers.rounding import ROUNDING
from polyglance.cli import app
from polyglance.demo.photographs import FOLDER
from polyglance.encoders.model_folder import FORMAT, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.reader import Reader
from polyglance.errors import PolyglanceError
from polyglance.export.copy_model import copy_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
BICUBIC = Image.Resampling.BICUBIC


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


def test_a_copy_at_another_image_size_is_another_model(tmp_path: Path) -> None:
    """Its vectors of pictures are those that the reader's own path gives at that size."""
    done = CliRunner().invoke(app, ["export", "polyglance-small", "--out", str(tmp_path / "small"),
                                    "--image-size", "160"])  # fmt: skip
    assert done.exit_code == 0, done.output
    small, shipped = polyglance.load(tmp_path / "small", threads=1), polyglance.load(threads=1)
    assert isinstance(small, OnnxEncoder)
    assert isinstance(shipped, OnnxEncoder)
    assert small.folder.description.pictures == replace(
        shipped.folder.description.pictures, size=160
    )
    assert small.fingerprint != shipped.fingerprint
    assert small.calibration is None
    assert shipped.calibration is not None
    reader = Reader.open(tmp_path / "small", threads=1)
    photo = FOLDER / "coffee.webp"
    [encoded] = reader.encode_images([photo])  # at the reader's 256 pixels
    before, [after] = shipped.encode_pictures([photo]), small.encode_pictures([photo])
    assert encoded.vector @ before[0] == pytest.approx(1, abs=1e-4)
    assert encoded.vector @ after < 0.99
    np.testing.assert_array_equal(small.encode_texts(["a cup"]), shipped.encode_texts(["a cup"]))
    squares = [np.asarray(Image.open(photo).convert("RGB").resize((160, 160), BICUBIC))]
    assert small.encode_pictures(squares)[0] @ after > 0.95


def test_a_resized_copy_replaces_what_belonged_to_the_model_of_before(tmp_path: Path) -> None:
    out = tmp_path / "model"
    copy_model(None, out)
    shipped = (out / "README.md").read_text(encoding="utf-8")
    (out / "notes.txt").write_text("mine")
    copy_model(None, out, 160)
    assert not (out / "calibration.npz").exists()
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card != shipped
    assert "256" not in card
    assert (out / "notes.txt").read_text() == "mine"
    (out / "README.md").write_text("My own card.")
    copy_model(None, out, 192)
    assert (out / "README.md").read_text() == "My own card."


def test_an_image_size_that_cannot_be(tmp_path: Path) -> None:
    for source, size, reason in (
        ("polyglance-small", "16", "an image size of 16 is too small: give 64 to 1024 pixels"),
        ("polyglance-small", "4096", "an image size of 4096 is too large: give 64 to 1024 pixels"),
        (str(FIXTURES / "model_format_2"), "160", "of an earlier format"),
        (str(FIXTURES / "model_format_3"), "160", "takes features, not pictures"),
    ):
        done = CliRunner().invoke(
            app, ["export", source, "--out", str(tmp_path / "x"), "--image-size", size]
        )
        assert isinstance(done.exception, PolyglanceError), done.output
        assert reason in str(done.exception)
    assert not (tmp_path / "x").exists()
