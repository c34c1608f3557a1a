"""Fine-tuning that leaves vectors of pictures and lower layers of the text encoder as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import polyglance
from helpers.small_mmp import WIDTH, cosines, small_model, tokenizer
from polyglance.batches.inputs import VectorTable
from polyglance.data.captions import CaptionTable
from polyglance.encoders.graph_reader import read_graph
from polyglance.encoders.model_folder import PICTURE, READER, TEXT, ModelFolder
from polyglance.encoders.reader import Reader
from polyglance.encoders.reader_pictures import EncodedPicture
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.export.fine_tuned import fine_tuned_state, load_quantised, write_fine_tuned
from polyglance.export.from_run import export_run
from polyglance.models.mmp import MMPObjective
from polyglance.nn.packing import Packing
from polyglance.objectives.nce import nce
from polyglance.recipes import open_recipe
from polyglance.recipes.fine_tune import data as fine_tune_data
from polyglance.recipes.fine_tune import train as fine_tune_train
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.fine_tune.tasks import build_task
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.search.model_info import picture_models
from polyglance.search.store import ModelInfo

WORDS = ("red", "green", "blue", "white", "black", "brown", "pink", "gold", "navy", "teal")
FROZEN = 2
SETTINGS = ("keep_pictures=true", f"frozen_text_layers={FROZEN}", "batch=8", "captions_per_image=2",
            "loop.steps=6", "loop.learning_rate=1e-2", "captions=first/train.jsonl",
            "extra_train=[second/train.jsonl]", "validation=second/val.jsonl",
            "loop.validate_every=2", "held_out=0.001", "interpolation=0.5")  # fmt: skip


def write_corpus(folder: Path, split: str, count: int, start: int) -> None:
    """Write pictures of noise on a colour, with captions in two languages."""
    folder.mkdir(exist_ok=True)
    records = []
    for number in range(start, start + count):
        noise = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        picture = Image.fromarray(noise).resize((64, 64))
        colour = WORDS[number % len(WORDS)]
        picture.paste(colour, (0, 0, 40, 40))
        picture.save(folder / f"{split}{number}.png")
        captions = {"en": (f"{colour} {number}", f"a {colour}"), "de": (f"{number} {colour}",)}
        records.append(Record(image=f"{split}{number}.png", captions=captions))
    write_manifest(folder / f"{split}.jsonl", records)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, and pictures in two folders."""
    folder = tmp_path_factory.mktemp("kept")
    small_model().export(folder / "small")
    write_corpus(folder / "first", "train", 12, 0)
    write_corpus(folder / "second", "train", 9, 100)
    write_corpus(folder / "second", "val", 10, 200)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A run that keeps pictures and two layers, and its report."""
    place = folder / "run"
    report = open_recipe("fine-tune", [*SETTINGS, f"model={folder / 'small'}"]).train(folder, place)
    return place, report


def test_pictures_keep_their_vectors_and_texts_learn(
    folder: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    before, after = folder / "small", run[0] / "model"
    assert (before / PICTURE).read_bytes() == (after / PICTURE).read_bytes()
    pictures = sorted((folder / "second").glob("*.png"))
    models = [polyglance.load(place) for place in (before, after)]
    first, second = (model.encode_pictures(pictures) for model in models)
    np.testing.assert_array_equal(first, second)
    texts = [model.encode_texts(["a red", "blue 3"]) for model in models]
    assert np.abs(texts[0] - texts[1]).max() > 0.01
    assert models[0].fingerprint != models[1].fingerprint


def test_frozen_layers_keep_their_bytes_and_others_do_not(
    folder: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    before, after = (
        read_graph((place / TEXT).read_bytes()).weights
        for place in (folder / "small", run[0] / "model")
    )
    assert before.keys() == after.keys()
    changed = {
        name
        for name in before
        if np.asarray(before[name]).tobytes() != np.asarray(after[name]).tobytes()
    }
    frozen = tuple(f"encoder.layers.{number}." for number in range(FROZEN))
    assert any(name.startswith(frozen) for name in before)
    assert not any(name.startswith(frozen) for name in changed)
    learned = [name for name in changed if name.startswith("encoder.")]
    assert learned
    assert all(name.startswith(f"encoder.layers.{FROZEN}.") for name in learned)
    assert any(name.startswith("text_pooling.") for name in changed)


def test_frozen_layers_are_no_part_of_the_gradient(folder: Path) -> None:
    model = load_quantised(ModelFolder.open(folder / "small"))
    fine_tune_train.freeze(model, FineTuneRecipe(frozen_text_layers=FROZEN, keep_pictures=True))
    model.train()
    seen = []
    for layer in model.encoder.layers:
        layer.register_forward_hook(lambda *given: seen.append(given[2].requires_grad))
    model.encode_text(torch.tensor([0, 5, 2]), Packing.of([3])).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == [False, False, True]
    names = fine_tune_train.trainable(model)
    assert names
    assert all(name.startswith((f"encoder.layers.{FROZEN}.", "text_")) for name in names)
    with pytest.raises(PolyglanceError, match="has 3 layers: lower frozen_text_layers"):
        fine_tune_train.freeze(model, FineTuneRecipe(frozen_text_layers=4))


def test_validation_is_of_the_model_that_is_written(
    folder: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    place, report = run
    records = list(read_manifest(folder / "second" / "val.jsonl"))
    for name, model_folder in (("before", folder / "small"), ("after", place / "model")):
        model = polyglance.load(model_folder)
        images = model.encode_pictures([folder / "second" / str(r.image) for r in records])
        for code in ("en", "de"):
            texts = [(t, n) for n, r in enumerate(records) for t in r.captions[code]]
            vectors = model.encode_texts([text for text, _ in texts])
            found = evaluate_retrieval(images, vectors, np.array([n for _, n in texts]))
            # Graphs round a little differently: a rank or two of thirty may differ.
            expected = pytest.approx(float(found.mean_recall), abs=4)
            assert report["validation"][name][code] == expected, (name, code)
    assert report["validation"]["before"] != report["validation"]["after"]
    lines = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
    averages = {
        line["step"]: line["validation"]["average"] for line in lines if "validation" in line
    }
    assert list(averages) == [2, 4, 6]
    assert report["validation"]["after"]["average"] == pytest.approx(averages[report["best_step"]])
    assert averages[report["best_step"]] == max(averages.values())
    described = json.loads((place / "model" / "model.json").read_text())
    assert described["figures"]["validation"] == report["validation"]["after"]
    assert report["pictures"] == {"trained on": 20, "held out": 1}
    (held_out,) = read_manifest(place / "held-out.jsonl")
    assert (place / str(held_out.image)).resolve().is_file()


def test_weights_are_as_trained_after_they_were_interpolated(folder: Path) -> None:
    model = load_quantised(ModelFolder.open(folder / "small"))
    before = {n: p.detach().clone() for n, p in fine_tune_train.trainable(model).items()}
    with torch.no_grad():
        for parameter in fine_tune_train.trainable(model).values():
            parameter.mul_(1.1)
    trained = {n: p.detach().clone() for n, p in fine_tune_train.trainable(model).items()}
    with fine_tune_train.interpolated(model, before, 0.5):
        for name, parameter in fine_tune_train.trainable(model).items():
            torch.testing.assert_close(parameter.detach(), (before[name] + trained[name]) / 2)
    for name, parameter in fine_tune_train.trainable(model).items():
        assert torch.equal(parameter.detach(), trained[name])


def test_a_language_with_more_weight_is_drawn_more_often(folder: Path) -> None:
    model = load_quantised(ModelFolder.open(folder / "small"))
    records = [Record(image=f"{n}", captions={"en": ("a",), "de": ("b",), "fa": ("c",)})
               for n in range(50)]  # fmt: skip
    captions = CaptionTable.build(records, tokenizer())
    letters = {tuple(tokenizer().encode(text)): text for text in "abc"}
    visuals = VectorTable(torch.randn(50, WIDTH))

    def share(weights: dict[str, float]) -> float:
        recipe = FineTuneRecipe(batch=50, keep_pictures=True, language_weights=weights)
        task, generator = build_task(model, visuals, captions, recipe), np.random.default_rng(0)
        counts = Counter[str]()
        for _ in range(40):
            (text,) = task.sample(generator).captions
            ends = text.packing.cu_seqlens.tolist()
            for start, end in pairwise(ends):
                counts[letters[tuple(text.ids[start:end].tolist())]] += 1
        return counts["c"] / counts.total()

    assert share({}) == pytest.approx(1 / 3, abs=0.04)
    assert share({"fa": 4.0}) == pytest.approx(4 / 6, abs=0.04)
    with pytest.raises(PolyglanceError, match=r"names frr, .*: the captions are in en, de, fa$"):
        share({"frr": 3.0})
    with pytest.raises(PolyglanceError, match="give finite numbers above 0"):
        FineTuneRecipe(language_weights={"fa": 0.0})


def test_the_loss_is_that_of_the_vectors(folder: Path) -> None:
    model = load_quantised(ModelFolder.open(folder / "small")).eval()
    records = [Record(image=f"{n}", captions={"en": (f"a {n}",), "de": (f"b {n}",)})
               for n in range(6)]  # fmt: skip
    captions = CaptionTable.build(records, tokenizer())
    vectors = torch.nn.functional.normalize(torch.randn(6, WIDTH), dim=1)
    objective = MMPObjective(negatives="symmetric", temperature=0.2, intra=False)
    recipe = FineTuneRecipe(batch=6, captions_per_image=2, keep_pictures=True, objective=objective)
    task = build_task(model, VectorTable(vectors), captions, recipe)
    batch = task.sample(np.random.default_rng(3))
    images = batch.visuals.load()[0]
    expected = sum(
        nce(model.encode_text(t.ids, t.packing), images, temperature=0.2, negatives="symmetric")
        for t in batch.captions
    )
    torch.testing.assert_close(task.losses(batch)["inter"], expected)
    assert sorted(images[:, 0].tolist()) == sorted(vectors[:, 0].tolist())


def test_pictures_are_encoded_in_chunks_as_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ModelFolder.open(folder / "small")
    model, preprocessing = load_quantised(source), source.description.pictures
    assert preprocessing is not None
    records, _ = fine_tune_data.read_captions([folder / "first" / "train.jsonl"])
    broken = folder / "broken.png"
    broken.write_bytes(b"no picture")
    records.insert(5, Record(image=str(broken), captions={"en": ("a",)}))
    monkeypatch.setattr(fine_tune_data, "CHUNK", 5)
    kept, vectors = fine_tune_data.encode_pictures(records, model, preprocessing)
    assert "broken.png" in capsys.readouterr().err
    assert [r.image for r in kept] == [r.image for n, r in enumerate(records) if n != 5]
    exported = polyglance.load(folder / "small").encode_pictures([str(r.image) for r in kept])
    assert cosines(vectors.numpy(), exported).min() > 0.999
    assert fine_tune_data.encode_pictures([], model, preprocessing)[1].shape == (0, WIDTH)


def test_a_library_of_the_model_before_stays_valid(
    folder: Path, run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    with polyglance.Library(tmp_path / "own.polyglance", model=folder / "small") as library:
        assert library.add(folder / "first").added == 12
    with polyglance.Library(tmp_path / "own.polyglance", model=run[0] / "model") as library:
        assert library.search("a red", k=3)
        report = library.add(folder / "first")
        assert (report.added, report.unchanged) == (0, 12)
    small_model(seed=7).export(tmp_path / "other")
    with (
        pytest.raises(PolyglanceError, match="cannot be used with"),
        polyglance.Library(tmp_path / "own.polyglance", model=tmp_path / "other") as library,
    ):
        library.search("a red", k=3)


@pytest.mark.parametrize("into", ["before", "after"])
def test_libraries_of_both_models_can_be_merged(
    folder: Path, run: tuple[Path, dict[str, Any]], tmp_path: Path, into: str
) -> None:
    models = {"before": folder / "small", "after": run[0] / "model"}
    small_model(seed=7).export(tmp_path / "other")
    (of,) = models.keys() - {into}
    with (
        polyglance.Library(tmp_path / "of.polyglance", model=models[of]) as source,
        polyglance.Library(tmp_path / "into.polyglance", model=models[into]) as library,
        polyglance.Library(tmp_path / "other.polyglance", model=tmp_path / "other") as other,
    ):
        source.add(folder / "second")
        library.add(folder / "first")
        other.add(folder / "first")
        assert library.merge(source) == 19
        with pytest.raises(PolyglanceError, match="put it back, or index again"):
            other.merge(source)


def test_two_models_fine_tuned_from_one_share_their_libraries(
    folder: Path, run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    settings = [*SETTINGS, "loop.seed=5", "name=sibling", f"model={folder / 'small'}"]
    open_recipe("fine-tune", settings).train(folder, tmp_path / "sibling")
    models = (run[0] / "model", tmp_path / "sibling" / "model")
    first, second = (ModelFolder.open(model).description for model in models)
    assert first.fingerprint != second.fingerprint
    with (
        polyglance.Library(tmp_path / "one.polyglance", model=models[0]) as one,
        polyglance.Library(tmp_path / "two.polyglance", model=models[1]) as two,
    ):
        one.add(folder / "first")
        two.add(folder / "second")
        assert two.merge(one) == 12
    with polyglance.Library(tmp_path / "one.polyglance", model=models[1]) as library:
        assert library.search("a red", k=3)
        assert library.keeps_other_model
        assert library.model_name == second.name
    with polyglance.Library(tmp_path / "one.polyglance") as library:
        assert not library.keeps_other_model
        assert library.model_name == first.name
    # Their vectors of pictures are those of the model before, which a reader may belong to.
    assert picture_models(ModelInfo("x", str(models[1]), second.fingerprint, WIDTH, "")) == {
        second.fingerprint, ModelFolder.open(folder / "small").description.fingerprint,
    }  # fmt: skip
    moved = ModelInfo("x", str(tmp_path / "moved"), second.fingerprint, WIDTH, "")
    assert picture_models(moved) == {second.fingerprint}


def test_a_reader_is_taken_along_while_its_layers_are_as_they_were(tmp_path: Path) -> None:
    source = ModelFolder.open()
    state = fine_tuned_state(load_quantised(source), source, ())

    def write(name: str, layer: int) -> ModelFolder:
        own = dict(state)
        prefix = f"encoder.layers.{layer}."
        bias = next(n for n in state if n.startswith(prefix) and n.endswith("bias"))
        own[bias] = state[bias] + 1
        write_fine_tuned(source, own, tmp_path / name, name=name, languages=["en"], figures={})
        return ModelFolder.open(tmp_path / name)

    same = write_fine_tuned(
        source, state, tmp_path / "same", name="same", languages=["en"], figures={}
    )
    for graph in (TEXT, PICTURE):
        assert same.files[graph] == source.description.files[graph]
    above = write("above", 6)
    assert above.description.fingerprint != source.description.fingerprint
    reader = Reader(above)
    assert reader.config.model == above.description.fingerprint
    before, now = source.description.fingerprint, above.description.fingerprint
    picture = EncodedPicture(np.zeros((0, 4), np.float16), np.eye(4, dtype=np.float32)[0])
    for model in (before, now):  # a library of either has the same vectors of pictures
        scores = reader.dual_scores(np.ones(4, np.float32), [picture], np.zeros(1), models=[model])
        assert scores == pytest.approx([0.5])
    assert reader.dual_scores(np.ones(4), [picture], np.zeros(1), models=["x"]) is None
    assert READER not in write("below", 5).description.files


def test_a_run_without_onnx_is_exported_later(
    folder: Path, run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    place = tmp_path / "run"
    settings = [*SETTINGS, f"model={folder / 'small'}"]
    script = (
        "import sys\n"
        "for name in ('pydantic', 'omegaconf', 'onnx', 'onnxruntime', 'av', 'datasets', 'faiss'):\n"
        "    sys.modules[name] = None\n"
        "from pathlib import Path\n"
        "from polyglance.recipes import open_recipe\n"
        "from polyglance.recipes.fine_tune import train\n"
        "train.find_spec = lambda name: None\n"
        f"settings = {settings!r}\n"
        f"open_recipe('fine-tune', settings).train(Path({str(folder)!r}), Path({str(place)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"polyglance export {place} --out {place / 'model'}" in done.stderr
    assert not (place / "model").exists()
    assert export_run(place, tmp_path / "model").name == "fine-tuned"
    # Two trainings agree but for rounding, two exports of one to the byte.
    texts = ["a red", "blue 3", "grün 100"]
    models = [polyglance.load(at) for at in (tmp_path / "model", run[0] / "model")]
    later, once = (model.encode_texts(texts) for model in models)
    assert cosines(later, once).min() > 0.999
    assert export_run(run[0], tmp_path / "again", name="another").name == "another"
    for graph in (TEXT, PICTURE):
        assert (tmp_path / "again" / graph).read_bytes() == (run[0] / "model" / graph).read_bytes()


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="set backbone_lr_multiplier to 0"):
        open_recipe("fine-tune", ["keep_pictures=true", "backbone_lr_multiplier=0.1"])
    with pytest.raises(
        PolyglanceError, match=r"set objective\.intra and objective\.cross to false"
    ):
        open_recipe("fine-tune", ["keep_pictures=true", "objective.intra=true"])
    with pytest.raises(PolyglanceError, match="leave out min_crop_area and mirror"):
        open_recipe("fine-tune", ["keep_pictures=true", "mirror=false"])
    with pytest.raises(PolyglanceError, match="give finite numbers above 0"):
        open_recipe("fine-tune", ["language_weights={de: .inf}"])
