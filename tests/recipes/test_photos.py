"""A recipe from manifests to a model that searches: pictures of one colour, small networks."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from polyglance.config import dump, load
from polyglance.data.captions import CaptionTable
from polyglance.encoders import load as open_model
from polyglance.encoders.folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.mmp import MMPObjective
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp import photos
from polyglance.recipes.mmp.compressing import Compression, word_frequency
from polyglance.recipes.mmp.photo_corpora import Corpora
from polyglance.recipes.mmp.photo_recipe import ClassNaming, PhotoRecipe, PictureCorpus, TextCorpus
from polyglance.recipes.mmp.photos import run
from polyglance.records import Record, write_manifest
from polyglance.text import open_tokenizer
from polyglance.training.loop import LoopConfig
from small_models import eyes_state
from toy_model import unigram_tokenizer

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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "colours"
    folder.mkdir(parents=True)
    for number, shades in enumerate(COLOURS):
        colour = tuple(SHADES[shade] for shade in shades)
        Image.new("RGB", (16, 12), colour).save(folder / f"{number}.png")
    write_manifest(folder / "train.jsonl", records())
    write_manifest(folder / "val.jsonl", records()[9:])
    write_manifest(folder / "words.jsonl.gz", [replace(r, image=None) for r in records()])
    return folder.parent


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> PhotoRecipe:
    """On an untrained encoder and an untrained picture network, both small."""
    parts = tmp_path_factory.mktemp("parts")
    texts = [text for r in records() for captions in r.captions.values() for text in captions]
    tokenizer = unigram_tokenizer(texts, pieces=60)
    tokenizer.save(parts / "encoder")
    torch.manual_seed(0)
    config = EncoderConfig(
        vocabulary=tokenizer.vocab_size, width=64, layers=1, heads=2, inner=64, positions=70
    )
    save_encoder(Encoder(config), parts / "encoder")
    (parts / "eyes").mkdir()
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (parts / "eyes" / "config.json").write_text(json.dumps({"variant": 0, **half}))
    save_file(eyes_state(), parts / "eyes" / "model.safetensors")
    return PhotoRecipe(
        encoder=str(parts / "encoder"),
        backbone=str(parts / "eyes"),
        size=32,
        width=64,
        pooling_layers=1,
        pooling_heads=2,
        dropout=0.0,
        encoder_rate=1.0,
        backbone_rate=0.1,  # deep and untrained: at more it is lost in so few steps
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
            steps=22, learning_rate=3e-3, warmup=4, clip=1.0, validate_every=11, log_every=11
        ),
        compression=Compression(
            "colours", parts=16, finer_parts=16, frequent=20, steps=4, batch=16
        ),
    )


@pytest.fixture(scope="module")
def finished(
    recipe: PhotoRecipe, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The folder of a run and its report."""
    out = tmp_path_factory.mktemp("run")
    return out, run(recipe, data, out)


def test_a_recipe_trains_measures_and_reports(finished: tuple[Path, dict[str, Any]]) -> None:
    out, report = finished
    assert json.loads((out / "report.json").read_text()) == report
    assert set(report["test"]) == {"en", "de", "average"}
    assert set(report["test"]["de"]) == {
        "mR", *(f"{way}_R@{k}" for way in ("text_to_image", "image_to_text") for k in (1, 5, 10))
    }  # fmt: skip
    means = [report["test"][language]["mR"] for language in ("en", "de")]
    assert report["test"]["average"] == {"mR": pytest.approx(np.mean(means))}
    # Of 27 colours; a model that learned nothing has an mR of about 20.
    assert report["test"]["average"]["mR"] > 45
    assert report["validation"]["score"] == report["validation"]["average"]
    assert "colours/val.de" in report["validation"]
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {key for key in entries[0] if "." in key}
    assert losses == {"colours/train.inter", "colours/val.inter", "colours/words.parallel"}


def test_what_it_learned_is_left_small_and_searches(
    finished: tuple[Path, dict[str, Any]], data: Path
) -> None:
    out, report = finished
    assert {path.name for path in (out / "compact").iterdir()} == {
        "compact.safetensors", "config.json"
    }  # fmt: skip
    small = report["compressed"]
    assert set(small["test"]) == set(report["test"])
    assert small["test"]["average"]["mR"] > report["test"]["average"]["mR"] - 15
    assert small["validation"].keys() == report["validation"].keys()
    described = ModelFolder.open(out / "model").description
    assert (described.name, described.languages) == ("colours", ("de", "en"))
    assert described.figures == small
    encoder = open_model(out / "model")
    pictures = encoder.encode_pictures(sorted_pictures(data))
    for language in ("en", "de"):
        texts = encoder.encode_texts([record.captions[language][0] for record in records()])
        found = evaluate_retrieval(pictures, texts, np.arange(27))
        # As the report has it, but for the 8 bits in which a graph computes.
        assert found.mean_recall == pytest.approx(small["test"][language]["mR"], abs=6)


def sorted_pictures(data: Path) -> list[Path]:
    return [data / "colours" / f"{number}.png" for number in range(27)]


def test_a_finished_run_is_measured_again_and_not_trained(
    finished: tuple[Path, dict[str, Any]], recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    out, report = shutil.copytree(finished[0], tmp_path / "run"), finished[1]
    log = (out / "compressed" / "log.jsonl").read_bytes()
    again = run(recipe, data, out)
    assert again["best_step"] == report["best_step"]
    for figures in (again, again["compressed"]):
        first = report if figures is again else report["compressed"]
        for language in ("en", "de", "average"):
            assert figures["test"][language] == pytest.approx(first["test"][language])
    assert (out / "compressed" / "log.jsonl").read_bytes() == log
    assert open_recipe(out / "recipe.yaml").settings == recipe
    with pytest.raises(PolyglanceError, match="a run by another recipe"):
        run(replace(recipe, longest=8), data, out)


def test_uncompressed_a_run_leaves_no_model_to_search_with(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    short = replace(recipe.loop, steps=1, warmup=0)
    report = run(replace(recipe, compression=None, test=None, loop=short), data, tmp_path)
    assert report.keys() == {"validation", "best_step", "seconds"}
    assert not any((tmp_path / name).exists() for name in ("compact", "compressed", "model"))


def test_words_that_were_met_come_first_but_for_specials(recipe: PhotoRecipe) -> None:
    tokenizer = open_tokenizer(recipe.encoder)
    twice = [Record(captions={"en": ("much blue", "some blue")}), Record(captions={"de": ("rot",)})]
    tables = [CaptionTable.build(twice, tokenizer), CaptionTable.build(twice[:1], tokenizer)]
    frequency = word_frequency(tables, tokenizer.vocab_size)
    assert frequency[:4].isinf().all()
    counts = Counter(
        number
        for text in 2 * ["much blue", "some blue"] + ["rot"]
        for number in tokenizer.encode(text)
    )
    for number in range(4, tokenizer.vocab_size):
        assert frequency[number] == counts[number]


def test_a_recipe_is_a_file(recipe: PhotoRecipe, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    assert load(PhotoRecipe, tmp_path / "recipe.yaml") == recipe


def test_mistakes_in_a_recipe_are_one_sentence(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    corpus, compression = recipe.pictures[0], recipe.compression
    assert compression is not None
    wrong = {
        "too few to train on": replace(recipe, pictures=(replace(corpus, hold_out=27),)),
        "do not divide into 7 parts: change parts": replace(
            recipe, compression=replace(compression, parts=7)
        ),
        "set frequent to 1 or more": replace(recipe, compression=replace(compression, frequent=0)),
        "multiples of 64": replace(recipe, width=32),
        "choose languages that it has": replace(
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
    assert not (tmp_path / "out").exists()  # nothing was trained before it was said
    broken = shutil.copytree(data, tmp_path / "data")
    (broken / "colours" / "3.png").write_bytes(b"")
    with pytest.raises(PolyglanceError, match=r"3\.png"):
        run(recipe, broken, tmp_path / "out")


def test_what_is_frozen_stays_and_the_rest_learns(
    recipe: PhotoRecipe, data: Path, tmp_path: Path
) -> None:
    still = replace(recipe, backbone_rate=0.0, frozen_layers=1)
    model, _ = photos.build_model(still, "cpu")
    learned = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"visual_input", "text_pooling", "visual_pooling"}
    model, _ = photos.build_model(recipe, "cpu")
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_more_captions_are_trained_on_and_not_measured(recipe: PhotoRecipe, data: Path) -> None:
    mixed = [replace(r, captions={"mul": (f"mixed {r.image}",)}) for r in records()]
    write_manifest(data / "colours" / "more.jsonl", mixed)
    first = replace(recipe.pictures[0], more_captions="colours/more.jsonl", hold_out=5)
    richer = replace(recipe, pictures=(first,))
    model, eyes = photos.build_model(richer, "cpu")
    corpora = Corpora(richer, data, eyes, "cpu")
    corpora.tasks(model)
    table = corpora.sentences[0]
    assert len(table.of_language("mul")) == len(table.of_language("en")) == 27 - 5
    assert corpora.languages == ["de", "en"]  # a mixture is no language
    (held,) = corpora.held.values()
    assert "mul" not in held.captions.names
    lacking = replace(richer, pictures=(replace(first, more_captions="enriched/none.jsonl"),))
    with pytest.raises(PolyglanceError, match=r"none\.jsonl: no such manifest; 'polyglance data"):
        Corpora(lacking, data, eyes, "cpu").tasks(model)


def test_names_need_a_network_of_as_many_classes(recipe: PhotoRecipe, data: Path) -> None:
    naming = replace(recipe, class_names=ClassNaming())
    model, eyes = photos.build_model(naming, "cpu")
    with pytest.raises(PolyglanceError, match="names for 1000 classes and the backbone tells 7"):
        Corpora(naming, data, eyes, "cpu").tasks(model)
