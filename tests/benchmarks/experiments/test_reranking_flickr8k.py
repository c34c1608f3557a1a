"""Re-ranking on Flickr8k: the page's goals, and the command on toy data."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.experiments import reranking_flickr8k
from benchmarks.reports import reranking_page as page
from helpers.small_mmp import WIDTH, small_model
from polyglance.cross_encoders.model_folder import export_cross_encoder, load_cross_encoder
from polyglance.data.toy import ToyDataset
from polyglance.errors import PolyglanceError
from polyglance.recipes import dictionaries
from polyglance.records import write_manifest

COUNTS = {"train": 16, "val": 6, "test": 6}


def report(**recalls: float) -> dict[str, Any]:
    """The report of a run, with two languages and their mean."""
    trained = {"steps": 1500, "seconds": 90.0}
    return {
        "contrastive_stage": trained,
        "fine_tuning": trained,
        "validation": {"dual_weight": 4.0},
        "test": {
            protocol: {code: {"mR": mean + more} for code, more in
                  (("en", 5.0), ("zh", -5.0), ("average", 0.0))}
            for protocol, mean in recalls.items()
        },
    }  # fmt: skip


def figures(*reports: dict[str, Any]) -> dict[str, Any]:
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "common_changes": ["loop.steps=9"], **reranking_flickr8k.summary(reports),
    }  # fmt: skip


def test_goals_split_the_gain_into_augmentation_and_reranking(tmp_path: Path) -> None:
    found = {
        "M3P": figures(
            report(dual=56.0, dual_tta=58.0, reranked=57.5, all_pairs=40.0),
            report(dual=56.0, dual_tta=58.0, reranked=58.5, all_pairs=39.0),
        ),
        "UC2": figures(*[report(dual=56.0, dual_tta=58.0, reranked=59.5)] * 2),
    }
    assert page.goals(found) == [
        "M3P, every pair scored, reaches at least 40 mR: not decided (39.5; above the goal"
        " by -0.5 [-6.9, +5.9], p 0.500).",
        "The default model's top 50, re-ranked with M3P, are at least 2 points above it alone:"
        " not decided (+2.0 [-4.4, +8.4], p 0.156; +2.0 [+2.0, +2.0], p < 0.001 by test-time"
        " augmentation; +0.0 [-6.4, +6.4], p 1.000 by M3P).",
        "The default model's top 50, re-ranked with UC2, are at least 3 points above it alone:"
        " yes (+3.5 [+3.5, +3.5], p < 0.001; +2.0 [+2.0, +2.0], p < 0.001 by test-time"
        " augmentation; +1.5 [+1.5, +1.5], p < 0.001 by UC2).",
    ]
    document = Path(shutil.copy(page.PAGE, tmp_path / "page.md"))
    page.fill(found, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert once.count("| the default model alone | 61.0 ± 0.0 | 51.0 ± 0.0 | 56.0 ± 0.0 |") == 1
    assert "| its top 50, re-ranked with UC2 | 64.5 ± 0.0 |" in once
    assert "| M3P alone, every pair scored | 44.5 ± 0.7 |" in once
    assert "; 1,500 steps of contrastive-stage, 1,500 steps of fine-tuning in 3.0 minutes" in once
    assert "Changes to the recipe: `loop.steps=9`." in once
    page.fill(found, document)
    assert document.read_text(encoding="utf-8") == once
    page.fill({}, document)
    assert document.read_text(encoding="utf-8").count("Not measured yet") == 3


def make_pictures(folder: Path) -> None:
    """The toy dataset's pictures with captions in English and German."""
    dataset = ToyDataset(seed=0, languages=("en", "de"), captions_per_language=1)
    for split, count in COUNTS.items():
        records = []
        for picture in dataset.pictures(count, split):  # type: ignore[arg-type]
            name = f"images/{picture.key}.png".replace(":", "-")
            record, path = replace(picture.record(), image=name), folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.pixels(64)).save(path)
            records.append(record)
        write_manifest(folder / f"{split}.jsonl", records)


class Command:
    """The benchmark's command line on toy images, initialised from a small dual encoder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.model = folder / "model"
        make_pictures(folder / "data" / "flickr8k")
        (folder / "data" / "text").mkdir()
        texts = folder / "data" / "text" / "train.jsonl"
        shutil.copy(folder / "data" / "flickr8k" / "train.jsonl", texts)
        small_model(text_pooling="mean").export(self.model)
        shutil.copy(page.PAGE, folder / "page.md")
        monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
        monkeypatch.setattr(dictionaries, "find_dictionaries", lambda _: {})  # to read: 10 s

    def __call__(self, system: str, *changes: str) -> Any:
        folder = self.folder
        few = (
            f"init_from_dual_encoder={self.model}", "image_backbone.size=64",
            "image_backbone.grid=2", "image_backbone.views=2", "image_backbone.tta_sizes=[96]",
            "extra_train=[]", "max_text_tokens=30", "fine_tuning.batch=4",
            "fine_tuning.hard_negative_pool=0", "loop.steps=2", "loop.precision=float32",
            "loop.validate_every=0", "reranking.candidates=3", *changes,
        )  # fmt: skip
        options = [
            system, "--data", folder / "data", "--runs", folder / "runs", "--out", folder,
            "--cache", folder / "cache", "--document", folder / "page.md",
            *(part for change in few for part in ("--set", change)),
        ]  # fmt: skip
        self.monkeypatch.setattr(sys, "argv", ["reranking_flickr8k.py", *map(str, options)])
        reranking_flickr8k.main()
        return json.loads((folder / f"reranking_{system}.json").read_text(encoding="utf-8"))


def test_the_command_trains_each_system_once_and_fills_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(tmp_path, monkeypatch)
    of_m3p = (
        "texts=[{manifest: text/train.jsonl}]", "code_switching.languages=[de]",
        "pretraining.batch=4", "pretraining.text_batch=4", "pretraining.steps=2",
        f"distillation.model={command.model}", "distillation.batch=4", "distillation.steps=2",
    )  # fmt: skip
    of_uc2 = ("contrastive_stage.batch=4", "contrastive_stage.steps=2")
    m3p = command("m3p", *of_m3p)
    assert m3p["steps"] == {"pretraining": 2, "distillation": 2, "fine_tuning": 2}
    assert set(m3p["test"]) == {"all_pairs", "dual", "dual_tta", "reranked"}
    assert len(list((tmp_path / "cache").glob("dictionaries-*/en-de.tsv"))) == 1
    uc2 = command("uc2", *of_uc2)
    assert uc2["steps"] == {"contrastive_stage": 2, "fine_tuning": 2}
    assert set(uc2["test"]) == {"dual", "dual_tta", "reranked"}
    assert uc2["test"]["dual"] == m3p["test"]["dual"]
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert "| M3P alone, every pair scored |" in text
    assert "| its top 50, re-ranked with UC2 |" in text
    # Embeddings are of the model that runs are initialised from, and computed once for both.
    assert len(list((tmp_path / "cache").glob("dual-*/de.npy"))) == 2

    run = tmp_path / "runs" / "uc2" / "0"
    written = (run / "report.json").stat().st_mtime_ns
    assert command("uc2", *of_uc2)["test"] == uc2["test"]
    assert (run / "report.json").stat().st_mtime_ns == written

    # A run, and so an exported model, does not need the model that it was initialised from.
    shutil.rmtree(command.model)
    export_cross_encoder(run, tmp_path / "exported", half=False)
    shutil.rmtree(run)
    assert load_cross_encoder(tmp_path / "exported").projection_heads is not None


def test_embeddings_of_another_model_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(tmp_path, monkeypatch)
    for split in ("test", "val"):
        folder = tmp_path / "data" / "flickr8k" / f"dual-{split}"
        folder.mkdir()
        (folder / "model.txt").write_text("another\n")
        for name in ("pictures", "en", "de"):
            np.save(folder / f"{name}.npy", np.ones((10, WIDTH)))
    with pytest.raises(PolyglanceError, match="of another dual encoder"):
        command("uc2")


def test_a_dual_encoder_is_split_again_unless_the_run_has_begun(tmp_path: Path) -> None:
    from polyglance.recipes.cross_encoder.build import split_dual_encoder

    one = small_model(text_pooling="mean").export(tmp_path / "one")
    other = small_model(text_pooling="mean", seed=1).export(tmp_path / "other")
    first = split_dual_encoder(str(one), tmp_path / "run")
    weights = (first.text / "model.safetensors").read_bytes()
    written = (first.text / "model.safetensors").stat().st_mtime_ns
    assert split_dual_encoder(str(one), tmp_path / "run") == first
    assert (first.text / "model.safetensors").stat().st_mtime_ns == written
    split_dual_encoder(str(other), tmp_path / "run")
    others = (first.text / "model.safetensors").read_bytes()
    assert others != weights
    # A run that has begun keeps its parts; only missing ones are written again.
    (tmp_path / "run" / "contrastive_stage" / "latest").mkdir(parents=True)
    split_dual_encoder(str(one), tmp_path / "run")
    assert (first.text / "model.safetensors").read_bytes() == others
    (first.text / "model.safetensors").unlink()
    split_dual_encoder(str(other), tmp_path / "run")
    assert (first.text / "model.safetensors").read_bytes() == others
