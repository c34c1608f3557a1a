"""A reader from manifests to an exported model, on colours and a small dual encoder."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file

from helpers.small_mmp import small_model
from polyglance.batches.inputs import pack_captions
from polyglance.config import load
from polyglance.data.captions import CaptionTable
from polyglance.encoders.model_folder import ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.reader import Reader
from polyglance.errors import DataError, PolyglanceError
from polyglance.export.from_run import export_run
from polyglance.models.vqa import VQAModel
from polyglance.recipes import open_recipe
from polyglance.recipes.compact_reader import train as reader_train
from polyglance.recipes.compact_reader.config import (
    ReaderCompression,
    ReaderCorpus,
    ReaderRecipe,
)
from polyglance.recipes.compact_reader.data import ReaderData, load_data
from polyglance.recipes.compact_reader.evaluation import ReaderEvaluation, dual_scores
from polyglance.recipes.compact_reader.tasks import (
    DistilledAnswers,
    DistilledScores,
    TransferredQuestions,
    find_hard_negatives,
    listwise_loss,
    mine_hard_negatives,
)
from polyglance.recipes.plan.compact_reader import build_reader_run
from polyglance.recipes.vqa.questions import answer_targets, hash_share
from polyglance.records import Record, write_manifest

COLOURS = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250), "white": (250,) * 3}
ANSWERS = {
    "en": {name: name for name in COLOURS},
    "vi": dict(zip(COLOURS, ["đỏ", "lục", "lam", "trắng"], strict=True)),
}


_EIGHT_BITS = 0.02
"""The graph of an export rounds what weights are multiplied by to 8 bits; torch does not."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of one colour with a caption in two languages and a question in two."""
    folder = tmp_path_factory.mktemp("data") / "colours"
    (folder / "images").mkdir(parents=True)
    generator = np.random.default_rng(0)
    lines: dict[str, list[dict[str, Any]]] = {"train": [], "more": [], "test": []}
    splits: dict[str, list[Record]] = {"train": [], "val": []}
    for number in range(32):
        name = list(COLOURS)[number % 4]
        split = "val" if number >= 24 else "train"
        noise = generator.integers(-5, 6, (20, 30, 3))
        pixels = np.clip(np.array(COLOURS[name]) + noise, 0, 255).astype(np.uint8)
        path = f"images/{split}-{number}.png"
        Image.fromarray(pixels).save(folder / path)
        texts = {"en": (f"a {name} dog {number}",), "de": (f"ein Hund {name} {number}",)}
        splits[split].append(Record(image=path, captions=texts))
        for language, question in (("en", "What colour is the dog?"), ("vi", "màu gì")):
            line = {"image": path, "question": question, "language": language}
            answer = ANSWERS[language][name]
            if split == "val":
                lines["test"].append(line | {"answers": [answer] * 10})
            elif language == "en":
                lines["more"].append(line | {"answer": answer})
                lines["train"].append(line | {"answers": {answer: 1, "other": 0.1}})
            else:
                lines["train"].append(line | {"answers": [answer] * 3})
    for name, records in splits.items():
        write_manifest(folder / f"{name}.jsonl", records)
    for name, own in lines.items():
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in own)
        (folder / f"questions-{name}.jsonl").write_text(text, encoding="utf-8")
    (folder.parent / "more").mkdir()
    packed = lzma.compress((folder / "questions-more.jsonl").read_bytes())
    (folder.parent / "more" / "questions.jsonl.xz").write_bytes(packed)
    return folder.parent


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> ReaderRecipe:
    dual = small_model().export(tmp_path_factory.mktemp("dual") / "model")
    return load(ReaderRecipe, settings(dual))


def settings(dual: Path, steps: int = 3) -> dict[str, Any]:
    """Return a recipe that takes seconds."""
    return {
        "dual_encoder": str(dual),
        "layers": 2,
        "image_layers": True,
        "image_size": 96,  # the dual encoder's is 64
        "max_text_tokens": 20,
        "stored_views": 2,
        "itm_only_steps": 2,
        "seeds": 2,
        "captions": [{"manifest": "colours/train.jsonl"}],
        "questions": [
            {"manifest": "colours/questions-train.jsonl"},
            {"manifest": "more/questions.jsonl.xz", "images": "colours"},
        ],
        "validation": {"manifest": "colours/val.jsonl"},
        "test": {"manifest": "colours/val.jsonl"},
        "question_tests": [{"manifest": "colours/questions-test.jsonl"}],
        "retrieval": {"batch": 4, "negatives": 2, "hard_negative_pool": 4, "candidates": 4},
        "answering": {"batch": 8, "min_score": 1, "held_out": 0.2},
        "loop": {"steps": steps, "learning_rate": 1e-3, "save_every": 0},
        "compression": {"steps": 2, "warmup": 0},
    }


@pytest.fixture(scope="module")
def trained(
    recipe: ReaderRecipe, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], VQAModel]:
    """Return a run, its report and the compressed model."""
    run, kept = tmp_path_factory.mktemp("run") / "run", list[VQAModel]()
    original = reader_train.compress
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            reader_train,
            "compress",
            lambda *a: kept.append(original(*a)) or kept[0],  # type: ignore[func-returns-value]
        )
        report = reader_train.train(recipe, data, run)
    return run, report, kept[0].eval()


def test_the_report_has_both_readers_and_both_tasks(
    trained: tuple[Path, dict[str, Any], VQAModel],
) -> None:
    run, report, _ = trained
    assert json.loads((run / "report.json").read_bytes()) == report
    assert 12 < report["images"] < 24  # the others are held out
    assert report["answers"] == {"en": 4, "vi": 4}
    measured = {"validation", "test", "questions"}
    assert [one["seed"] for one in report["trained"].values()] == [0, 1]
    for figures in report["trained"].values():
        assert set(figures) == {"seed", "itm_only", "training", *measured}
        assert figures["training"]["steps"] == 3
    assert set(report["compressed"]) == measured
    for figures in (*report["trained"].values(), report["compressed"]):
        assert set(figures["test"]) == {"dual", "dual_tta", "reranked"}
        assert set(figures["questions"]) >= {"en", "vi"}


def test_the_export_answers_and_scores_as_torch_does(
    trained: tuple[Path, dict[str, Any], VQAModel], recipe: ReaderRecipe, data: Path
) -> None:
    run, _, model = trained
    reader = Reader.open(run / "model")
    loaded = load_data(recipe, data, "cpu")
    split = loaded.question_tests[0]
    rows = np.arange(len(split.table))
    regions = split.regions.take(split.table.record_ids[rows])[0]
    with torch.inference_mode():
        logits = model(pack_captions(split.table, rows), regions)
    paths = sorted((data / "colours" / "images").glob("val-*.png"))
    for row, question in enumerate(split.questions):
        path = paths[split.table.record_ids[row]]
        expected = dict(zip(loaded.answers.names, logits[row].sigmoid().tolist(), strict=True))
        total = sum(own for (code, _), own in expected.items() if code == question.language)
        for answer in reader.ask(path, question.text, language=question.language, k=4):
            share = expected[answer.language, answer.text] / total
            assert answer.probability == pytest.approx(share, abs=_EIGHT_BITS)
    validation = loaded.validation and loaded.validation.split
    assert validation is not None
    rows = validation.captions.rows_in_language("en")
    cells = validation.regions.take(validation.captions.record_ids[rows])[0]
    cross = model.cross_encoder
    with torch.inference_mode():
        text = pack_captions(validation.captions, rows)
        expected_scores = cross.score(text, cross.embed_regions(cells)).numpy()
    files = [data / "colours" / str(record.image) for record in validation.records]
    encoded = reader.encode_images(files)
    scores = [
        reader.score(record.captions["en"][0], [own])[0]
        for record, own in zip(validation.records, encoded, strict=True)
    ]
    np.testing.assert_allclose(scores, expected_scores, atol=_EIGHT_BITS)


def test_its_cosines_are_the_mean_over_both_sizes(
    trained: tuple[Path, dict[str, Any], VQAModel], recipe: ReaderRecipe, data: Path
) -> None:
    run, _, _ = trained
    reader, encoder = Reader.open(run / "model"), OnnxEncoder(ModelFolder.open(run / "model"))
    loaded = load_data(recipe, data, "cpu")
    assert loaded.validation is not None
    split = loaded.validation.split
    expected = dual_scores(loaded.dual, loaded.validation)
    assert expected.tta_cosines is not None
    files = [data / "colours" / str(record.image) for record in split.records]
    encoded, vectors = reader.encode_images(files), encoder.encode_pictures(files)
    for place, record in enumerate(split.records):
        query = encoder.encode_texts([record.captions["en"][0]])[0]
        cosines = vectors @ query
        np.testing.assert_allclose(cosines, expected.cosines["en"][:, place], atol=_EIGHT_BITS)
        found = reader.dual_scores(query, encoded, cosines, models=[reader.config.model])
        assert found is not None
        np.testing.assert_allclose(found, expected.tta_cosines["en"][:, place], atol=_EIGHT_BITS)
        assert np.abs(found - cosines).max() > 1e-3
        assert reader.dual_scores(query, encoded, cosines, models=["another"]) is None


def test_a_reader_of_the_dual_encoders_size_leaves_the_cosines(
    recipe: ReaderRecipe, data: Path
) -> None:
    loaded = load_data(replace(recipe, image_size=None), data, "cpu")
    assert loaded.validation is not None
    assert loaded.validation.dual_regions is None
    assert dual_scores(loaded.dual, loaded.validation).tta_cosines is None


def test_the_reader_has_no_words_of_its_own(
    trained: tuple[Path, dict[str, Any], VQAModel], recipe: ReaderRecipe
) -> None:
    run, report, model = trained
    names = load_file(run / "compact" / "compact.safetensors")
    assert not [name for name in names if "words" in name or "word_bias" in name]
    source = ModelFolder.open(recipe.dual_encoder)
    exported = ModelFolder.open(run / "model")
    assert exported.description.fingerprint == source.description.fingerprint
    assert not model.cross_encoder.encoder.words.weight.requires_grad
    reader = Reader.open(run / "model")
    assert reader.dual_weight == report["compressed"]["validation"]["dual_weight"]
    assert reader.detect_language("màu gì") == "vi"
    assert reader.detect_language("what colour") == "en"


def test_a_reader_is_exported_only_with_its_dual_encoder(
    trained: tuple[Path, dict[str, Any], VQAModel], tmp_path: Path
) -> None:
    run, _, _ = trained
    other = small_model(seed=3).export(tmp_path / "other")
    config = run / "compact" / "config.json"
    before = config.read_text()
    config.write_text(json.dumps(json.loads(before) | {"dual_encoder": str(other)}))
    try:
        with pytest.raises(PolyglanceError, match="is not the model that the reader of"):
            export_run(run, tmp_path / "model", name="model")
    finally:
        config.write_text(before)


def test_it_learns_to_answer_and_to_match(recipe: ReaderRecipe, data: Path, tmp_path: Path) -> None:
    plain = settings(Path(recipe.dual_encoder), steps=150)
    plain |= {"dropout": 0, "drop_cells": 0, "min_crop_area": 0.9}
    plain |= {"itm_only_steps": 0, "seeds": 1}
    plain["image_layers"] = False  # the dual encoder's are random here, and know one size
    plain["image_size"] = None
    plain["answering"] |= {"weight": 1, "head_dropout": 0}
    plain["loop"]["learning_rate"] = 5e-4
    # The hardest negatives have the same colour.
    plain["retrieval"] |= {"batch": 12, "hard_negative_pool": 0}
    plain["compression"] = {"steps": 25, "warmup": 0}
    report = reader_train.train(load(ReaderRecipe, plain), data, tmp_path / "run")
    for figures in (report["trained"]["reader0"], report["compressed"]):
        scores = figures["questions"]
        assert [scores[code]["model"]["score"] for code in ("en", "vi")] == [100, 100]
    reader = Reader.open(tmp_path / "run" / "model")
    pictures = [data / "colours" / "images" / f"val-{number}.png" for number in range(24, 28)]
    encoded = reader.encode_images(pictures)  # one of each colour
    best = [int(reader.score(f"a {name} dog", encoded).argmax()) for name in COLOURS]
    assert sum(np.equal(best, range(4))) >= 3


def test_test_images_are_never_trained_on(recipe: ReaderRecipe, data: Path) -> None:
    plain = settings(Path(recipe.dual_encoder))
    plain["captions"].append({"manifest": "colours/val.jsonl"})
    plain["questions"].append({"manifest": "colours/questions-test.jsonl"})
    loaded = load_data(load(ReaderRecipe, plain), data, "cpu")
    assert loaded.held_out is not None
    assert len(loaded.regions) + len(loaded.held_out.regions) == 24


def test_images_with_labels_alone_are_not_read(recipe: ReaderRecipe, data: Path) -> None:
    labelled = [Record(image="images/no-such-file.png", labels=("dog",))]
    write_manifest(data / "colours" / "labels.jsonl", labelled)
    plain = settings(Path(recipe.dual_encoder))
    plain["captions"].append({"manifest": "colours/labels.jsonl"})
    loaded = load_data(load(ReaderRecipe, plain), data, "cpu")
    assert len(loaded.regions) == len(load_data(recipe, data, "cpu").regions)


@pytest.mark.parametrize("training", [None, 128])
def test_training_images_have_a_size_of_their_own(
    recipe: ReaderRecipe, data: Path, training: int | None
) -> None:
    loaded = load_data(replace(recipe, training_image_size=training, stored_views=0), data, "cpu")
    assert loaded.validation is not None
    assert loaded.held_out is not None
    used = (loaded.validation.split.regions, loaded.held_out.regions)
    assert [image_side(regions) for regions in used] == [96, 96]
    assert image_side(loaded.regions) == (training or 64)  # the dual encoder's is 64
    assert loaded.grid == used[0].grid != loaded.regions.grid


def image_side(regions: Any) -> int:
    """Return the pixels a side of the images behind regions."""
    return int(regions.images.pixels.shape[-2])  # channels come last


@pytest.mark.parametrize(("text_layers", "stored_views"), [(0, 0), (2, 2)])
def test_regions_begin_with_the_scale_of_a_text(
    recipe: ReaderRecipe, data: Path, text_layers: int, stored_views: int
) -> None:
    changed = replace(recipe, text_layers=text_layers, stored_views=stored_views)
    loaded = load_data(changed, data, "cpu")
    model = reader_train.build_model(changed, loaded, "cpu")
    cross = model.cross_encoder.eval()
    with torch.no_grad():
        text = cross.embed_text(pack_captions(loaded.captions, np.arange(len(loaded.captions))))
        images = cross.embed_regions(loaded.regions.take(np.arange(len(loaded.regions)))[0])
    lengths = [part.rows.norm(dim=1).mean().item() for part in (text, images)]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.15)


def test_image_layers_begin_as_the_dual_encoders(recipe: ReaderRecipe, data: Path) -> None:
    loaded = load_data(recipe, data, "cpu")
    model = reader_train.build_model(recipe, loaded, "cpu").cross_encoder.eval()
    regions = loaded.regions.take(np.arange(5))[0]
    with torch.no_grad():
        rows = model.region_feature(regions.features)
        for layer in model.image_layers:
            rows = layer(rows, regions.packing)
        pooled = F.normalize(regions.packing.first(rows), dim=1)
        expected = loaded.dual.model.encode_visual(regions.features, regions.packing)
    torch.testing.assert_close(pooled, expected)
    without = reader_train.build_model(replace(recipe, image_layers=False), loaded, "cpu")
    assert not len(without.cross_encoder.image_layers)


def test_a_plan_has_the_model_that_is_trained(recipe: ReaderRecipe, data: Path) -> None:
    loaded = load_data(recipe, data, "cpu")
    for image_layers in (False, True):
        changed = replace(recipe, image_layers=image_layers)
        trained = reader_train.build_model(changed, loaded, "cpu").cross_encoder
        run = build_reader_run(changed, 8, "cpu")
        assert [stage.loop.steps for stage in run.stages] == [2 * 3]  # of both seeds
        planned = run.model.cross_encoder
        assert planned.config == trained.config
        shapes = [
            {k: v.shape for k, v in model.state_dict().items()} for model in (planned, trained)
        ]
        assert shapes[0] == shapes[1]


def test_training_continues_from_a_models_reader(
    trained: tuple[Path, dict[str, Any], VQAModel], recipe: ReaderRecipe, data: Path
) -> None:
    run, _, model = trained
    # Answers that are too rare for a class of their own are classes all the same.
    rare = replace(recipe.answering, min_score=1000)
    continued = replace(recipe, initialise_from=str(run / "model"), answering=rare)
    loaded = load_data(continued, data, "cpu")
    assert loaded.answers.by_language == load_data(recipe, data, "cpu").answers.by_language
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    begun = reader_train.initialise_model(continued, loaded, targets, "cpu").eval()
    assert loaded.validation is not None
    split = loaded.validation.split
    rows = np.arange(len(split.captions))
    regions = split.regions.take(split.captions.record_ids[rows])[0]
    text = pack_captions(split.captions, rows)
    with torch.inference_mode():
        places = [
            own.cross_encoder.embed_image(regions) + own.cross_encoder.image_segment
            for own in (begun, model)
        ]
        answers = [own(text, regions) for own in (begun, model)]
    # 4-bit weights are read as they are, and where cells lie is fitted.
    error = (places[0] - places[1]).square().mean().sqrt() / places[1].std()
    assert float(error) < 0.05
    torch.testing.assert_close(answers[0], answers[1], atol=0.05, rtol=0)
    assert float((answers[1] - answers[1].mean(0)).abs().max()) > 0.3  # much more than that
    report = reader_train.train(continued, data, run.parent / "continued")
    assert report["trained"]["reader0"]["training"]["steps"] == 3


def test_a_reader_of_another_shape_is_not_continued(
    trained: tuple[Path, dict[str, Any], VQAModel], recipe: ReaderRecipe, data: Path, tmp_path: Path
) -> None:
    run, _, _ = trained
    begun = replace(recipe, initialise_from=str(run / "model"))
    for change in ({"text_layers": 1}, {"layers": 3}, {"layers": 1}, {"image_layers": False}):
        needed = "set text_layers: 0, layers: 2, image_layers: true"
        with pytest.raises(PolyglanceError, match=needed):
            load_data(replace(begun, **change), data, "cpu")  # type: ignore[arg-type]
    other = str(small_model(seed=3).export(tmp_path / "other"))
    with pytest.raises(PolyglanceError, match=r"of another model than .*other: set dual_encoder"):
        load_data(replace(begun, dual_encoder=other), data, "cpu")
    with pytest.raises(PolyglanceError, match="has no reader"):
        load_data(replace(recipe, initialise_from=recipe.dual_encoder), data, "cpu")


def test_layers_that_the_dual_encoder_lacks_are_refused(recipe: ReaderRecipe, data: Path) -> None:
    for change in ({"layers": 9}, {"text_layers": 9}):
        with pytest.raises(PolyglanceError, match="text encoder has 3 layers"):
            load_data(replace(recipe, **change), data, "cpu")


def test_hard_negatives_are_what_the_dual_encoder_confuses(
    recipe: ReaderRecipe, data: Path
) -> None:
    loaded = load_data(recipe, data, "cpu")
    found = mine_hard_negatives(loaded.dual.model, loaded.regions, loaded.captions, 5)
    assert found.shape == (len(loaded.regions), 5)
    fewer = mine_hard_negatives(loaded.dual.model, loaded.regions, loaded.captions, 5, gallery=7)
    assert fewer.shape == found.shape
    assert len(np.unique(fewer)) <= 7  # one block has one gallery
    # The first of a gallery stands, on average, behind the first of all images.
    whole = mine_hard_negatives(loaded.dual.model, loaded.regions, loaded.captions, 99)
    places = [list(whole[image]).index(fewer[image][0]) for image in range(len(fewer))]
    assert np.mean(places) > 0.5
    with_captions = set(loaded.captions.record_ids.tolist())
    for image, others in enumerate(found.tolist()):
        assert image not in others
        assert set(others) <= with_captions


def test_the_listwise_loss_compares_each_list_by_itself() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    expected = []
    for row in scores.tolist():
        for others in (row[1:3], row[3:]):
            total = sum(np.exp([row[0], *others]))
            expected.append(-np.log(np.exp(row[0]) / total))
    assert listwise_loss(scores, 2).item() == pytest.approx(np.mean(expected))


def test_a_compressed_reader_learns_the_mean_of_its_teachers(
    recipe: ReaderRecipe, data: Path
) -> None:
    loaded = load_data(recipe, data, "cpu")
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    models = []
    for seed in range(3):
        seeded = replace(recipe, loop=replace(recipe.loop, seed=seed))
        models.append(reader_train.build_model(seeded, loaded, "cpu").eval())
        torch.nn.init.normal_(models[-1].cross_encoder.match.weight, std=1.0)
    student, *teachers = models
    answers, retrieval = reader_train.build_tasks(recipe, student, loaded, targets, None)
    questions = answers.sample(np.random.default_rng(0))
    pairs = retrieval.sample(np.random.default_rng(0))
    regions, seen = questions.regions.load(), pairs.regions.load()
    with torch.no_grad():
        learned = {
            **DistilledAnswers(answers, teachers).losses(questions),
            **DistilledScores(retrieval, teachers).losses(pairs),
        }
        said = [teacher(questions.text, regions).sigmoid() for teacher in teachers]
        logits = student(questions.text, regions)
        scores = [
            model.cross_encoder.score(pairs.text, model.cross_encoder.embed_regions(seen))
            for model in models
        ]
    expected, rows = 0.0, len(logits)
    for row, answer in np.ndindex(tuple(logits.shape)):
        target = float(said[0][row, answer] + said[1][row, answer]) / 2
        chance = logits[row, answer].sigmoid()
        expected -= float(target * chance.log() + (1 - target) * (1 - chance).log()) / rows
    assert learned["answers"].item() == pytest.approx(expected, rel=1e-4)
    own, first, second = (part.tolist() for part in scores)
    errors = [(a - (b + c) / 2) ** 2 for a, b, c in zip(own, first, second, strict=True)]
    assert learned["scores"].item() == pytest.approx(np.mean(errors), rel=1e-4)
    assert np.mean(errors) > 1e-3


def test_some_questions_are_distilled_on_images_that_look_like_their_own(
    recipe: ReaderRecipe, data: Path
) -> None:
    loaded = load_data(recipe, data, "cpu")
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    model = reader_train.build_model(recipe, loaded, "cpu")
    count = len(loaded.regions)
    pool = (np.arange(count)[:, None] + [1, 2]) % count
    task, _ = reader_train.build_tasks(recipe, model, loaded, targets, pool)
    rows = task.sample_rows(np.random.default_rng(0)).repeat(500)
    own = loaded.questions.table.record_ids[rows]

    def distances(share: float) -> Counter[int]:
        task.share = share
        asked = task.sample_images(rows, np.random.default_rng(1))
        return Counter(((asked - own) % count).tolist())

    assert distances(0.0) == {0: len(rows)}  # as in the training of each reader
    assert set(distances(1.0)) == {1, 2}
    found = distances(0.4)
    shares = [found[step] / len(rows) for step in (0, 1, 2)]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    task.others = None
    assert set(distances(1.0)) == set(range(count))
    # Batches hold the images that were drawn.
    task.others, task.share, task.batch = pool, 1.0, 8
    batch = task.sample(np.random.default_rng(2))
    again = np.random.default_rng(2)
    drawn = task.sample_rows(again)
    expected = task.sample_images(drawn, again)
    assert set(batch.regions.pixels.index.tolist()) <= {*expected.tolist(), *(expected + count)}


def test_only_distillation_transfers_questions(
    recipe: ReaderRecipe, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[tuple[str, float]] = []

    def noted(task: TransferredQuestions, rows: Any, generator: np.random.Generator) -> Any:
        name = "distilled" if task.share else "trained"
        shares.append((name, task.share))
        return task.questions.record_ids[rows]

    monkeypatch.setattr(TransferredQuestions, "sample_images", noted)
    compression = replace(recipe.compression, transferred_questions=0.25)
    reader_train.train(replace(recipe, compression=compression, seeds=1), data, tmp_path / "run")
    assert set(shares) == {("trained", 0.0), ("distilled", 0.25)}
    assert shares[0][0] == "trained"
    with pytest.raises(PolyglanceError, match="transferred_questions"):
        ReaderCompression(transferred_questions=1.5)


def test_the_copy_begins_as_its_first_teacher(
    recipe: ReaderRecipe, data: Path, tmp_path: Path
) -> None:
    loaded = load_data(recipe, data, "cpu")
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    teachers = []
    for seed in (0, 1):
        seeded = replace(recipe, loop=replace(recipe.loop, seed=seed))
        teachers.append(reader_train.build_model(seeded, loaded, "cpu"))
        teachers[-1].fold_answer_embeddings()
    still = replace(recipe, compression=ReaderCompression(1, learning_rate=1e-9, warmup=0))
    evaluation = ReaderEvaluation(loaded, 4)
    copy = reader_train.compress(still, teachers, loaded, targets, None, evaluation, tmp_path)
    one = loaded.questions.table
    text, regions = pack_captions(one, np.arange(8)), loaded.regions.take(one.record_ids[:8])[0]
    with torch.no_grad():
        own, first, second = (model.eval()(text, regions) for model in (copy, *teachers))
    assert (own - first).abs().mean() < 0.5 * (own - second).abs().mean()


def test_the_readers_teach_best_first_and_are_trained_once(
    recipe: ReaderRecipe, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated = iter([1.0, 3.0, 2.0] * 2)

    def report(evaluation: ReaderEvaluation, model: VQAModel) -> dict[str, Any]:
        return {"validation": {"dual_weight": 1.0, "score": next(validated)}}

    class StopError(Exception):
        pass

    def compress(recipe: ReaderRecipe, teachers: list[VQAModel], *others: Any) -> None:
        raise StopError([teacher.cross_encoder.match.weight.sum().item() for teacher in teachers])

    monkeypatch.setattr(ReaderEvaluation, "report", report)
    monkeypatch.setattr(reader_train, "compress", compress)
    short = replace(recipe, seeds=3, itm_only_steps=0, loop=replace(recipe.loop, steps=1))
    run = tmp_path / "run"
    with pytest.raises(StopError) as stopped:
        reader_train.train(short, data, run)
    loaded = load_data(short, data, "cpu")
    begun = []
    for seed in range(3):
        seeded = replace(short, loop=replace(short.loop, seed=seed))
        begun.append(reader_train.build_model(seeded, loaded, "cpu").cross_encoder.match.weight)
    expected = [begun[seed].sum().item() for seed in (1, 2, 0)]
    np.testing.assert_allclose(stopped.value.args[0], expected, atol=0.05)  # one step later
    assert np.ptp(expected) > 0.2
    # Run again, it finds the readers that were trained.
    logs = [run / f"reader{number}-training" / "log.jsonl" for number in range(3)]
    before = [log.read_bytes() for log in logs]
    with pytest.raises(StopError) as again:
        reader_train.train(short, data, run)
    assert again.value.args == stopped.value.args
    assert [log.read_bytes() for log in logs] == before
    with pytest.raises(PolyglanceError, match="seed"):
        reader_train.train(replace(short, loop=replace(short.loop, seed=5)), data, run)


def test_questions_may_be_asked_more_often(recipe: ReaderRecipe, data: Path) -> None:
    once = load_data(recipe, data, "cpu").questions
    first, second = recipe.questions
    often = load_data(replace(recipe, questions=(replace(first, repeat=3), second)), data, "cpu")
    counts = Counter(id(question) for question in often.questions.questions)
    assert len(counts) == len(once.questions)
    assert set(counts.values()) == {1, 3}
    assert len(often.questions.table) == sum(counts.values())
    with pytest.raises(PolyglanceError, match="repeat is for what is learned, not for tests"):
        replace(recipe, test=ReaderCorpus("colours/val.jsonl", repeat=2))


class TwoManifests(NamedTuple):
    """Training images of which some are in a manifest of their own, too."""

    recipe: ReaderRecipe
    data: ReaderData
    first: set[int]
    others: set[int]
    """With captions, too."""


@pytest.fixture
def two_manifests(recipe: ReaderRecipe, data: Path) -> TwoManifests:
    folder = data / "colours"
    lines = (folder / "train.jsonl").read_text(encoding="utf-8").splitlines(True)
    (folder / "first.jsonl").write_text("".join(lines[:8]), encoding="utf-8")
    first = ReaderCorpus("colours/first.jsonl", repeat=3)
    two = replace(recipe, captions=(first, *recipe.captions))
    loaded = load_data(two, data, "cpu")
    # All training images are read in the order of their names.
    names, own = (
        {Path(json.loads(line)["image"]).name for line in some} for some in (lines, lines[:8])
    )
    learned = sorted(name for name in names if hash_share(name) >= recipe.answering.held_out)
    numbers = {number for number, name in enumerate(learned) if name in own}
    others = set(loaded.captions.record_ids.tolist()) - numbers
    assert 6 <= len(numbers) <= 8  # some are held out
    assert len(others) > 8
    return TwoManifests(two, loaded, numbers, others)


def test_images_of_a_corpus_may_be_sampled_more_often(two_manifests: TwoManifests) -> None:
    recipe, loaded, first, others = two_manifests
    model = reader_train.build_model(recipe, loaded, "cpu")
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    matching: Any = reader_train.build_tasks(recipe, model, loaded, targets, None)[1]
    rows = matching.corpus.captions.sample(30_000, np.random.default_rng(0))
    drawn = np.bincount(loaded.captions.record_ids[rows], minlength=len(loaded.regions))
    for image in first | others:
        share = (3 if image in first else 1) / (3 * len(first) + len(others))
        assert drawn[image] / len(rows) == pytest.approx(share, rel=0.2)


def test_hard_negatives_may_be_of_the_images_own_corpus(two_manifests: TwoManifests) -> None:
    recipe, loaded, first, others = two_manifests
    settings = replace(recipe.retrieval, hard_negatives_of_corpus=True)
    whole = mine_hard_negatives(loaded.dual.model, loaded.regions, loaded.captions, 99)
    for k in (4, len(first)):  # the second is too many for the first manifest
        near = find_hard_negatives(replace(settings, hard_negative_pool=k), loaded)
        assert near is not None
        assert near.shape == (len(loaded.regions), k)
        for image, found in enumerate(near.tolist()):
            pool = next((some for some in (first, others) if image in some), set[int]())
            if len(pool) <= k:
                pool = first | others
            # The images that may be, in the order that they have among all.
            assert found == [other for other in whole[image].tolist() if other in pool][:k]
    assert find_hard_negatives(replace(settings, hard_negative_pool=0), loaded) is None


def test_negative_captions_are_of_any_hard_image_that_has_the_language(
    recipe: ReaderRecipe, data: Path
) -> None:
    loaded = load_data(recipe, data, "cpu")
    records = [
        Record(captions={"en": (f"dog {n}",), **({"de": (f"Hund {n}",)} if n % 4 == 0 else {})})
        for n in range(len(loaded.regions))
    ]
    captions = CaptionTable.build(records, loaded.dual.tokenizer, max_tokens=20)
    pool = np.array([[1, 2, 3, 4 * (image % 3 + 1)] for image in range(len(records))])
    targets = answer_targets(loaded.answers, loaded.questions.questions)
    model = reader_train.build_model(recipe, loaded, "cpu")
    sparse = replace(loaded, captions=captions)
    task = reader_train.build_tasks(recipe, model, sparse, targets, pool)[1]
    task.warmup_steps, task.batch = 0, 200
    texts, _ = task.sample_pairs(np.random.default_rng(0))
    german = captions.language_ids[texts[:, 0]] == captions.language_codes.index("de")
    negatives = texts[german][:, 1 + task.negatives :]
    own = captions.record_ids[texts[german][:, 0]]
    expected = np.repeat(pool[own, 3][:, None], task.negatives, axis=1)
    np.testing.assert_array_equal(captions.record_ids[negatives], expected)
    english = captions.record_ids[texts[~german][:, 1 + task.negatives :]]
    assert set(english.ravel().tolist()) == {1, 2, 3, 4, 8, 12}


def test_missing_data_fails_before_training(recipe: ReaderRecipe, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        reader_train.train(recipe, tmp_path, tmp_path / "run")
    plain = settings(Path(recipe.dual_encoder)) | {"captions": []}
    with pytest.raises(PolyglanceError, match="learns from captions and questions"):
        load(ReaderRecipe, plain)


def test_the_shipped_recipe_opens() -> None:
    recipe = open_recipe("polyglance-reader")
    assert recipe.system == "compact_reader"
    assert isinstance(recipe.settings, ReaderRecipe)
