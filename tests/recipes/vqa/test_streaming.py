"""Questions about images on disk: stored regions and tars, as in memory and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.interruptions import interrupt_before_step
from helpers.random_store import write_random_store
from helpers.toy_questions import write_question_data
from polyglance.batches.regions import RegionTable
from polyglance.batches.streamed_pixels import PixelRegions
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.data.tar_writer import write_tars
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder import streaming as streaming_module
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.recipes.vqa.config import AnswerConfig, QuestionFile, VQARecipe
from polyglance.recipes.vqa.data import VQAData, load_data
from polyglance.recipes.vqa.questions import answer_targets
from polyglance.recipes.vqa.train import build_model, build_stage, train
from polyglance.records import Record, write_manifest
from polyglance.training.loop import LoopConfig
from polyglance.training.mixture import step_generator

ON_DISK = StreamingConfig(regions_memory=0.0, decode_workers=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions") / "data"
    write_question_data(folder, {"train": 8, "test": 3}, size=32)
    names = {split: image_names(folder / f"{split}.jsonl") for split in ("train", "test")}
    regions = dict.fromkeys((*names["train"], *names["test"]), 3)
    write_random_store(folder / "regions", regions, shard_size=4)
    write_manifest(folder / "images.jsonl", [Record(image=name) for name in names["train"]])
    write_tars(folder / "images.jsonl", folder / "tars" / "train", max_images=3)
    return folder


def image_names(questions: Path) -> list[str]:
    lines = questions.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["image"] for line in lines))


def recipe(data: Path, **changes: Any) -> VQARecipe:
    settings: dict[str, Any] = {
        "encoder": str(data / "encoder"),
        "image_backbone": None,
        "train": (QuestionFile("train.jsonl", features="regions"),),
        "test": (QuestionFile("test.jsonl", features="regions"),),
        "held_out": 0.0,
        "answers": AnswerConfig(min_score=1),
        "batch": 8,
        "loop": LoopConfig(steps=4, learning_rate=1e-3, save_every=2, precision="float32"),
    }
    return VQARecipe(**(settings | changes))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def same(ours: Path, theirs: Path) -> bool:
    first, second = weights(ours), weights(theirs)
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def test_streamed_regions_train_the_weights_of_those_in_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(recipe(data), data, tmp_path / "memory")
    # The same order of questions, on a machine without memory for the regions.
    monkeypatch.setattr(streaming_module, "_free_memory", lambda device: 0)
    assert isinstance(load_data(recipe(data), data, "cpu").train.regions, StreamedRegions)
    interrupt_before_step(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        train(recipe(data), data, tmp_path / "disk")
    report = train(recipe(data), data, tmp_path / "disk")
    assert same(tmp_path / "disk", tmp_path / "memory")
    assert set(report["test"]) == {"en", "de"}


def rows_of(settings: VQARecipe, loaded: VQAData, steps: int) -> np.ndarray:
    targets = answer_targets(loaded.vocabulary, loaded.train.questions)
    stage = build_stage(settings, build_model(settings, loaded), loaded, targets)
    sample: Callable[[np.random.Generator], np.ndarray] = stage.tasks.tasks["vqa"].sample_rows  # type: ignore[attr-defined]
    return np.concatenate([sample(step_generator(0, step)) for step in range(steps)])


def test_an_epoch_of_a_large_corpus_has_every_question_once(data: Path) -> None:
    settings = recipe(data, streaming=ON_DISK, batch=4)
    loaded = load_data(settings, data, "cpu")
    targets = answer_targets(loaded.vocabulary, loaded.train.questions)
    answerable = np.flatnonzero(targets.lengths > 0)
    rows = rows_of(settings, loaded, -(-len(answerable) // 4))
    english = loaded.train.table.language_ids == 0
    # Shares of languages are exact in 1,024 questions, about so in an epoch.
    for of_language in (english, ~english):
        own, counts = np.unique(rows[of_language[rows]], return_counts=True)
        assert len(own) >= 0.9 * of_language[answerable].sum()
        assert counts.max() <= 2
    drawn = rows_of(recipe(data, batch=4), loaded, -(-len(answerable) // 4))
    assert len(np.unique(drawn)) < len(np.unique(rows))  # with replacement


def test_tars_train_the_weights_of_files(data: Path, tmp_path: Path) -> None:
    pixels = recipe(
        data,
        image_backbone=ImageBackboneConfig(str(data / "image_backbone"), size=32, views=2),
        test=(),
        loop=LoopConfig(steps=2, save_every=0, precision="float32"),
    )
    tars = replace(pixels, train=(QuestionFile("train.jsonl", tars="tars/train-*.tar"),))
    small = load_data(tars, data, "cpu").train.regions
    assert isinstance(small, RegionTable)
    files = load_data(pixels, data, "cpu").train.regions
    assert isinstance(files, RegionTable)
    assert torch.equal(small.features, files.features)
    for name, settings in (("files", pixels), ("tars", tars)):
        train(replace(settings, streaming=ON_DISK), data, tmp_path / name)
    assert same(tmp_path / "files", tmp_path / "tars")
    large = load_data(replace(tars, streaming=ON_DISK), data, "cpu").train.regions
    assert isinstance(large, PixelRegions)


def test_damaged_images_are_left_out_with_their_questions(data: Path, tmp_path: Path) -> None:
    for path in (data / "images").rglob("*.png"):
        copy = tmp_path / path.relative_to(data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    questions = (data / "train.jsonl").read_text(encoding="utf-8")
    (tmp_path / "train.jsonl").write_text(questions, encoding="utf-8")
    damaged = image_names(data / "train.jsonl")[1]
    (tmp_path / damaged).write_bytes(b"no image")
    settings = recipe(
        data,
        image_backbone=ImageBackboneConfig(str(data / "image_backbone"), size=32, views=1),
        test=(),
        streaming=replace(ON_DISK, regions_memory=1.0, damaged_images="skip"),
    )
    kept, every = (load_data(settings, folder, "cpu").train for folder in (tmp_path, data))
    assert len(kept.regions) == len(every.regions) - 1
    asked = np.bincount(every.table.record_ids, minlength=len(every.regions)).tolist()
    left = np.bincount(kept.table.record_ids, minlength=len(kept.regions)).tolist()
    assert left == [asked[0], *asked[2:]]
    strict = replace(settings, streaming=replace(ON_DISK, regions_memory=1.0))
    with pytest.raises(PolyglanceError, match="is not a picture"):
        load_data(strict, tmp_path, "cpu")
