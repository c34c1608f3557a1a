"""Fine-tuning on pictures that several manifests name, and runs whose model has changed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.small_mmp import WIDTH, small_model, tokenizer
from polyglance.batches.inputs import VectorTable
from polyglance.data.captions import CaptionTable
from polyglance.encoders.model_folder import ModelFolder
from polyglance.errors import PolyglanceError
from polyglance.export.fine_tuned import load_quantised
from polyglance.recipes import open_recipe
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.fine_tune.data import moved_records, read_captions
from polyglance.recipes.fine_tune.tasks import build_task
from polyglance.recipes.plan.fine_tune import build_fine_tune_run
from polyglance.records import Record, read_manifest, write_manifest

COUNT = 12
KEEP = ("keep_pictures=true", "loop.steps=2", "batch=4", "held_out=0.25")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and pictures with English and German captions in two manifests."""
    folder = tmp_path_factory.mktemp("captions")
    small_model().export(folder / "small")
    captions: dict[str, list[Record]] = {"en": [], "de": []}
    for number in range(COUNT):
        Image.new("RGB", (32, 32), (20 * number, 0, 90)).save(folder / f"{number}.png")
        for language, own in captions.items():
            texts = (f"{language} {number}", f"a {number}")
            own.append(Record(image=f"{number}.png", captions={language: texts}))
    for language, own in captions.items():
        write_manifest(folder / f"{language}.jsonl", own)
    return folder


def test_a_picture_of_several_manifests_has_the_captions_of_all(folder: Path) -> None:
    english, german = folder / "en.jsonl", folder / "de.jsonl"
    records, counts = read_captions([english, german, english])
    assert [Path(str(record.image)).name for record in records] == [
        f"{n}.png" for n in range(COUNT)
    ]
    assert records[3].captions == {"en": ("en 3", "a 3"), "de": ("de 3", "a 3")}
    assert set(counts.values()) == {3}
    # A manifest with a line for each caption names its pictures once.
    write_manifest(folder / "lines.jsonl", [*read_manifest(english), *read_manifest(english)])
    assert set(read_captions([folder / "lines.jsonl"])[1].values()) == {1}


def test_held_out_pictures_have_captions_in_all_languages(folder: Path, tmp_path: Path) -> None:
    settings = [*KEEP, f"model={folder / 'small'}", "captions=en.jsonl", "extra_train=[de.jsonl]"]
    report = open_recipe("fine-tune", settings).train(folder, tmp_path / "run")
    assert report["pictures"] == {"trained on": 9, "held out": 3}
    assert {"en", "de"} <= set(report["after"])
    held_out = list(read_manifest(tmp_path / "run" / "held-out.jsonl"))
    assert [set(record.captions) for record in held_out] == [{"en", "de"}] * 3
    for record in held_out:
        assert (tmp_path / "run" / str(record.image)).resolve().parent == folder.resolve()


def test_pictures_beside_a_linked_folder_are_found(folder: Path, tmp_path: Path) -> None:
    real, data = tmp_path / "real", tmp_path / "data"
    (real / "own").mkdir(parents=True)
    data.mkdir()
    Image.new("RGB", (8, 8)).save(real / "a.png")
    (data / "own").symlink_to(real / "own")
    write_manifest(real / "own" / "x.jsonl", [Record(image="../a.png", captions={"en": ("a",)})])
    records, _ = read_captions([data / "own" / "x.jsonl"])
    assert str(records[0].image) == os.path.realpath(real / "a.png")
    (tmp_path / "link").symlink_to(real / "own")  # a run folder that is a link
    [moved] = moved_records(records, tmp_path / "link")
    assert (tmp_path / "link" / str(moved.image)).resolve() == (real / "a.png").resolve()


def test_a_picture_that_is_named_twice_is_drawn_twice_as_often_and_once_a_batch() -> None:
    records = [Record(image=f"{n}", captions={"en": ("a",)}) for n in range(40)]
    captions = CaptionTable.build(records, tokenizer())
    visuals = VectorTable(torch.arange(40.0)[:, None].expand(40, WIDTH))
    often = np.where(np.arange(40) < 10, 2.0, 1.0)
    recipe = FineTuneRecipe(batch=4, keep_pictures=True)
    task = build_task(small_model().model, visuals, captions, recipe, often)
    generator, drawn = np.random.default_rng(0), Counter[int]()
    for _ in range(3000):
        images = [int(row[0]) for row in task.sample(generator).visuals.load()[0]]
        assert len(set(images)) == 4
        drawn.update(images)
    twice = sum(drawn[n] for n in range(10)) / 10
    once = sum(drawn[n] for n in range(10, 40)) / 30
    assert twice / once == pytest.approx(2, abs=0.1)


def test_a_run_is_not_continued_from_another_model(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    settings = [*KEEP, f"model={model}", "captions=en.jsonl"]
    small_model().export(model)
    open_recipe("fine-tune", settings).train(folder, tmp_path / "run")
    noted = json.loads((tmp_path / "run" / "source.json").read_text())
    assert noted["fingerprint"] == ModelFolder.open(model).description.fingerprint
    open_recipe("fine-tune", settings).train(folder, tmp_path / "run")  # it is complete
    small_model(seed=3).export(model)
    with pytest.raises(PolyglanceError, match=r"fine-tunes another model .* or another --out"):
        open_recipe("fine-tune", settings).train(folder, tmp_path / "run")


def test_a_plan_takes_the_languages_of_the_weights(folder: Path) -> None:
    model = str(folder / "small")
    weights = {"zh": 2.0, "en": 2.0}
    recipe = FineTuneRecipe(model=model, batch=4, keep_pictures=True, language_weights=weights)
    run = build_fine_tune_run(recipe, 8, "cpu")
    [stage] = run.stages
    _, task = stage.tasks.choose(0, 1)
    losses = task.losses(task.sample(np.random.default_rng(0)))
    assert all(loss.isfinite() for loss in losses.values())
    assert load_quantised(ModelFolder.open(model)).config == run.model.config
