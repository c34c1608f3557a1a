"""SMALR's own recipes on Multi30K and MSCOCO as published, by the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.published import smalr as published
from helpers.translators import CountingTranslator
from polyglance.cli import app
from polyglance.data.machine_captions import read_with_machine_captions
from polyglance.errors import PolyglanceError
from polyglance.models.smalr_folder import load_smalr
from polyglance.recipes import open_recipe
from polyglance.recipes.smalr import translation
from polyglance.recipes.smalr.config import CaptionSource, PublishedCorpus
from polyglance.recipes.smalr.corpus import corpus_manifests, image_key, split_records
from polyglance.records import Record, read_manifest
from polyglance.reproduce.results import report_path, value_at
from polyglance.reproduce.target import find_target

HUMAN = {"smalr-multi30k": ("en", "de", "fr", "cs"), "smalr-mscoco": ("en", "zh", "ja")}
SMALL = [
    "word_vector_dim=8", "batch=4", "captions_per_language=1", "loop.steps=2",
    "loop.validate_every=0", "clc_iterations=1", "pretraining.steps=1", "pretraining.batch=4",
    *(f"model_config.{key}={value}" for key, value in {
        "own_words": 5, "own_width": 4, "latent_tokens": 20, "candidates": 3,
        "universal_width": 8, "gru_width": 8, "visual_hidden": 8, "width": 8,
    }.items()),
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    published.write_multi30k(folder)
    published.write_mscoco(folder)
    published.write_fasttext(folder)
    return folder


@pytest.fixture(autouse=True)
def _fake_translators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model translates by appending the language's code to words."""
    monkeypatch.setattr(
        translation,
        "_open",
        lambda names, source, target, device: CountingTranslator(source, target),
    )


def run(name: str, data: Path, out: Path, *changes: str) -> dict[str, Any]:
    """Train by the command; return the report."""
    arguments = ["train", name, "--data", str(data), "--out", str(out)]
    for change in (*SMALL, f"cache_dir={data / 'cache'}", *changes):
        arguments += ["--set", change]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.mark.parametrize("name", HUMAN)
def test_recipe_runs_on_the_published_files(name: str, data: Path, tmp_path: Path) -> None:
    is_coco = name == "smalr-mscoco"
    changes = ["corpus.held_out=4", "consistency=false"] if is_coco else []
    report = run(name, data, tmp_path, *changes)
    recalls = {code: report["test"][code]["mR"] for code in published.LANGUAGES}
    assert report["test"]["average"]["mR"] == pytest.approx(sum(recalls.values()) / 10)
    human = [recalls[code] for code in HUMAN[name]]
    assert report["test"]["human_average"]["mR"] == pytest.approx(sum(human) / len(human))
    if is_coco:
        return
    clc = report["consistency"]["translation"]
    for way in ("clc-a", "clc-c", "clc-c-paper"):
        recalls = {code: clc[way][code]["mR"] for code in published.LANGUAGES}
        assert set(clc[way]) == {*recalls, "average", "human_average"}
        human = [recalls[code] for code in HUMAN[name]]
        assert clc[way]["human_average"]["mR"] == pytest.approx(sum(human) / len(human))
    assert_row_is_filled("smalr/table2", "SMALR-CLC-C", report)
    assert clc["parameters"] == {"clc-a": 0, "clc-c": 3520, "clc-c-paper": 352}
    saved = load_smalr(tmp_path / "words")
    assert saved.languages == published.LANGUAGES
    assert saved.consistency is not None


def assert_row_is_filled(target_name: str, row_name: str, report: dict[str, Any]) -> None:
    """Find every figure of a row of a table in the report of its run."""
    _, target = find_target(target_name)
    row = target.row(row_name)
    for column in target.columns:
        assert value_at(report, report_path(target, row, column)) is not None, column.name


def test_a_language_is_added_to_the_papers_recipe(data: Path, tmp_path: Path) -> None:
    """The datasets have no Italian: it is translated, as the six languages were."""
    published.write_word_vectors(data, "it", 10)
    changes = ["consistency=false", "languages=[en,de]", "human_languages=[en,de]"]
    run("smalr-multi30k", data, tmp_path / "run", *changes)
    add = ["smalr", "add-language", tmp_path / "run", "it", "--data", data, "--steps", "2"]
    done = CliRunner().invoke(app, [*map(str, add), "--out", str(tmp_path / "more")])
    assert done.exit_code == 0, done.output
    new = load_smalr(tmp_path / "more" / "words")
    assert new.languages == ("en", "de", "it")
    assert set(new.lexicon.counts["it"]) == {f"{word}it" for word in new.lexicon.counts["en"]}
    report = json.loads((tmp_path / "more" / "report.json").read_text())
    assert set(report["test"]) == {"en", "de", "it", "average"}


ROWS = {
    "Trans. to En": ["model=embn", "translate_to=en", "languages=[en,de,fr,cs]"],
    "(1) S-LIWE": ["model=single-liwe", "languages=[en,de]"],
    "(2) S-LIWE": ["model=small-liwe", "languages=[en,de]"],
    "Figure 1(b)": ["model=mule", "languages=[en,de,fr,cs]"],
}
SHAPES = {
    "embn": ["own_words=null", "latent_tokens=0", "own_width=8"],
    "mule": ["own_words=null", "latent_tokens=0"],
    "single-liwe": ["latent_tokens=0"],
    "small-liwe": ["latent_tokens=0"],
}


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_tables_run(row: str, data: Path, tmp_path: Path) -> None:
    model = ROWS[row][0].partition("=")[2]
    shape = [f"model_config.{change}" for change in SHAPES[model]]
    report = run("smalr-multi30k", data, tmp_path, "consistency=false", *ROWS[row], *shape)
    languages = ("en", "de") if "LIWE" in row else HUMAN["smalr-multi30k"]
    assert set(report["test"]) == {*languages, "average", "human_average"}
    assert (tmp_path / "de" / "words").is_dir() == (row == "(1) S-LIWE")


def test_captions_are_merged_and_completed_to_five(data: Path, tmp_path: Path) -> None:
    recipe = open_recipe("smalr-multi30k").settings
    translator = translation.CaptionTranslator(["model"], data, tmp_path)
    assert recipe.corpus is not None
    manifests = corpus_manifests(
        recipe.corpus, recipe.languages, data, translator=translator, cache_dir=tmp_path
    )
    train = list(read_with_machine_captions(manifests["train"]))
    assert len(train) == 4
    record, machine = train[0]
    assert {code: len(texts) for code, texts in record.captions.items()} == dict.fromkeys(
        published.LANGUAGES, 5
    )
    assert not record.captions["fr"][0].endswith("fr")  # people's
    english = record.captions["en"]
    assert record.captions["fr"][1] == " ".join(f"{word}fr" for word in english[1].split())
    assert machine["ko"] == (0, 1, 2, 3, 4)
    assert "de" not in machine
    test, marks = next(read_with_machine_captions(manifests["test"]))
    assert len(test.captions["fr"]) == 1  # as people translated it
    assert len(test.captions["ja"]) == 5
    assert set(marks) == {"zh", "ja", "ar", "af", "ko", "ru"}


def test_held_out_images_have_human_captions_in_all_three_languages(
    data: Path, tmp_path: Path
) -> None:
    settings = open_recipe("smalr-mscoco", ["corpus.held_out=4"]).settings
    manifests = corpus_manifests(
        settings.corpus, ("en", "zh", "ja"), data, translator=None, cache_dir=tmp_path
    )
    split = {name: list(read_manifest(path)) for name, path in manifests.items()}
    keys = {name: {image_key(record) for record in some} for name, some in split.items()}
    assert len(keys["validation"]) == len(keys["test"]) == 4
    assert len(keys["train"]) == 28 - 8
    assert not keys["test"] & keys["validation"]
    assert not keys["train"] & (keys["test"] | keys["validation"])
    for record in (*split["validation"], *split["test"]):
        assert set(record.captions) == {"en", "zh", "ja"}
    with pytest.raises(PolyglanceError, match="15 images have captions in en, ja, zh, too few"):
        corpus_manifests(
            open_recipe("smalr-mscoco").settings.corpus, ("en", "zh", "ja"), data,
            translator=None, cache_dir=tmp_path,
        )  # fmt: skip


def test_a_split_that_the_files_lack_is_named() -> None:
    corpus = PublishedCorpus((CaptionSource("multi30k-task2", "task2"),), "features")
    with pytest.raises(
        PolyglanceError, match=r"no image is in val.*the files have train; set corpus"
    ):
        split_records([Record(image="1.jpg", split="train")], corpus)
