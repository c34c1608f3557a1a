"""MMP runs on features: exported, loaded, evaluated and searched as any other model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import polyglance
from helpers.small_mmp import cosines
from helpers.small_smalr import SIZE, backbone_loader
from helpers.toy_clips import ToyCorpus, make_toy_corpus
from polyglance.cli import app
from polyglance.data.toy.video import write_clip
from polyglance.encoders.model_folder import FORMAT, ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.stored_features import with_features
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.from_run import export_run
from polyglance.export.split_model import split_model
from polyglance.export.to_torch import load_torch
from polyglance.models.mmp_folder import load_mmp
from polyglance.nn.packing import Packing
from polyglance.recipes.mmp.config import FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.recipes.mmp.train import train
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.training.loop import LoopConfig
from polyglance.vision import backbone
from polyglance.vision.extraction import extract
from polyglance.vision.feature_sources import open_features
from polyglance.vision.shard_encoding import ExtractionSettings

TEXTS = ["a red circle", "ein blaues Quadrat", "x"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyCorpus:
    return make_toy_corpus(tmp_path_factory.mktemp("toy"), train=48, others=12)


def two_steps(recipe: MMPRecipe) -> MMPRecipe:
    loop = LoopConfig(steps=2, learning_rate=1e-3, save_every=0)
    return replace(recipe, loop=loop, visual_pooling_layers=2, max_visual_tokens=3)


@pytest.fixture(scope="module")
def run(toy: ToyCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on features of clips, with heads of one and two layers."""
    folder = tmp_path_factory.mktemp("run")
    train(two_steps(toy.recipe), toy.data, folder)
    return folder


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    done = CliRunner().invoke(app, ["export", str(run), "--out", str(folder), "--name", "toy"])
    assert done.exit_code == 0, done.output
    return folder


def torch_vectors(run: Path, rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Texts and features as the run's own model encodes them."""
    trained = load_mmp(run / "model")
    ids = trained.tokenizer.encode_batch(TEXTS, max_length=trained.max_text_tokens)
    flat = torch.tensor([number for text in ids for number in text])
    with torch.no_grad():
        texts = trained.model.encode_text(flat, Packing.of([len(text) for text in ids]))
        features = torch.from_numpy(np.concatenate(rows)).float()
        visuals = trained.model.encode_visual(features, Packing.of([len(part) for part in rows]))
    return texts.numpy(), visuals.numpy()


def test_exported_model_encodes_as_the_trained_one(run: Path, exported: Path) -> None:
    encoder = polyglance.load(exported, threads=1)
    assert isinstance(encoder, OnnxEncoder)
    taken = encoder.feature_input
    assert taken is not None
    assert (encoder.name, taken.max_tokens) == ("toy", 3)
    random = np.random.default_rng(0)
    rows = [random.normal(size=(count, taken.width)).astype("f4") for count in (1, 3, 2)]
    texts, visuals = torch_vectors(run, rows)
    assert cosines(encoder.encode_texts(TEXTS), texts).min() > 0.9999
    longer = [*rows[:1], np.concatenate([rows[1], rows[0]]), *rows[2:]]  # cut to three
    assert cosines(encoder.encode_features(longer), visuals).min() > 0.9999
    assert cosines(visuals[:-1], visuals[1:]).max() < 0.999
    loaded = load_torch(exported)
    for name, value in load_mmp(run / "model").model.state_dict().items():
        if name != "encoder.positions.weight":  # cut to the longest text
            torch.testing.assert_close(loaded.state_dict()[name], value, atol=1e-3, rtol=1e-3)


def test_evaluation_of_the_exported_model_repeats_the_report(
    toy: ToyCorpus, run: Path, exported: Path, tmp_path: Path
) -> None:
    arguments = ["evaluate", toy.data / "clips" / "test.jsonl", "--encoder", exported]
    arguments += ["--features", toy.data / "clips" / "features.npz", "--json", tmp_path / "r.json"]
    done = CliRunner().invoke(app, [*map(str, arguments), "-q"])
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "r.json").read_text())
    report = json.loads((run / "report.json").read_text())["test"]
    for language in ("en", "de"):
        measured = results["languages"][language]["text_to_image"]
        expected = report[language]["text_to_visual"]
        assert measured["queries"] == expected["queries"]
        assert measured["recalls"]["10"] == pytest.approx(
            expected["R@10"], abs=9
        )  # one query, in float16


def test_clips_are_indexed_by_their_features_and_found(
    toy: ToyCorpus, exported: Path, tmp_path: Path
) -> None:
    records = list(read_manifest(toy.data / "clips" / "test.jsonl"))[:4]
    names = [Path(str(record.video)).with_suffix(".mp4").name for record in records]
    clips = tmp_path / "clips"
    clips.mkdir()
    random = np.random.default_rng(0)
    for name in (*names, "unknown.mp4"):
        write_clip(clips / name, random.integers(0, 255, (2, 32, 32, 3), dtype=np.uint8), rate=1)
    library, features = tmp_path / "clips.polyglance", toy.data / "clips" / "features.npz"
    arguments = ["index", clips, "--library", library, "--model", exported]
    done = CliRunner().invoke(app, [*map(str, arguments), "--features", str(features), "-q"])
    assert done.exit_code == 0, done.output
    assert "4 added" in done.output
    assert "unknown.mp4: no features of it are stored" in done.output
    query = records[2].captions["de"][0]
    found = CliRunner().invoke(
        app, ["search", query, "--library", str(library), "-k", "4", "--json"]
    )
    assert found.exit_code == 0, found.output
    hits = {Path(hit["path"]).name: hit["score"] for hit in json.loads(found.output)}
    encoder = with_features(polyglance.load(exported, threads=1), [features])
    scores = encoder.encode_texts([query]) @ encoder.encode_records(records).T
    assert hits == pytest.approx(dict(zip(names, scores[0].tolist(), strict=True)), abs=2e-3)
    done = CliRunner().invoke(app, ["index", str(clips), "--library", str(tmp_path / "other"),
                                    "--model", str(exported), "-q"])  # fmt: skip
    assert isinstance(done.exception, PolyglanceError)
    assert "give their feature store with --features" in str(done.exception)


def test_features_of_another_width_and_models_of_pictures_are_refused(
    toy: ToyCorpus, exported: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "narrow.npz", ids=np.array(["a"]), features=np.ones((1, 2, 3)))
    encoder = polyglance.load(exported)
    with pytest.raises(PolyglanceError, match="takes features of width 432, and these have 3"):
        with_features(encoder, [tmp_path / "narrow.npz"])
    with pytest.raises(PolyglanceError, match="takes pictures and no features"):
        with_features(polyglance.load(), [toy.data / "clips" / "features.npz"])
    stored = with_features(encoder, [toy.data / "clips" / "features.npz"])
    with pytest.raises(PolyglanceError, match=r"no features of clips/none\.mp4 are stored"):
        stored.encode_pictures(["clips/none.mp4"])
    with pytest.raises(PolyglanceError, match="takes features and no pixels"):
        stored.encode_pictures([np.zeros((2, 2, 3), np.uint8)])
    with pytest.raises(PolyglanceError, match=r"takes features of \(1 or more, 432\), not"):
        encoder.encode_features([np.ones((0, 432))])  # type: ignore[attr-defined]
    with pytest.raises(PolyglanceError, match="holds no compressed model of pictures"):
        split_model(exported, tmp_path / "split")


def test_tokenizer_with_other_rules_is_stored_whole(run: Path, tmp_path: Path) -> None:
    """Such as mBERT's."""
    copy = tmp_path / "run" / "model"
    copy.mkdir(parents=True)
    for file in (run / "model").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    rules = json.loads((copy / "tokenizer.json").read_text())
    rules["normalizer"] = {"type": "Lowercase"}
    (copy / "tokenizer.json").write_text(json.dumps(rules))
    description = export_run(tmp_path / "run", tmp_path / "model", name="other")
    assert (description.text, description.format) == ("tokenizer", FORMAT)
    encoder = polyglance.load(tmp_path / "model", threads=1)
    upper, lower = encoder.encode_texts(["A RED CIRCLE", "a red circle"])
    np.testing.assert_array_equal(upper, lower)
    expected = torch_vectors(copy.parent, [np.ones((1, 432))])[0]
    assert cosines(encoder.encode_texts(TEXTS), expected).min() > 0.9999


def test_damaged_run_is_reported(run: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_bytes((run / "model" / "config.json").read_bytes())
    with pytest.raises(DataError, match="holds no MMP model"):
        export_run(tmp_path, tmp_path / "out", name="x")


def test_model_of_our_own_picture_features_takes_pictures(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backbone's map of 2 x 2 cells is pooled to 1, after the global vector, as stored."""
    from PIL import Image

    monkeypatch.setitem(backbone.LOADERS, "small", backbone_loader(tmp_path / "backbone"))
    data, random = tmp_path / "data", np.random.default_rng(0)
    records = []
    for number in range(6):
        pixels = random.integers(0, 256, (40, 60, 3), dtype=np.uint8)
        (data / "pictures").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(data / "pictures" / f"{number}.png")
        records.append(Record(image=f"pictures/{number}.png", captions={"en": (TEXTS[0],)}))
    write_manifest(data / "train.jsonl", records)
    settings = ExtractionSettings("small", size=SIZE, grid=1, labels=0, dtype="float16")
    extract(data / "train.jsonl", data / "store", settings, threads=1, quiet=True)
    recipe = replace(
        two_steps(toy.recipe),
        corpora=(TrainingCorpus("train.jsonl", "store", batch=4),),
        validation=None,
        test=FeatureSplit("train.jsonl", "store"),
        prepend_global=True,
    )
    train(recipe, data, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "model", name="pictures")
    description = ModelFolder.open(tmp_path / "model").description
    assert description.features is None
    assert description.pictures is not None
    assert (description.pictures.size, description.format) == (SIZE, FORMAT)
    encoder = polyglance.load(tmp_path / "model", threads=1)
    files = [data / str(record.image) for record in records]
    source = open_features([data / "store"], prepend_global=True)
    rows = [source.rows(source.find(record) or "") for record in records]
    assert rows[0].shape[0] == 2
    expected = torch_vectors(tmp_path / "run", rows)[1]
    assert cosines(encoder.encode_pictures(files), expected).min() > 0.999
