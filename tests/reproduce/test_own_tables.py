"""Our own tables: data laid out as ours is, what runs share, and the pages that results fill."""

from __future__ import annotations

import json
import pickle
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.reports import smalr_claims, smalr_page, uc2_page, vqa_page
from helpers.small_mmp import small_model
from helpers.toy_flickr8k import write_toy_flickr8k
from helpers.toy_questions import write_question_data
from helpers.toy_smalr_corpus import RECIPE, make_toy_smalr_corpus
from polyglance.recipes import dictionaries
from polyglance.recipes.run_folder import QUERIES
from polyglance.reproduce import shared_data
from polyglance.reproduce.queries import image_shares, read_queries
from polyglance.reproduce.run import Options, Reproduced, reproduce


def results(made: Reproduced, name: str) -> Any:
    (path,) = (path for path in made.files if path.name == f"{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def silent(line: str) -> None:
    del line


TRANSLATED = "Table 1: UC2, fine-tuned: on English, translate-test"


def test_what_runs_share_is_prepared_once_and_the_page_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "own"))  # of translations
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    changes = (
        *write_toy_flickr8k(tmp_path, monkeypatch), "labels.names=flickr8k/labels.tsv",
        "early_adaptation.steps=2", "early_adaptation.warmup=0", "early_adaptation.batch=24",
        "test_images=6",
    )  # fmt: skip
    data = set((tmp_path / "data").rglob("*"))
    options = Options(
        out=tmp_path / "out", data=tmp_path / "data", seeds=(0,), changes=changes,
        rows=(TRANSLATED, "Table 1: UC2, fine-tuned: on English"),
    )  # fmt: skip
    made = reproduce("flickr8k/uc2", options, silent)
    assert set((tmp_path / "data").rglob("*")) == data
    cache = tmp_path / "out" / "cache"
    for pattern in ("dictionaries-*/de-en.tsv", "aligned-*/en-de.tsv", "features-*"):
        assert len(list(cache.glob(pattern))) == 1
    found = results(made, "uc2_flickr8k")
    assert (found["commit"], found["test_images"]) == ("abc1234", 6)
    assert set(found["runs"]) == {"UC2", "UC2 > en"}
    assert found["runs"]["UC2"]["test"] == {}
    assert found["runs"]["UC2"]["steps"] == 4
    assert set(found["runs"]["UC2 > en"]["test"]) == {"all_pairs", "translated"}
    assert str(tmp_path) not in json.dumps(found["runs"])
    (comparison,) = found["comparisons"]
    assert (comparison["over"], comparison["queries"]) == ("queries", 6)
    # No run starts from the fine-tuned weights.
    runs = tmp_path / "out" / "runs" / "flickr8k"
    assert not list((runs / "UC2-en").rglob("*.safetensors"))
    assert list((runs / "UC2").rglob("model.safetensors"))

    document = Path(shutil.copy(uc2_page.PAGE, tmp_path / "page.md"))
    uc2_page.fill(found, document)
    text = document.read_text(encoding="utf-8")
    assert "| on English, translate-test |" in text
    assert "6 pictures)" in text  # compared over queries
    assert "Tables are of the first 6 test pictures" in text

    before = {path: path.stat().st_mtime_ns for path in runs.rglob("report.json")}
    assert results(reproduce("flickr8k/uc2", options, silent), "uc2_flickr8k")["runs"]
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # Several languages at a time align as one after the other does.
    (aligned,) = cache.glob("aligned-*/en-de.tsv")
    alone = aligned.read_text(encoding="utf-8")
    assert len(alone.splitlines()) == 1 + 36  # a key, and a German caption of each picture
    aligned.unlink()
    monkeypatch.setattr(shared_data, "SpawnPool", SequentialPool)
    (features,) = cache.glob("features-*")
    prepared = (*changes, *(f"{split}.features={features}" for split in shared_data.SPLITS))
    shared_data.align_captions("uc2-flickr8k", prepared, options.data or tmp_path, cache, 2)
    assert aligned.read_text(encoding="utf-8") == alone


class SequentialPool:
    """Replaces a pool of processes, each of which takes seconds to start."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __enter__(self) -> SequentialPool:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def submit(self, function: Any, *arguments: Any) -> Future[None]:
        """Call a function with arguments that were pickled, as for another process."""
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        future: Future[None] = Future()
        future.set_result(function(*arguments))
        return future


def test_masked_modelling_is_compared_over_seeds_and_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionaries, "find_dictionaries", lambda _: {})  # to read: 10 s
    make_toy_smalr_corpus(tmp_path / "data", pictures=20)
    shutil.rmtree(tmp_path / "data" / "flickr8k" / "dictionaries")
    config = ", ".join(f"{key}: {value}" for key, value in RECIPE.model_config.items())
    features = "flickr8k/features.npz"
    changes = (
        "languages=[en, de, fr]", "word_vectors=skipgram", "word_vector_dim=24",
        f"model_config={{{config}}}", "parallel_text=null", "batch=16", "loop.steps=2",
        "loop.validate_every=0", "pretraining.steps=1", "pretraining.batch=16", "loop.warmup=0",
        *(f"{split}.features={features}" for split in ("train", "validation", "test")),
    )  # fmt: skip
    rows = smalr_claims.MASKING_ROWS[:2]
    options = Options(
        out=tmp_path / "out", data=tmp_path / "data", seeds=(0, 1), changes=changes, rows=rows
    )
    made = reproduce("flickr8k/smalr-masking", options, silent)
    found = results(made, "smalr_masking")
    assert tuple(found["settings"]) == rows
    assert len(list((tmp_path / "out" / "cache").glob("latent-*"))) == 2  # one a seed, for both
    (comparison,) = found["comparisons"]
    assert (comparison["seeds"], comparison["queries"]) == (2, 60)
    assert comparison["over"] == "seeds and queries"
    # The ranks beside the table give the figures again, also where the runs are gone.
    shutil.rmtree(tmp_path / "out" / "runs")
    queries = tmp_path / "out" / "flickr8k" / "smalr-masking" / QUERIES
    for name, run in (("HEM", "smalr HEM"), (rows[1], "smalr SMALR without equation 2")):
        for seed in (0, 1):
            shares = image_shares(read_queries(queries, (run, seed)), "test.de.mR")
            assert shares is not None
            value = found["settings"][name]["test"]["de"]["values"][seed]
            assert np.mean(shares) == pytest.approx(value)
    assert read_queries(queries, ("smalr LA", 0)) == {}
    assert smalr_page.masking_table([found]).count("\n| ") == 3
    (line,) = smalr_claims.masking_claims([found])
    assert line.gains[0].queries == 60


def test_answers_on_disk_are_enough_for_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYGLANCE_COMMIT", "abc1234")
    data = tmp_path / "data"
    write_question_data(data, {"train": 20, "test": 6})
    changes = (
        "init_from_dual_encoder=null", f"encoder={data / 'encoder'}",
        f"image_backbone.backbone={data / 'image_backbone'}", "object_tags=null",
        "image_backbone.size=64", "image_backbone.views=2", "train=[{manifest: train.jsonl}]",
        "test=[{manifest: test.jsonl}]", "answers.min_score=1", "held_out=0.1", "batch=16",
        "loop.steps=1", "loop.validate_every=0", "loop.precision=float32",
    )  # fmt: skip
    options = Options(out=tmp_path / "out", data=data, seeds=(0,), changes=changes)
    found = results(reproduce("flickr8k/vqa", options, silent), "vqa_en_vi")
    run = tmp_path / "out" / "runs" / "flickr8k" / "vqa-en-vi" / "0"
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    for language in ("en", "de"):
        scores = found["test"][language]["model"]
        for name, value in report["test"][language]["model"].items():
            assert scores[name]["values"] == [pytest.approx(value)]
    assert (run / "model").is_dir()  # what `polyglance ask` opens
    # Evaluated on another machine, results still name the one that trained.
    provenance = run / "provenance.json"
    elsewhere = {"date": "2026-01-01", "commit": "abc1234", "hardware": "far away"}
    written = json.loads(provenance.read_text(encoding="utf-8"))
    provenance.write_text(json.dumps(written | elsewhere), encoding="utf-8")
    for path in run.rglob("*.safetensors"):
        path.unlink()
    before = (run / "report.json").stat().st_mtime_ns
    again = results(reproduce("flickr8k/vqa", options, silent), "vqa_en_vi")
    assert (run / "report.json").stat().st_mtime_ns == before
    assert again["test"] == found["test"]
    assert elsewhere.items() <= again.items()
    for page, fill in ((vqa_page.PAGE, vqa_page.fill), (vqa_page.CARD, vqa_page.fill_card)):
        document = Path(shutil.copy(page, tmp_path / page.name))
        fill(again, document)
        assert "Not measured yet" not in document.read_text(encoding="utf-8")


def test_embeddings_of_a_dual_encoder_are_made_once(tmp_path: Path) -> None:
    write_question_data(tmp_path, {"test": 2})
    image = next((tmp_path / "images").iterdir())
    manifest = tmp_path / "captions.jsonl"
    record = {"image": f"images/{image.name}", "captions": {"en": ["a red circle"]}}
    manifest.write_text(json.dumps(record) + "\n", encoding="utf-8")
    model = small_model(text_pooling="mean").export(tmp_path / "model")
    folder = shared_data.embed_manifest(manifest, tmp_path / "cache", str(model))
    assert {path.name for path in folder.iterdir()} >= {"pictures.npy", "en.npy", "model.txt"}
    written = (folder / "en.npy").stat().st_mtime_ns
    assert shared_data.embed_manifest(manifest, tmp_path / "cache", str(model)) == folder
    assert (folder / "en.npy").stat().st_mtime_ns == written
