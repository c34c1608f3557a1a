"""Fine-tuning of exported models on captioned pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import polyglance
from helpers.rounding import ROUNDING
from helpers.small_mmp import cosines, small_model, tokenizer, torch_texts
from polyglance.encoders.model_folder import CALIBRATION, ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.fine_tuned import load_quantised, write_fine_tuned
from polyglance.nn.compression import compact_state
from polyglance.recipes import open_recipe
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.fine_tune.data import captions_of, read_pictures
from polyglance.recipes.fine_tune.train import interpolate, open_vocabulary, trainable
from polyglance.records import Record, read_manifest, write_manifest

COLOURS = {"red": "rot", "green": "grün", "blue": "blau", "white": "weiß", "black": "schwarz"}
TEXTS = ["a red picture", "ein blaues Bild", "two dogs play in the snow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, and twenty pictures of one colour each with captions in two languages."""
    folder = tmp_path_factory.mktemp("fine-tune")
    small_model().export(folder / "small")
    records = []
    for number in range(20):
        english = list(COLOURS)[number % len(COLOURS)]
        Image.new("RGB", (64, 64), english).save(folder / f"{number}.png")
        captions = {"en": (f"{english} {number}",), "de": (f"{COLOURS[english]} {number}",)}
        records.append(Record(image=f"{number}.png", captions=captions))
    write_manifest(folder / "captions.jsonl", records)
    lines = [
        {"file_name": r.image, **{f"caption_{code}": own for code, own in r.captions.items()}}
        for r in records
    ]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


def test_a_run_learns_the_captions_and_writes_a_model(folder: Path, tmp_path: Path) -> None:
    settings = ["loop.steps=15", "loop.learning_rate=1e-2", "interpolation=1.0", "batch=8",
                f"model={folder / 'small'}", "name=colours", "held_out=0.25",
                "captions=metadata.jsonl"]  # fmt: skip
    report = open_recipe("fine-tune", settings).train(folder, tmp_path / "run")
    assert report["pictures"] == {"trained on": 15, "held out": 5}
    assert report["after"]["average"]["mR"] > report["before"]["average"]["mR"]

    held_out = list(read_manifest(tmp_path / "run" / "held-out.jsonl"))
    assert len(held_out) == 5
    assert all((tmp_path / "run" / str(record.image)).resolve().is_file() for record in held_out)
    again = open_recipe("fine-tune", settings).train(folder, tmp_path / "run")
    assert again["after"] == report["after"]

    model = polyglance.load(tmp_path / "run" / "model")
    assert model.name == "colours"
    pictures = [tmp_path / "run" / str(record.image) for record in held_out]
    vectors = model.encode_pictures(pictures)
    texts = model.encode_texts([record.captions["de"][0] for record in held_out])
    recall = report["after"]["de"]["text_to_image_R@1"]
    assert 100 * np.mean((texts @ vectors.T).argmax(1) == np.arange(5)) == pytest.approx(recall)


def test_a_model_that_is_not_trained_is_written_as_it_was(folder: Path, tmp_path: Path) -> None:
    source = ModelFolder.open(folder / "small")
    model = load_quantised(source)
    before = polyglance.load(folder / "small")
    ids = [tokenizer().encode(text) for text in TEXTS]
    assert cosines(torch_texts(model, ids), before.encode_texts(TEXTS)).min() > 1 - ROUNDING / 10
    written = write_fine_tuned(
        source, compact_state(model), tmp_path / "same", name="same", languages=["en"], figures={}
    )
    assert CALIBRATION not in written.files
    after = polyglance.load(tmp_path / "same")
    assert after.fingerprint != before.fingerprint or written.files == source.description.files
    np.testing.assert_allclose(after.encode_texts(TEXTS), before.encode_texts(TEXTS), atol=1e-5)


def test_the_default_model_is_loaded_with_its_own_weights() -> None:
    source = ModelFolder.open()
    model = load_quantised(source).eval()
    text = "a dog on the beach, ein Hund am Strand"
    ids = open_vocabulary(source).encode(text)
    ours, theirs = torch_texts(model, [ids]), polyglance.load(threads=1).encode_texts([text])
    assert cosines(ours, theirs).min() > 0.999
    assert not any(name.startswith("encoder.words.") for name in trainable(model))


def test_interpolation_goes_from_the_given_weights_to_the_trained_ones(folder: Path) -> None:
    model = load_quantised(ModelFolder.open(folder / "small"))
    before = {name: p.detach().clone() for name, p in trainable(model).items()}
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.add_(1.0)
    interpolate(model, before, 0.25)
    for name, parameter in trainable(model).items():
        torch.testing.assert_close(parameter.detach(), before[name] + 0.25)


def test_a_folder_without_captions_jsonl_is_read_in_its_own_layout(
    folder: Path, tmp_path: Path
) -> None:
    recipe = FineTuneRecipe()
    assert captions_of(recipe, folder) == [folder / "captions.jsonl"]
    assert captions_of(recipe, tmp_path) == [tmp_path]
    own = FineTuneRecipe(captions="own.jsonl", extra_train=("more",))
    assert captions_of(own, tmp_path) == [tmp_path / "own.jsonl", tmp_path / "more"]
    with pytest.raises(PolyglanceError, match="has no captions: put them in a manifest"):
        open_recipe("fine-tune", [f"model={folder / 'small'}"]).train(tmp_path, tmp_path / "run")


def test_pictures_that_cannot_be_read_are_named_and_left_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    names = ["0.png", "broken.png", "1.png", *(f"gone{number}.png" for number in range(11))]
    for name in ("0.png", "1.png"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    records = [Record(image=str(tmp_path / name), captions={"en": (name,)}) for name in names]
    kept, pixels = read_pictures(records, 32)
    assert [Path(str(record.image)).name for record in kept] == ["0.png", "1.png"]
    assert pixels.shape == (2, 32, 32, 3)
    assert pixels[0, 0, 0].tolist() == [255, 0, 0]  # red, and the next is green
    assert pixels[1, 0, 0].tolist() == [0, 128, 0]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert "broken.png" in lines[0]
    assert lines[-1] == "left out: 2 more pictures"
    assert read_pictures(records[1:2], 32)[0] == []


def test_too_few_pictures_and_other_models_are_refused(folder: Path, tmp_path: Path) -> None:
    write_manifest(tmp_path / "captions.jsonl", [Record(image="1.png", captions={"en": ("a",)})])
    (tmp_path / "1.png").write_bytes((folder / "1.png").read_bytes())
    recipe = open_recipe("fine-tune", [f"model={folder / 'small'}"])
    with pytest.raises(PolyglanceError, match=r"1 picture with captions .* too few to train on"):
        recipe.train(tmp_path, tmp_path / "run")
    with pytest.raises(PolyglanceError, match=r"held_out is 1\.5: give a share"):
        open_recipe("fine-tune", ["held_out=1.5"])
