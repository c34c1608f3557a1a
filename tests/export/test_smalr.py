"""Export of SMALR runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.sentences import SENTENCES
from helpers.small_mmp import MEAN, STD, cosines
from helpers.small_smalr import (
    LANGUAGES,
    SHAPE,
    SIZE,
    backbone_loader,
    export,
    lexicon,
    torch_pictures,
    torch_words,
    untrained,
    word_model,
)
from polyglance.cli import app
from polyglance.encoders import load
from polyglance.encoders.model_folder import FILES, ModelFolder
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.from_run import export_run
from polyglance.export.smalr import open_image_backbone
from polyglance.models.smalr_folder import FeatureInfo, load_smalr, save_smalr
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision import backbone

FIGURES = {"validation": {"average": {"mR": 30.5}}, "test": {"average": {"mR": 30.1}}}


@pytest.fixture
def backbone_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of a backbone that is registered as ``small``."""
    loader = backbone_loader(tmp_path / "backbone")
    monkeypatch.setitem(backbone.LOADERS, "small", loader)
    return tmp_path / "backbone"


@pytest.fixture
def smalr_run(tmp_path: Path, backbone_folder: Path) -> Path:
    """The folder of a SMALR run."""
    weights = file_sha256(backbone_folder / "model.safetensors")
    feature_info = FeatureInfo("small", SIZE, views="ten", weights_sha256=weights)
    words = lexicon()
    save_smalr(
        untrained(SHAPE, words), words, tmp_path / "run" / "words", feature_info=feature_info
    )
    report = {"model": "smalr", "test_time_parameters": 1234, "seconds": 5.0, **FIGURES}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    return tmp_path / "run"


def test_a_run_is_exported(smalr_run: Path, tmp_path: Path) -> None:
    description = export_run(smalr_run, tmp_path / "model", name="mine", version="2", max_length=20)
    assert description == ModelFolder.open(tmp_path / "model").description
    others = {"README.md", "config.json", "preprocessor_config.json"}  # words have no tokenizer
    written = {path.name for path in (tmp_path / "model").iterdir()}
    assert written == {*FILES, "model.json", *others}
    assert (description.name, description.version) == ("mine", "2")
    assert (description.width, description.max_length) == (16, 20)
    assert (description.text, description.languages) == ("words", LANGUAGES)
    how = "in training, ten views a picture, float32"
    assert description.figures == {"measured": how, "test_time_parameters": 1234, **FIGURES}
    assert description.architecture["gru_width"] == SHAPE.gru_width
    assert description.pictures.size == SIZE
    np.testing.assert_allclose(
        [*description.pictures.mean, *description.pictures.std], [*MEAN, *STD], rtol=1e-5
    )

    model, encoder = load_smalr(smalr_run / "words"), load(tmp_path / "model", threads=1)
    numbers = model.lexicon.encode_batch(SENTENCES["de"], "de")
    vectors = encoder.encode_texts(SENTENCES["de"], language="de")
    assert cosines(vectors, torch_words(model, numbers)).min() > 0.9999
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), dtype=np.uint8)
    expected = torch_pictures(model, open_image_backbone(model.feature_info), pixels)
    assert cosines(encoder.encode_pictures(list(pixels)), expected).min() > 0.9999


def test_the_command_detects_a_smalr_run(smalr_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = CliRunner().invoke(app, ["export", str(smalr_run), "--out", str(out), "--name", "mine"])
    assert done.exit_code == 0, done.output
    assert "mine, 16 dimensions, " in done.output
    assert load(out).name == "mine"
    done = CliRunner().invoke(app, ["export", str(smalr_run), "--out", str(out), "--backbone", "x"])
    assert "is not a run of UC2 or M3P; only these take --backbone: leave that out" in str(
        done.exception
    )


def test_export_of_a_run_is_deterministic(smalr_run: Path, tmp_path: Path) -> None:
    first, second = (export_run(smalr_run, tmp_path / name, name="x") for name in ("a", "b"))
    assert first.files == second.files


def test_a_run_without_a_report_is_exported(smalr_run: Path, tmp_path: Path) -> None:
    (smalr_run / "report.json").unlink()
    assert export_run(smalr_run, tmp_path / "model", name="x").figures == {}
    (smalr_run / "report.json").write_text("[")
    with pytest.raises(DataError, match=r"report\.json cannot be read .*: run the recipe again"):
        export_run(smalr_run, tmp_path / "model", name="x")


def test_a_damaged_run_is_refused(smalr_run: Path, tmp_path: Path) -> None:
    (smalr_run / "words" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(DataError, match="is not a trained SMALR model"):
        export_run(smalr_run, tmp_path / "model", name="x")
    assert not (tmp_path / "model").exists()


def test_runs_without_an_exportable_model_are_refused(tmp_path: Path) -> None:
    def refused(run: Path) -> str:
        done = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "model")])
        assert isinstance(done.exception, DataError)
        assert not (tmp_path / "model").exists()
        return str(done.exception)

    # A missing stage of a UC2 run is missing, not a run of another system.
    (tmp_path / "recipe.yaml").write_text("kind: uc2\n")
    for gone in (tmp_path / "gone", tmp_path / "gone" / "further"):
        assert refused(gone).startswith(f"{gone} does not exist: give the folder of a run")
    other = tmp_path / "other" / "run"
    other.mkdir(parents=True)
    (other / "recipe.yaml").write_text("kind: features\n")
    message = refused(other)
    assert message.startswith(f"{other} holds no model that can be exported")
    assert all(name in message for name in ("a photo model", "SMALR", "UC2", "M3P"))


def test_a_vqa_run_needs_no_export(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    hint = f"needs no export: use 'polyglance ask PICTURE QUESTION --model {run / 'model'}'"
    (run / "recipe.yaml").write_text("kind: vqa\n")
    with pytest.raises(DataError) as caught:
        export_run(run, tmp_path / "out", name="x")
    assert str(caught.value).endswith(hint)
    (run / "recipe.yaml").unlink()
    (run / "model" / "config.json").write_text('{"kind": "vqa"}')
    for folder in (run, run / "model"):
        with pytest.raises(DataError) as caught:
            export_run(folder, tmp_path / "out", name="x")
        assert str(caught.value).endswith(hint)


def test_the_backbone_must_be_that_of_training(backbone_folder: Path) -> None:
    with pytest.raises(PolyglanceError, match="is not recorded"):
        open_image_backbone(FeatureInfo())
    with pytest.raises(PolyglanceError, match="small has changed"):
        open_image_backbone(FeatureInfo("small", weights_sha256="0" * 64))
    with pytest.raises(PolyglanceError, match="no backbone called 'vgg'"):
        open_image_backbone(FeatureInfo("vgg"))
    opened = open_image_backbone(FeatureInfo("small", 96, resize="centre", views="ten"))
    assert (opened.preprocessing.size, opened.preprocessing.resize) == (96, "centre")


def test_the_table_takes_one_byte_per_value(tmp_path: Path) -> None:
    model = word_model(tmp_path / "run")
    folder = export(model, tmp_path / "model")
    sentences = sum(p.numel() for p in model.text.sentences.parameters())
    content = model.text.table.numel() + 4 * len(model.text.table) + 2 * sentences
    assert content < (folder / "text.onnx").stat().st_size < content + 5000
