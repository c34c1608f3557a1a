"""A recipe from manifests to report, on pictures of one colour, with a small network for eyes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from polyglance.config import dump, load
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.recipes import photos
from polyglance.recipes.photos import PhotoRecipe, PictureCorpus, TextCorpus, run
from polyglance.records import Record, write_manifest
from polyglance.text.words import WordTokenizer
from polyglance.training.loop import LoopConfig
from polyglance.vision.convnet import SmallConvNet

SHADES = {"none": 0, "some": 120, "much": 250}
GERMAN = {"none": "kein", "some": "etwas", "much": "viel"}
COLOURS = [(red, green, blue) for red in SHADES for green in SHADES for blue in SHADES]


def records() -> list[Record]:
    """27 colours, told in English and in German."""
    return [
        Record(
            image=f"{number}.png",
            captions={
                "en": (f"{red} red {green} green {blue} blue",),
                "de": (f"{GERMAN[blue]} blau {GERMAN[green]} gruen {GERMAN[red]} rot",),
            },
        )
        for number, (red, green, blue) in enumerate(COLOURS)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "colours"
    folder.mkdir(parents=True)
    for number, shades in enumerate(COLOURS):
        colour = tuple(SHADES[shade] for shade in shades)
        Image.new("RGB", (16, 12), colour).save(folder / f"{number}.png")
    write_manifest(folder / "train.jsonl", records())
    write_manifest(folder / "val.jsonl", records()[9:])
    write_manifest(folder / "words.jsonl.gz", [replace(r, image=None) for r in records()])
    return folder.parent


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhotoRecipe:
    """On an untrained encoder and an untrained picture network, both small."""
    texts = [text for r in records() for captions in r.captions.values() for text in captions]
    tokenizer = WordTokenizer.from_texts(texts, "en")
    folder = tmp_path / "encoder"
    torch.manual_seed(0)
    save_encoder(
        Encoder(
            EncoderConfig(
                vocabulary=tokenizer.vocab_size, width=32, layers=1, heads=2, inner=64, positions=12
            )
        ),
        folder,
    )
    tokenizer.save(folder)

    def eyes(*arguments: Any, **options: Any) -> Any:
        half = torch.full((3,), 127.5)
        return SimpleNamespace(network=SmallConvNet(32), width=32, mean=half, std=half)

    monkeypatch.setattr(photos, "EfficientNetLite", eyes)
    return PhotoRecipe(
        encoder=str(folder),
        backbone=str(folder),
        size=16,
        width=32,
        pooling_layers=1,
        pooling_heads=2,
        dropout=0.0,
        encoder_rate=1.0,
        backbone_rate=1.0,
        smallest_crop=0.8,
        pictures=(
            PictureCorpus("colours/train.jsonl", batch=27),
            PictureCorpus("colours/val.jsonl", batch=8, captions_each=1, weight=0.1, hold_out=4),
        ),
        texts=(TextCorpus("colours/words.jsonl.gz", batch=16, weight=0.5),),
        validation="colours/val.jsonl",
        test="colours/train.jsonl",
        objective=MMPObjective(negatives="symmetric", intra=False),
        loop=LoopConfig(
            steps=50, learning_rate=4e-3, warmup=5, clip=1.0, validate_every=25, log_every=25
        ),
    )


def test_a_recipe_trains_measures_and_reports(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = run(recipe, data, out)
    assert json.loads((out / "report.json").read_text()) == report
    assert set(report["test"]) == {"en", "de", "average"}
    # Of 27 colours; a model that learned nothing has an mR of about 20.
    assert report["test"]["average"] > 60
    assert report["validation"]["score"] == report["validation"]["average"]
    assert "colours/val.de" in report["validation"]
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {key for key in entries[0] if "." in key}
    assert losses == {"colours/train.inter", "colours/val.inter", "colours/words.parallel"}
    again = run(recipe, data, out)  # nothing is left to train
    assert again["test"] == pytest.approx(report["test"])
    assert again["best_step"] == report["best_step"]
    assert load(PhotoRecipe, out / "recipe.yaml") == recipe
    with pytest.raises(PolyglanceError, match="a run by another recipe"):
        run(replace(recipe, longest=8), data, out)


def test_a_recipe_is_a_file(recipe: PhotoRecipe, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    assert load(PhotoRecipe, tmp_path / "recipe.yaml") == recipe


def test_mistakes_in_a_recipe_are_one_sentence(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    corpus = recipe.pictures[0]
    wrong = {
        "too few to train on": replace(recipe, pictures=(replace(corpus, hold_out=27),)),
        "set objective.intra to false": replace(recipe, objective=MMPObjective()),
        "languages that the corpus has": replace(
            recipe, pictures=(replace(corpus, languages=("sw",)),)
        ),
        "captions_each to 2": replace(
            recipe,
            objective=replace(recipe.objective, cross=True),
            pictures=(replace(corpus, captions_each=1),),
        ),
        "nowhere.jsonl": replace(recipe, pictures=(replace(corpus, manifest="nowhere.jsonl"),)),
    }
    for message, mistaken in wrong.items():
        with pytest.raises(PolyglanceError, match=message):
            run(mistaken, data, tmp_path / "out")
    (data / "colours" / "3.png").write_bytes(b"")
    with pytest.raises(PolyglanceError, match=r"3\.png"):
        run(recipe, data, tmp_path / "out")


def test_the_mask_is_that_of_the_tokenizer(recipe: PhotoRecipe) -> None:
    tokenizer: Any = SimpleNamespace(mask_id=103)
    noisy = replace(recipe, objective=MMPObjective())
    assert photos._objective(noisy, tokenizer).mask_id == 103
    assert photos._objective(recipe, tokenizer) is recipe.objective


def test_what_is_frozen_stays_and_the_rest_learns(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    still = replace(recipe, backbone_rate=0.0, frozen_layers=1)
    model, _ = photos.build_model(still, "cpu")
    learned = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"visual_input", "text_pooling", "visual_pooling"}
    model, _ = photos.build_model(recipe, "cpu")
    assert all(parameter.requires_grad for parameter in model.parameters())
