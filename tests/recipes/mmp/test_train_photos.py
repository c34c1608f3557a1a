"""MMP on photos, from manifests to an exported model: images of one colour, small networks."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from helpers.small_mmp import cosines, image_backbone_state, torch_pictures
from helpers.text_encoder import unigram_tokenizer
from helpers.vision_models import save_tower_folder
from polyglance.batches.inputs import Indices, PixelTable
from polyglance.batches.streamed_pixels import StreamedPixels
from polyglance.config import dump, load
from polyglance.data.captions import CaptionTable
from polyglance.data.tar_writer import write_tars
from polyglance.encoders import load as open_model
from polyglance.encoders.model_folder import ImagePreprocessing, ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.export.from_run import export_run
from polyglance.export.to_torch import load_torch
from polyglance.models.mmp import MMP, MMPObjective
from polyglance.models.mmp_folder import load_mmp
from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.pretrained import save_encoder
from polyglance.recipes import open_recipe
from polyglance.recipes.image_sources import PixelStreaming
from polyglance.recipes.mmp import initialise, train_photos
from polyglance.recipes.mmp.compression import token_frequency
from polyglance.recipes.mmp.config import (
    ClassNameConfig,
    CompressionConfig,
    ImageCorpus,
    LabelNameConfig,
    MMPPhotoRecipe,
    TextCorpus,
)
from polyglance.recipes.mmp.photo_data import image_order, load_photo_data
from polyglance.recipes.mmp.tasks import MMPTask
from polyglance.recipes.mmp.train_photos import build_model, build_tasks, open_backbone, train
from polyglance.records import Record, write_manifest
from polyglance.text import open_tokenizer
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import step_generator
from polyglance.vision.backbone import open_backbone as open_image_backbone_by_name
from polyglance.vision.decoding import DecodePool
from polyglance.vision.efficientnet import EfficientNetLite
from polyglance.vision.pictures import read_square

SHADES = {"none": 0, "some": 120, "much": 250}
GERMAN = {"none": "kein", "some": "etwas", "much": "viel"}
COLOURS = [(red, green, blue) for red in SHADES for green in SHADES for blue in SHADES]


def records() -> list[Record]:
    """Return 27 colours with captions in English and German."""
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
def recipe(tmp_path_factory: pytest.TempPathFactory) -> MMPPhotoRecipe:
    """Return a recipe with a small untrained text encoder and image backbone."""
    parts = tmp_path_factory.mktemp("parts")
    texts = [text for r in records() for captions in r.captions.values() for text in captions]
    tokenizer = unigram_tokenizer(texts, pieces=60)
    tokenizer.save(parts / "encoder")
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=64,
        num_layers=1,
        num_heads=2,
        intermediate_size=64,
        max_position_embeddings=70,
    )
    save_encoder(Encoder(config), parts / "encoder")
    (parts / "backbone").mkdir()
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    (parts / "backbone" / "config.json").write_text(json.dumps({"variant": 0, **half}))
    save_file(image_backbone_state(), parts / "backbone" / "model.safetensors")
    return MMPPhotoRecipe(
        encoder=str(parts / "encoder"),
        image_backbone=str(parts / "backbone"),
        image_size=32,
        width=64,
        pooling_layers=1,
        pooling_heads=2,
        dropout=0.0,
        encoder_lr_multiplier=1.0,
        backbone_lr_multiplier=0.1,  # deep and untrained: a higher rate diverges
        min_crop_area=0.8,
        image_corpora=(
            ImageCorpus("colours/train.jsonl", batch=27),
            ImageCorpus("colours/val.jsonl", batch=8, captions_per_image=1, weight=0.1, held_out=4),
        ),
        text_corpora=(TextCorpus("colours/words.jsonl.gz", batch=16, weight=0.5),),
        validation="colours/val.jsonl",
        test="colours/train.jsonl",
        objective=MMPObjective(negatives="symmetric", intra=False),
        loop=LoopConfig(
            steps=22, learning_rate=3e-3, warmup=4, grad_clip=1.0, validate_every=11, log_every=11
        ),
        compression=CompressionConfig(
            "colours", parts=16, finer_parts=16, frequent=20, steps=4, batch=16
        ),
    )


@pytest.fixture(scope="module")
def finished(
    recipe: MMPPhotoRecipe, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Return a run folder and its report."""
    out = tmp_path_factory.mktemp("run")
    return out, train(recipe, data, out)


def test_run_trains_evaluates_and_writes_a_report(finished: tuple[Path, dict[str, Any]]) -> None:
    out, report = finished
    assert json.loads((out / "report.json").read_text()) == report
    assert set(report["test"]) == {"en", "de", "average"}
    assert set(report["test"]["de"]) == {
        "mR", *(f"{way}_R@{k}" for way in ("text_to_image", "image_to_text") for k in (1, 5, 10))
    }  # fmt: skip
    means = [report["test"][language]["mR"] for language in ("en", "de")]
    assert report["test"]["average"] == {"mR": pytest.approx(np.mean(means))}
    # Of 27 colours; random ranking has an mR of about 20.
    assert report["test"]["average"]["mR"] > 45
    assert report["validation"]["score"] == report["validation"]["average"]
    assert "colours/val.de" in report["validation"]
    entries = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = {key for key in entries[0] if "." in key}
    assert losses == {"colours/train.inter", "colours/val.inter", "colours/words.parallel"}


def test_compressed_model_is_exported_and_retrieves(
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
        # As in the report, except that the graph computes in 8 bits.
        assert found.mean_recall == pytest.approx(small["test"][language]["mR"], abs=6)


def sorted_pictures(data: Path) -> list[Path]:
    return [data / "colours" / f"{number}.png" for number in range(27)]


def test_finished_run_is_evaluated_again_without_training(
    finished: tuple[Path, dict[str, Any]], recipe: MMPPhotoRecipe, data: Path, tmp_path: Path
) -> None:
    out, report = shutil.copytree(finished[0], tmp_path / "run"), finished[1]
    log = (out / "compressed" / "log.jsonl").read_bytes()
    again = train(recipe, data, out)
    assert again["best_step"] == report["best_step"]
    for figures in (again, again["compressed"]):
        first = report if figures is again else report["compressed"]
        for language in ("en", "de", "average"):
            assert figures["test"][language] == pytest.approx(first["test"][language])
    assert (out / "compressed" / "log.jsonl").read_bytes() == log
    assert open_recipe(out / "recipe.yaml").settings == recipe
    with pytest.raises(PolyglanceError, match="a run with another recipe"):
        train(replace(recipe, max_text_tokens=8), data, out)


def test_without_compression_nothing_is_compressed(
    recipe: MMPPhotoRecipe, data: Path, tmp_path: Path
) -> None:
    short = replace(recipe.loop, steps=1, warmup=0)
    report = train(replace(recipe, compression=None, test=None, loop=short), data, tmp_path)
    assert report.keys() == {"validation", "best_step", "seconds"}
    assert not any((tmp_path / name).exists() for name in ("compact", "compressed"))


def test_token_frequency_puts_special_tokens_first(recipe: MMPPhotoRecipe) -> None:
    tokenizer = open_tokenizer(recipe.encoder)
    twice = [Record(captions={"en": ("much blue", "some blue")}), Record(captions={"de": ("rot",)})]
    tables = [CaptionTable.build(twice, tokenizer), CaptionTable.build(twice[:1], tokenizer)]
    frequency = token_frequency(tables, tokenizer.vocab_size)
    assert frequency[:4].isinf().all()
    counts = Counter(
        number
        for text in 2 * ["much blue", "some blue"] + ["rot"]
        for number in tokenizer.encode(text)
    )
    for number in range(4, tokenizer.vocab_size):
        assert frequency[number] == counts[number]


def test_recipe_round_trips_through_yaml(recipe: MMPPhotoRecipe, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(dump(recipe))
    assert load(MMPPhotoRecipe, tmp_path / "recipe.yaml") == recipe


def test_recipe_errors_name_the_fix(recipe: MMPPhotoRecipe, data: Path, tmp_path: Path) -> None:
    corpus, compression = recipe.image_corpora[0], recipe.compression
    assert compression is not None
    wrong = {
        "too few to train on": replace(recipe, image_corpora=(replace(corpus, held_out=27),)),
        "are not divisible into 7 parts: change parts": replace(
            recipe, compression=replace(compression, parts=7)
        ),
        "set frequent to 1 or more": replace(recipe, compression=replace(compression, frequent=0)),
        "multiples of 64": replace(recipe, width=32),
        "choose languages that it has": replace(
            recipe, image_corpora=(replace(corpus, languages=("sw",)),)
        ),
        "captions_per_image to 2": replace(
            recipe,
            objective=replace(recipe.objective, cross=True),
            image_corpora=(replace(corpus, captions_per_image=1),),
        ),
        "nowhere.jsonl": replace(
            recipe, image_corpora=(replace(corpus, manifest="nowhere.jsonl"),)
        ),
    }
    for message, mistaken in wrong.items():
        with pytest.raises(PolyglanceError, match=message):
            train(mistaken, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()  # the error came before training
    broken = shutil.copytree(data, tmp_path / "data")
    (broken / "colours" / "3.png").write_bytes(b"")
    with pytest.raises(PolyglanceError, match=r"3\.png"):
        train(recipe, broken, tmp_path / "out")


def test_frozen_parameters_are_not_trained(
    recipe: MMPPhotoRecipe, data: Path, tmp_path: Path
) -> None:
    frozen = replace(recipe, backbone_lr_multiplier=0.0, frozen_layers=1)
    model = build_model(frozen, open_backbone(frozen, "cpu"), "cpu")
    learned = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"visual_input", "text_pooling", "visual_pooling"}
    model = build_model(recipe, open_backbone(recipe, "cpu"), "cpu")
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_extra_captions_are_used_for_training_only(recipe: MMPPhotoRecipe, data: Path) -> None:
    mixed = [replace(r, captions={"mul": (f"mixed {r.image}",)}) for r in records()]
    write_manifest(data / "colours" / "more.jsonl", mixed)
    first = replace(recipe.image_corpora[0], extra_captions="colours/more.jsonl", held_out=5)
    richer = replace(recipe, image_corpora=(first,))
    backbone = open_backbone(richer, "cpu")
    photos = load_photo_data(richer, data, backbone, "cpu")
    table = photos.sentences[0]
    assert len(table.rows_in_language("mul")) == len(table.rows_in_language("en")) == 27 - 5
    assert photos.languages == ["de", "en"]  # "mul" is not a language
    (held_out,) = photos.held_out.values()
    assert "mul" not in held_out.captions.language_codes
    lacking = replace(richer, image_corpora=(replace(first, extra_captions="enriched/none.jsonl"),))
    with pytest.raises(PolyglanceError, match=r"none\.jsonl: no such manifest; 'polyglance data"):
        load_photo_data(lacking, data, backbone, "cpu")


def test_languages_are_drawn_as_often_as_their_weights_say(
    recipe: MMPPhotoRecipe, data: Path
) -> None:
    one_caption = replace(recipe.image_corpora[0], captions_per_image=1, batch=27)
    drawn: Counter[str] = Counter()
    heavy = replace(one_caption, language_weights={"en": 4.0})
    weighted = replace(recipe, image_corpora=(heavy,), text_corpora=())
    backbone = open_backbone(weighted, "cpu")
    photos = load_photo_data(weighted, data, backbone, "cpu")
    ((_, task, _), *_) = build_tasks(
        weighted, photos, build_model(weighted, backbone, "cpu"), backbone
    )
    assert isinstance(task, MMPTask)
    german = set(photos.tokenizer.encode("viel etwas kein blau gruen rot"))
    generator = np.random.default_rng(0)
    for _ in range(40):
        (text,) = task.sample(generator).captions
        starts = text.packing.cu_seqlens.tolist()
        for start, end in pairwise(starts):
            words = text.ids[start:end].tolist()
            drawn["de" if len(german & set(words)) > len(words) / 2 else "en"] += 1
    # 1,080 draws of a share of 0.8: the standard error is 0.012.
    assert drawn["en"] / drawn.total() == pytest.approx(0.8, abs=0.05)
    with pytest.raises(PolyglanceError, match="language_weights"):
        replace(one_caption, language_weights={"en": 0.0})


def test_many_images_are_decoded_by_processes(
    recipe: MMPPhotoRecipe, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for many in (28, 27):
        monkeypatch.setattr("polyglance.recipes.image_sources._MANY_IMAGES", many)
        streaming = PixelStreaming(decode_workers=1)
        photos = load_photo_data(
            replace(recipe, streaming=streaming), data, open_backbone(recipe, "cpu"), "cpu"
        )
        (table, *_) = photos.pixel_tables
        assert isinstance(table, PixelTable)
        tables.append(table.pixels)
    assert torch.equal(*tables)
    monkeypatch.setattr("polyglance.recipes.image_sources._MANY_IMAGES", 27)
    monkeypatch.setattr(DecodePool, "squares", None)  # and it is this pool that decodes
    with pytest.raises(TypeError):
        load_photo_data(recipe, data, open_backbone(recipe, "cpu"), "cpu")


def test_names_of_labels_are_learned_also_from_images_without_captions(
    recipe: MMPPhotoRecipe, data: Path
) -> None:
    labelled = [replace(one, labels=("dog", "cat")[: 1 + n % 2]) for n, one in enumerate(records())]
    labelled[5] = replace(labelled[5], captions={})
    write_manifest(data / "colours" / "labelled.jsonl", labelled)
    corpus = ImageCorpus("colours/labelled.jsonl", batch=8)
    naming = replace(
        recipe, image_corpora=(corpus,), label_names=LabelNameConfig(languages=("en", "de"))
    )
    backbone = open_backbone(naming, "cpu")
    photos = load_photo_data(naming, data, backbone, "cpu")
    assert len(photos.pixel_tables[0]) == 27
    assert photos.labels[0].sum() == sum(len(one.labels) for one in labelled)
    tasks = {
        name: task
        for name, task, _ in build_tasks(
            naming, photos, build_model(naming, backbone, "cpu"), backbone
        )
    }
    batch = tasks["labels"].sample(np.random.default_rng(0))
    assert torch.isfinite(tasks["labels"].losses(batch)["labels"])
    without = replace(naming, label_names=None)
    assert len(load_photo_data(without, data, backbone, "cpu").pixel_tables[0]) == 26


def test_small_tasks_take_turns_if_the_recipe_says_so(recipe: MMPPhotoRecipe, data: Path) -> None:
    words, tatoeba = (
        TextCorpus("colours/words.jsonl.gz", batch=4, weight=weight, in_turns=True)
        for weight in (0.5, 0.25)
    )
    write_manifest(data / "colours" / "other.jsonl", [replace(r, image=None) for r in records()])
    turning = replace(
        recipe, text_corpora=(words, replace(tatoeba, manifest="colours/other.jsonl"))
    )
    backbone = open_backbone(turning, "cpu")
    photos = load_photo_data(turning, data, backbone, "cpu")
    tasks = build_tasks(turning, photos, build_model(turning, backbone, "cpu"), backbone)
    assert [name for name, _, _ in tasks] == ["colours/train", "colours/val", "turns"]
    turns = tasks[-1][1]
    found = [tuple(turns.losses(turns.sample(step_generator(0, step)))) for step in range(40)]
    assert set(found) == {("colours/words.parallel",), ("colours/other.parallel",)}


def test_training_continues_from_an_exported_model(
    recipe: MMPPhotoRecipe, data: Path, finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = shutil.copytree(finished[0] / "model", tmp_path / "model")
    description = json.loads((folder / "model.json").read_bytes())
    (folder / "model.json").write_text(json.dumps(description | {"languages": ["de", "en", "sw"]}))
    loop = replace(recipe.loop, steps=1, learning_rate=1e-9, warmup=0, validate_every=1)
    further = replace(recipe, loop=loop, initialise_from=str(folder), compression=None)
    report = train(further, data, tmp_path / "run")
    small = finished[1]["compressed"]["validation"]
    # The exported model itself, before it has learned anything more.
    assert report["validation"]["score"] == pytest.approx(small["score"], abs=6)
    assert load_mmp(tmp_path / "run" / "model").languages == ("de", "en", "sw")
    with pytest.raises(PolyglanceError, match=r"another shape .*initialise_from to null"):
        train(replace(further, pooling_layers=2), data, tmp_path / "other")
    other = replace(further, initialise_from="polyglance-small")  # of another width throughout
    with pytest.raises(PolyglanceError, match="another shape"):
        train(other, data, tmp_path / "wider")


def test_training_begins_with_the_mean_of_several_models(
    recipe: MMPPhotoRecipe,
    data: Path,
    finished: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, other = finished[0] / "model", tmp_path / "other"
    shutil.copytree(folder, other)

    def load(path: Path) -> torch.nn.Module:
        model = load_torch(path)
        if path == other:  # a model with all weights three times as large
            for value in model.state_dict().values():
                value.mul_(3)
        return model

    monkeypatch.setattr(initialise, "load_torch", load)
    begun: list[dict[str, torch.Tensor]] = []

    def begin(model: torch.nn.Module, *_: object, **__: object) -> None:
        begun.append({name: value.clone() for name, value in model.state_dict().items()})
        raise KeyboardInterrupt

    monkeypatch.setattr(train_photos, "train_loop", begin)
    further = replace(recipe, initialise_from=str(folder), compression=None)
    for average_with in ((), (str(other),)):
        with pytest.raises(KeyboardInterrupt):
            train(replace(further, average_with=average_with), data, tmp_path / "run")
    alone, averaged = begun
    words = "encoder.words.weight"
    assert alone[words].abs().max() > 0
    torch.testing.assert_close(averaged[words], 2 * alone[words])
    with pytest.raises(PolyglanceError, match="adds models to that of initialise_from"):
        replace(recipe, initialise_from=None, average_with=(str(folder),))


def test_class_names_need_as_many_classes(recipe: MMPPhotoRecipe, data: Path) -> None:
    naming = replace(recipe, class_names=ClassNameConfig())
    with pytest.raises(
        PolyglanceError, match="names for 1000 classes and the image backbone has 7"
    ):
        load_photo_data(naming, data, open_backbone(naming, "cpu"), "cpu")


def streamed(recipe: MMPPhotoRecipe, tars: str | None, **settings: Any) -> MMPPhotoRecipe:
    """Return a short recipe whose images are decoded while training."""
    corpus = ImageCorpus("colours/train.jsonl", tars, batch=9, captions_per_image=1)
    streaming = PixelStreaming(**{"pixels_memory": 0.0, "decode_workers": 0, **settings})
    loop = replace(recipe.loop, steps=4, save_every=1, validate_every=4, warmup=0)
    return replace(
        recipe, image_corpora=(corpus,), text_corpora=(), streaming=streaming, test=None,
        compression=None, loop=loop,
    )  # fmt: skip


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(max(run.rglob("model.safetensors"), key=lambda path: path.stat().st_mtime_ns))


@pytest.fixture(scope="module")
def from_files(
    recipe: MMPPhotoRecipe, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, torch.Tensor]:
    """Return the weights after training on image files that are decoded while training."""
    run = tmp_path_factory.mktemp("files")
    train(streamed(recipe, None), data, run)
    return weights(run)


def test_tars_train_the_same_weights_as_files_and_killed_runs_resume(
    recipe: MMPPhotoRecipe,
    data: Path,
    from_files: dict[str, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_tars(data / "colours" / "train.jsonl", data / "tars" / "train", max_images=10)
    in_tars = streamed(recipe, "tars/train-*.tar", shuffle_memory=1.0)
    reads, read = [], StreamedPixels.read

    def killed(self: StreamedPixels, items: Indices) -> torch.Tensor:
        reads.append(items)
        if len(reads) == 4:
            raise KeyboardInterrupt
        return read(self, items)

    monkeypatch.setattr(StreamedPixels, "read", killed)
    with pytest.raises(KeyboardInterrupt):
        train(in_tars, data, tmp_path / "run")
    monkeypatch.setattr(StreamedPixels, "read", read)
    assert (tmp_path / "run" / "log.jsonl").is_file()
    train(in_tars, data, tmp_path / "run")
    ours = weights(tmp_path / "run")
    assert ours.keys() == from_files.keys()
    assert all(torch.equal(ours[name], from_files[name]) for name in ours)
    # Three batches of nine are an epoch of 27 images.
    assert sorted(np.concatenate(reads[:3]).tolist()) == list(range(27))
    assert sorted(np.concatenate(reads[:3]).tolist()) != np.concatenate(reads[:3]).tolist()


def test_small_corpora_in_tars_lie_in_memory(recipe: MMPPhotoRecipe, data: Path) -> None:
    if not (data / "tars").exists():
        write_tars(data / "colours" / "train.jsonl", data / "tars" / "train", max_images=10)
    tables = []
    for tars in (None, "tars/train-*.tar"):
        small = streamed(recipe, tars, pixels_memory=1.0)
        photos = load_photo_data(small, data, open_backbone(small, "cpu"), "cpu")
        ((corpus, table, _),) = photos.images
        assert isinstance(table, PixelTable)
        assert image_order(small, corpus, table) is None
        tables.append(table.pixels)
    assert torch.equal(*tables)


def test_damaged_images_stop_training_or_are_left_out(
    recipe: MMPPhotoRecipe, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(data / "colours", tmp_path / "colours")
    (broken / "3.png").write_bytes(b"no picture")
    backbone = open_backbone(recipe, "cpu")
    for tars in (None, "tars/train-*.tar"):
        if tars is not None:
            written = write_tars(broken / "train.jsonl", tmp_path / "tars" / "train")
            assert list(written.damaged) == ["3.png"]
            with pytest.raises(PolyglanceError, match=r"1 images are damaged, such as '3\.png'"):
                load_photo_data(streamed(recipe, tars), tmp_path, backbone, "cpu")
        skipping = streamed(recipe, tars, damaged_images="skip")
        photos = load_photo_data(skipping, tmp_path, backbone, "cpu")
        ((_, table, captions),) = photos.images
        assert len(table) == captions.num_records == 26
        assert "1 damaged images are left out" in capsys.readouterr().err


@pytest.mark.parametrize("multiplier", [0.1, 0.0])
def test_a_tower_of_transformers_is_trained_along_or_frozen_and_exported(
    recipe: MMPPhotoRecipe, data: Path, tmp_path: Path, multiplier: float
) -> None:
    tower = save_tower_folder("vit", tmp_path / "vit")
    changed = replace(
        recipe,
        image_backbone=str(tower),
        image_size=64,
        backbone_lr_multiplier=multiplier,
        image_corpora=(ImageCorpus("colours/train.jsonl", batch=6),),
        text_corpora=(),
        test=None,
        compression=None,
        loop=LoopConfig(steps=2, learning_rate=1e-2, grad_clip=1.0),
    )
    run = tmp_path / "run"
    train(changed, data, run)
    before, after = (
        load_file(folder / "model.safetensors") for folder in (tower, run / "model/image_backbone")
    )
    name = next(name for name in after if name.endswith("projection.weight"))
    assert torch.equal(before[name], after[name]) == (multiplier == 0)
    if multiplier == 0:
        return
    moved = tmp_path / "moved"
    run.rename(moved)
    export_run(moved, tmp_path / "exported", name="vit")
    encoder = open_model(tmp_path / "exported", threads=1)
    trained = load_mmp(moved / "model")
    backbone = open_image_backbone_by_name(str(moved / "model/image_backbone"), size=64)
    files = [data / "colours" / f"{number}.png" for number in (0, 5, 26)]
    pixels = np.stack([read_square(file, 64).pixels for file in files])
    mean, std = (tuple(part.tolist()) for part in (backbone.mean, backbone.std))
    trained.model.image_backbone = backbone.network
    expected = torch_pictures(trained.model, pixels, ImagePreprocessing(64, mean, std))
    assert cosines(encoder.encode_pictures(files), expected).min() > 0.9999
    with pytest.raises(PolyglanceError, match="which cannot be compressed: set compression"):
        open_backbone(replace(changed, compression=CompressionConfig()), "cpu")


def test_a_model_that_is_not_compressed_is_exported_with_its_backbone(
    recipe: MMPPhotoRecipe, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = list[MMP]()
    save = train_photos.save_with_backbone

    def save_and_keep(model: MMP, *others: Any) -> None:
        saved.append(model)
        save(model, *others)

    monkeypatch.setattr(train_photos, "save_with_backbone", save_and_keep)
    changed = replace(
        recipe,
        image_corpora=(ImageCorpus("colours/train.jsonl", batch=6),),
        text_corpora=(),
        compression=None,
        loop=LoopConfig(steps=2, learning_rate=1e-2, grad_clip=1.0),
    )
    run = tmp_path / "run"
    report = train(changed, data, run)
    assert "compressed" not in report
    size = changed.image_size
    before, after = (
        EfficientNetLite(folder, "lite", size)
        for folder in (Path(recipe.image_backbone), run / "model/image_backbone")
    )
    assert not torch.allclose(before.network.stem.bias, after.network.stem.bias)
    network = saved[0].get_submodule("image_backbone").state_dict()
    for name, value in after.network.state_dict().items():
        torch.testing.assert_close(value, network[name])
    description = export_run(run, tmp_path / "exported", name="larger", max_length=64)
    assert changed.max_text_tokens < description.max_length == 64
    assert description.figures["test"] == report["test"]
    assert description.languages == ("de", "en")
    encoder = open_model(tmp_path / "exported", threads=1)
    files = [data / "colours" / f"{number}.png" for number in (0, 5, 26)]
    pixels = np.stack([read_square(file, size).pixels for file in files])
    mean, std = (tuple(part.tolist()) for part in (after.mean, after.std))
    expected = torch_pictures(saved[0].eval(), pixels, ImagePreprocessing(size, mean, std))
    assert cosines(encoder.encode_pictures(files), expected).min() > 0.9999
