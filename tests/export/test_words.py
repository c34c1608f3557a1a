"""From the run of a word model to its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from polyglance.cli import app
from polyglance.encoders import load
from polyglance.encoders.folder import FILES, ModelFolder
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.from_run import export_run
from polyglance.export.words import open_eyes
from polyglance.models.word_folder import SeenBy, load_words, save_words
from polyglance.vision import backbone
from polyglance.weights import sha256_of
from sentences import SENTENCES
from small_models import MEAN, STD, cosines
from small_words import (
    LANGUAGES,
    SHAPE,
    SIZE,
    backbone_loader,
    export,
    lexicon,
    torch_seen,
    torch_words,
    untrained,
    word_model,
)

FIGURES = {"validation": {"average": {"mR": 30.5}}, "test": {"average": {"mR": 30.1}}}


@pytest.fixture
def eyes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the weights of the backbone called small lie."""
    loader = backbone_loader(tmp_path / "eyes")
    monkeypatch.setitem(backbone.LOADERS, "small", loader)
    return tmp_path / "eyes"


@pytest.fixture
def a_run(tmp_path: Path, eyes_folder: Path) -> Path:
    """The folder that training by a recipe of kind words leaves."""
    weights = sha256_of(eyes_folder / "model.safetensors")
    seen_by = SeenBy("small", SIZE, views="ten", weights_sha256=weights)
    words = lexicon()
    save_words(untrained(SHAPE, words), words, tmp_path / "run" / "words", seen_by=seen_by)
    report = {"model": "smalr", "test_time_parameters": 1234, "seconds": 5.0, **FIGURES}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    return tmp_path / "run"


def test_a_run_is_exported(a_run: Path, tmp_path: Path) -> None:
    made = export_run(a_run, tmp_path / "model", name="mine", version="2", longest=20)
    assert made == ModelFolder.open(tmp_path / "model").description
    assert {path.name for path in (tmp_path / "model").iterdir()} == {*FILES, "model.json"}
    assert (made.name, made.version, made.width, made.longest) == ("mine", "2", 16, 20)
    assert (made.text, made.languages) == ("words", LANGUAGES)
    how = "in training, ten views a picture, float32"
    assert made.figures == {"measured": how, "test_time_parameters": 1234, **FIGURES}
    assert made.architecture["gru_width"] == SHAPE.gru_width
    assert made.pictures.size == SIZE
    np.testing.assert_allclose([*made.pictures.mean, *made.pictures.std], [*MEAN, *STD], rtol=1e-5)

    model, encoder = load_words(a_run / "words"), load(tmp_path / "model", threads=1)
    numbers = model.lexicon.encode_batch(SENTENCES["de"], "de")
    found = encoder.encode_texts(SENTENCES["de"], language="de")
    assert cosines(found, torch_words(model, numbers)).min() > 0.9999
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIZE, SIZE, 3), dtype=np.uint8)
    expected = torch_seen(model, open_eyes(model.seen_by), pixels)
    assert cosines(encoder.encode_pictures(list(pixels)), expected).min() > 0.9999


def test_the_command_sees_which_kind_of_run_it_is(a_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    done = CliRunner().invoke(app, ["export", str(a_run), "--out", str(out), "--name", "mine"])
    assert done.exit_code == 0, done.output
    assert "mine, 16 wide, " in done.output
    assert load(out).name == "mine"
    done = CliRunner().invoke(app, ["export", str(a_run), "--out", str(out), "--features", "x"])
    assert "is no run of UC2 or M3P, which alone take --features: leave that out" in str(
        done.exception
    )


def test_the_same_run_makes_the_same_bytes(a_run: Path, tmp_path: Path) -> None:
    first, second = (export_run(a_run, tmp_path / name, name="x") for name in ("a", "b"))
    assert first.files == second.files


def test_a_run_that_measured_nothing_is_exported_as_well(a_run: Path, tmp_path: Path) -> None:
    (a_run / "report.json").unlink()
    assert export_run(a_run, tmp_path / "model", name="x").figures == {}
    (a_run / "report.json").write_text("[")
    with pytest.raises(DataError, match=r"report\.json cannot be read .*: run the recipe again"):
        export_run(a_run, tmp_path / "model", name="x")


def test_a_damaged_run_is_one_sentence(a_run: Path, tmp_path: Path) -> None:
    (a_run / "words" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(DataError, match="holds no word model"):
        export_run(a_run, tmp_path / "model", name="x")
    assert not (tmp_path / "model").exists()


def test_what_cannot_be_exported_is_said_plainly(tmp_path: Path) -> None:
    def refused(run: Path) -> str:
        done = CliRunner().invoke(app, ["export", str(run), "--out", str(tmp_path / "model")])
        assert isinstance(done.exception, DataError)
        assert not (tmp_path / "model").exists()
        return str(done.exception)

    # A stage that is not there is missing too, not another kind of run.
    (tmp_path / "recipe.yaml").write_text("kind: uc2\n")
    for gone in (tmp_path / "gone", tmp_path / "gone" / "further"):
        assert refused(gone).startswith(f"{gone} is not there: give the folder of a run")
    other = tmp_path / "other" / "run"
    other.mkdir(parents=True)
    (other / "recipe.yaml").write_text("kind: features\n")
    told = refused(other)
    assert told.startswith(f"{other} holds no model that can be exported")
    assert all(kind in told for kind in ("`compression`", "words", "uc2", "m3p"))


def test_a_run_that_answers_questions_is_asked_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    asked = f"needs no export: ask it by 'polyglance ask PICTURE QUESTION --model {run / 'model'}'"
    (run / "recipe.yaml").write_text("kind: vqa\n")
    with pytest.raises(DataError) as told:
        export_run(run, tmp_path / "out", name="x")
    assert str(told.value).endswith(asked)
    (run / "recipe.yaml").unlink()
    (run / "model" / "config.json").write_text('{"kind": "vqa"}')
    for place in (run, run / "model"):
        with pytest.raises(DataError) as told:
            export_run(place, tmp_path / "out", name="x")
        assert str(told.value).endswith(asked)


def test_pictures_must_be_seen_as_in_training(eyes_folder: Path) -> None:
    with pytest.raises(PolyglanceError, match="nobody knows which network"):
        open_eyes(SeenBy())
    with pytest.raises(PolyglanceError, match="small has other weights here"):
        open_eyes(SeenBy("small", weights_sha256="0" * 64))
    with pytest.raises(PolyglanceError, match="no backbone called 'vgg'"):
        open_eyes(SeenBy("vgg"))
    averaged = open_eyes(SeenBy("small", 96, resize="centre", views="ten"))
    assert (averaged.pictures.size, averaged.pictures.resize) == (96, "centre")


def test_the_table_takes_a_byte_a_number(tmp_path: Path) -> None:
    model = word_model(tmp_path / "run")
    folder = export(model, tmp_path / "model")
    sentences = sum(p.numel() for p in model.text.sentences.parameters())
    content = model.text.table.numel() + 4 * len(model.text.table) + 2 * sentences
    assert content < (folder / "text.onnx").stat().st_size < content + 5000
