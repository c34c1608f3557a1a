"""Reading hits again as a benchmark: what its page claims, and that its command runs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polyglance.data.toy import ToyWorld
from polyglance.recipes import dictionaries
from polyglance.recipes.pairs.folder import export_pair_model, open_pair_model
from polyglance.records import write_manifest
from small_models import WIDTH, small_model

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "results-reranking.md"
COUNTS = {"train": 16, "val": 6, "test": 6}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reranking_flickr8k

    return reranking_flickr8k


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reranking_page

    return reranking_page


def reported(**recalls: float) -> dict[str, Any]:
    """What a run says, of two languages and their mean."""
    trained = {"steps": 1500, "seconds": 90.0}
    return {
        "alignment": trained,
        "fine_tuning": trained,
        "validation": {"trust": 4.0},
        "test": {
            way: {code: {"mR": mean + more} for code, more in
                  (("en", 5.0), ("zh", -5.0), ("average", 0.0))}
            for way, mean in recalls.items()
        },
    }  # fmt: skip


def figures(script: ModuleType, systems: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "changed_everywhere": ["loop.steps=9"],
        "systems": {name: script.summary(reports) for name, reports in systems.items()},
    }  # fmt: skip


def test_what_is_due_to_looking_and_what_to_reading_is_told_apart(
    script: ModuleType, page: ModuleType, tmp_path: Path
) -> None:
    found = figures(
        script,
        {
            "M3P": [
                reported(dual=56.0, closer=58.0, reranked=57.5, all_pairs=40.0),
                reported(dual=56.0, closer=58.0, reranked=58.5, all_pairs=39.0),
            ],
            "UC2": [
                reported(dual=56.0, closer=58.0, reranked=59.0),
                reported(dual=56.0, closer=58.0, reranked=59.0),
            ],
        },
    )
    assert page.goals(found) == [
        "M3P, every pair read, reaches at least 40 mR: no (39.5).",
        "Reading the default model's best 50 again, M3P adds at least 2 points: yes (+2.0 ± 0.7:"
        " +2.0 ± 0.0 by looking more closely, +0.0 ± 0.7 by reading).",
        "Reading the default model's best 50 again, UC2 adds at least 3 points: yes (+3.0 ± 0.0:"
        " +2.0 ± 0.0 by looking more closely, +1.0 ± 0.0 by reading).",
    ]
    document = Path(shutil.copy(PAGE, tmp_path / "page.md"))
    page.fill(found, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert once.count("| the default model alone | 61.0 ± 0.0 | 51.0 ± 0.0 | 56.0 ± 0.0 |") == 1
    assert "| its best 50, read by UC2 as well | 64.0 ± 0.0 |" in once
    assert "| M3P alone, every pair read | 44.5 ± 0.7 |" in once
    assert "M3P: 1,500 steps of alignment, 1,500 steps of fine-tuning in 3.0 minutes" in once
    assert "Both differ from their recipes by `loop.steps=9`." in once
    page.fill(found, document)
    assert document.read_text(encoding="utf-8") == once


def make_pictures(folder: Path) -> None:
    """The toy world's pictures with captions in English and German."""
    world = ToyWorld(seed=0, languages=("en", "de"), captions=1)
    for split, count in COUNTS.items():
        records = []
        for picture in world.pictures(count, split):  # type: ignore[arg-type]
            name = f"images/{picture.key}.png".replace(":", "-")
            record, path = replace(picture.record(), image=name), folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.pixels(64)).save(path)
            records.append(record)
        write_manifest(folder / f"{split}.jsonl", records)


def test_the_command_trains_both_and_their_models_are_opened(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    make_pictures(data / "flickr8k")
    (data / "text").mkdir()
    shutil.copy(data / "flickr8k" / "train.jsonl", data / "text" / "train.jsonl")
    small_model(text_pooling="mean").export(model)
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    monkeypatch.setattr(dictionaries, "find_dictionaries", lambda _: {})  # to read: 10 s
    noise = np.random.default_rng(0)
    for split in ("test", "val"):
        folder = data / "flickr8k" / f"dual-{split}"
        folder.mkdir()
        for name in ("pictures", "en", "de"):
            np.save(folder / f"{name}.npy", noise.standard_normal((10, WIDTH)))
    changes = (
        f"towers={model}", "eyes.size=64", "eyes.grid=2", "eyes.views=2", "eyes.looks=[96]",
        "more=[]", "longest_text=30", "alignment.batch=4", "alignment.steps=2",
        "fine_tuning.batch=4", "fine_tuning.lookalikes=0", "loop.steps=2",
        "loop.precision=float32", "loop.validate_every=0", "reranking.candidates=3",
    )  # fmt: skip
    of_m3p = (
        "texts=[{manifest: text/train.jsonl}]", "switching.languages=[de]",
        "pretraining.batch=4", "pretraining.text_batch=4", "pretraining.steps=2",
    )  # fmt: skip

    def command(*more: object, own: tuple[str, ...] = ()) -> Any:
        options = [
            "--data", data, "--runs", tmp_path / "runs", "--cache", tmp_path / "cache",
            "--out", tmp_path, "--document", tmp_path / "none.md",
            *(part for change in (*changes, *own) for part in ("--set", change)), *more,
        ]  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["reranking_flickr8k.py", *map(str, options)])
        script.main()
        return json.loads((tmp_path / "reranking_flickr8k.json").read_text(encoding="utf-8"))

    m3p = command("--systems", "M3P", own=of_m3p)["systems"]["M3P"]
    assert m3p["steps"] == {"alignment": 2, "pretraining": 2, "fine_tuning": 2}
    assert set(m3p["test"]) == {"all_pairs", "dual", "closer", "reranked"}
    assert len(list((tmp_path / "cache").glob("dictionaries-*/en-de.tsv"))) == 1
    uc2 = command("--systems", "UC2")["systems"]["UC2"]
    assert set(uc2["test"]) == {"dual", "closer", "reranked"}
    assert uc2["test"]["dual"] == m3p["test"]["dual"]
    assert uc2["test"]["closer"] != uc2["test"]["dual"]

    # A run has all that is needed to read with it, and so has what is exported.
    run = tmp_path / "runs" / "UC2" / "0"
    exported = tmp_path / "exported"
    export_pair_model(run, exported, half=False)
    shutil.rmtree(model)
    shutil.rmtree(run)
    assert open_pair_model(exported).meeting is not None


def test_towers_of_another_model_are_not_taken(tmp_path: Path) -> None:
    from polyglance.recipes.pairs.towers import towers_of

    one = small_model(text_pooling="mean").export(tmp_path / "one")
    other = small_model(text_pooling="mean", seed=1).export(tmp_path / "other")
    first = towers_of(str(one), tmp_path / "run")
    weights = (first.text / "model.safetensors").read_bytes()
    written = (first.text / "model.safetensors").stat().st_mtime_ns
    assert towers_of(str(one), tmp_path / "run") == first
    assert (first.text / "model.safetensors").stat().st_mtime_ns == written
    towers_of(str(other), tmp_path / "run")
    assert (first.text / "model.safetensors").read_bytes() != weights
