"""UC2 by recipe on the toy world: all stages, measuring, and what the paper's tables vary."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from polyglance.recipes.uc2.labels import LabelNamesConfig
from typer.testing import CliRunner

from helpers.toy_regions import write_region_data
from helpers.translators import CountingTranslator
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.data import CaptionedImages, TextFile
from polyglance.recipes.cross_encoder.config import RerankingConfig
from polyglance.recipes.uc2 import data
from polyglance.recipes.uc2.config import (
    EarlyAdaptationConfig,
    FineTuning,
    ObjectiveWeights,
    Pretraining,
    Translations,
    UC2Recipe,
)
from polyglance.recipes.uc2.data import load_data
from polyglance.recipes.uc2.train import train as run
from polyglance.records import read_manifest, write_manifest
from polyglance.training.loop import LoopConfig

LANGUAGES = ("en", "de", "fr")
COUNTS = {"train": 60, "val": 10, "test": 12}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is translated is kept elsewhere than people keep it."""
    monkeypatch.setenv("POLYGLANCE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    write_region_data(folder, LANGUAGES, COUNTS)
    texts = [replace(record, image=None) for record in read_manifest(folder / "train.jsonl")]
    write_manifest(folder / "texts.jsonl", texts)
    generator = np.random.default_rng(0)
    for split in ("val", "test"):
        (folder / f"dual-{split}").mkdir()
        for name in ("pictures", *LANGUAGES):
            vectors = generator.standard_normal((COUNTS[split], 8))
            np.save(folder / f"dual-{split}" / f"{name}.npy", vectors)
    return folder


@pytest.fixture
def recipe(data: Path) -> UC2Recipe:
    return UC2Recipe(
        encoder=str(data / "encoder"),
        train=CaptionedImages("train.jsonl", "regions"),
        validation=CaptionedImages("val.jsonl", "regions"),
        test=CaptionedImages("test.jsonl", "regions"),
        labels=LabelNamesConfig("labels.tsv"),
        translations=Translations(texts=(TextFile("texts.jsonl"),), cache_dir="linked"),
        early_adaptation=EarlyAdaptationConfig(
            batch=60, temperature=0.1, steps=60, learning_rate=1e-2
        ),
        pretraining=Pretraining(batch=6, steps=8, learning_rate=1e-3),
        fine_tuning=FineTuning(batch=4, hard_negative_pool=5),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0, log_every=1),
        translate_test="dictionaries/{source}-{target}.tsv",
        reranking=RerankingConfig("dual-test", validation_embeddings="dual-val", candidates=5),
    )


def tasks_of(folder: Path) -> set[str]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return {entry["task"] for entry in map(json.loads, lines) if "task" in entry}


def test_all_stages_run_and_the_report_tells_of_each(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    report = run(recipe, data, tmp_path / "run")
    assert report["languages"] == ["en", "de", "fr"]
    assert report["labels"]["named"] == {"en": 1.0, "de": 1.0, "fr": 1.0}
    # Where the word of a region's own label comes among all 48: what early adaptation is for.
    adapted = report["early_adaptation"]
    assert adapted["rank_before"]["en"]["mean"] > 10
    assert adapted["rank_after"]["en"]["mean"] < 0.5 * adapted["rank_before"]["en"]["mean"]
    assert tasks_of(tmp_path / "run" / "pretraining") <= {"itm", "mlm", "mrtm", "vtlm"}
    assert len(tasks_of(tmp_path / "run" / "pretraining")) > 1
    assert report["fine_tuning"]["best_step"] == 2
    assert str(report["validation"]["dual_weight"]) in report["validation"]["by_dual_weight"]
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}
    assert set(report["translate_test"]) == {"all_pairs"}
    for found in (*report["test"].values(), *report["translate_test"].values()):
        assert set(found) == {"en", "de", "fr", "average"}
        assert 0 <= found["average"]["mR"] <= 100
    # English stays as it is, and what is translated is another question.
    plain, translated = report["test"]["all_pairs"], report["translate_test"]["all_pairs"]
    assert plain["en"] == translated["en"]
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    assert (data / "linked" / "en-de.tsv").is_file()

    # The same pre-training, another fine-tuning: on German alone, without a dual encoder.
    other = replace(
        recipe,
        adaptation=None,
        pretraining=None,
        initialise_from=str(tmp_path / "run" / "pretraining"),
        fine_tuning=FineTuning(batch=4, languages=("de",), loss="matching"),
        translate_test=None,
        test_on=5,
        reranking=None,
    )
    report = run(other, data, tmp_path / "other")
    assert set(report) == {"languages", "fine_tuning", "test"}
    log = (tmp_path / "other" / "fine_tuning" / "log.jsonl").read_text().splitlines()
    assert set(json.loads(log[-1])["validation"]) == {"de", "score"}


def test_the_test_is_translated_by_any_translator(
    data: Path, recipe: UC2Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def opened(name: str, source: str, target: str, **_: Any) -> CountingTranslator:
        asked.append((name, source))
        return CountingTranslator(source, target)

    monkeypatch.setattr(data, "open_translator", opened)
    (data / "marian-de").mkdir()
    (data / "marian-fr").mkdir()
    world = load_data(recipe, data, "cpu")
    assert world.test is not None
    found = world.translated(world.test, "marian-{source}")
    assert asked == [(str(data / "marian-de"), "de"), (str(data / "marian-fr"), "fr")]
    for before, after in zip(world.test.records, found.records, strict=True):
        assert after.captions["en"] == before.captions["en"]
        for language in ("de", "fr"):
            expected = CountingTranslator(language, "en").translate(before.captions[language])
            assert list(after.captions[language]) == expected
    assert len(found.captions) == len(world.test.captions)
    assert (
        world.translated(world.test, "apertium").captions.language_codes
        == found.captions.language_codes
    )
    assert asked[2:] == [("apertium", "de"), ("apertium", "fr")]


def test_a_missing_translator_is_found_out_before_training(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    with pytest.raises(PolyglanceError, match="de-en"):
        run(replace(recipe, translate_test="none/{source}-{target}.tsv"), data, tmp_path / "run")
    assert not (tmp_path / "run" / "adaptation").exists()


def test_early_adaptation_has_the_regions_of_every_corpus(data: Path, recipe: UC2Recipe) -> None:
    shutil.copytree(data / "regions", data / "more-regions", dirs_exist_ok=True)
    more = replace(recipe, more=(CaptionedImages("val.jsonl", "more-regions"),))
    world, alone = (load_data(one, data, "cpu") for one in (more, recipe))
    assert len(world.believed()) > len(alone.believed())


ABLATIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "without VTLM": ({"mixture": ObjectiveWeights(vtlm=0)}, {"itm", "mlm", "mrtm"}),
    "without MRTM": ({"mixture": ObjectiveWeights(mrtm=0)}, {"itm", "mlm", "vtlm"}),
    "without both": ({"mixture": ObjectiveWeights(mrtm=0, vtlm=0)}, {"itm", "mlm"}),
    "English pivot": (
        {"mixture": ObjectiveWeights(1, 1, 1, 1), "pivot": "english"}, {"itm", "mlm", "mrtm", "vtlm"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_paper_s_ablations_are_settings(
    data: Path, recipe: UC2Recipe, tmp_path: Path, name: str
) -> None:
    changes, expected = ABLATIONS[name]
    stage = Pretraining(batch=4, steps=16, learning_rate=1e-3, **changes)
    few = replace(recipe, adaptation=None, pretraining=stage, fine_tuning=None, test=None)
    few = replace(few, variant="reference" if name == "without both" else "paper")
    report = run(few, data, tmp_path)
    assert set(report) - {"labels"} == {"languages", "pretraining"}
    assert ("labels" in report) == ("mrtm" in expected)
    assert tasks_of(tmp_path / "pretraining") == expected


def test_matching_may_come_first(data: Path, recipe: UC2Recipe, tmp_path: Path) -> None:
    stage = Pretraining(batch=4, steps=2, itm_only_steps=6, learning_rate=1e-3)
    few = replace(recipe, adaptation=None, pretraining=stage, fine_tuning=None, test=None)
    report = run(few, data, tmp_path)
    assert report["itm_only"]["steps"] == 6
    assert tasks_of(tmp_path / "matching") == {"itm"}
    without = replace(
        stage, mixture=ObjectiveWeights(itm=0)
    )  # which leaves its steps to the others
    report = run(replace(few, pretraining=without), data, tmp_path / "without")
    assert "matching" not in report
    assert report["pretraining"]["steps"] == 8


def test_pivoting_on_english_shows_no_picture_beside_another_language(
    data: Path, recipe: UC2Recipe
) -> None:
    from polyglance.recipes.uc2.train import _objectives, build_model

    world = load_data(recipe, data, "cpu")
    model = build_model(recipe, world)
    for pivot, languages in (("image", {"en", "de", "fr"}), ("english", {"en"})):
        stage = Pretraining(batch=4, pivot=pivot)  # type: ignore[arg-type]
        tasks: dict[str, Any] = _objectives(recipe, stage, model, world).tasks
        for name in ("itm", "mlm", "mrtm"):
            assert set(tasks[name].corpus.captions.languages) == languages
        assert (tasks["vtlm"].regions is None) == (pivot == "english")
        assert tasks["vtlm"].co_masked == (0.0 if pivot == "english" else 1.0)
    stage = Pretraining(batch=4, masked=1.0, random=0.0)  # the paper's text
    tasks = _objectives(recipe, stage, model, world).tasks
    assert [tasks[name].masking.masked for name in ("mlm", "vtlm")] == [1.0, 1.0]


@pytest.mark.parametrize("pivot", ["image", "english"])
def test_languages_that_are_not_named_are_not_seen_by_any_objective(
    data: Path, recipe: UC2Recipe, pivot: Any
) -> None:
    """Else a model that is to meet French for the first time has read it beside English."""
    from polyglance.recipes.uc2.train import _objectives, build_model

    world = load_data(recipe, data, "cpu")
    model, stage = build_model(recipe, world), Pretraining(batch=4, pivot=pivot)
    some = replace(stage, languages=("en", "de"))
    tasks: dict[str, Any] = _objectives(recipe, some, model, world).tasks
    table, second = tasks["vtlm"].pairs.table, tasks["vtlm"].pairs.second
    assert {table.language_codes[number] for number in table.language_ids[second]} == {"de"}
    with pytest.raises(PolyglanceError, match=r"in another language .*mixture\.vtlm to 0"):
        _objectives(recipe, replace(stage, languages=("en",)), model, world)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LabelNamesConfig()}, None),
        ({"labels": LabelNamesConfig("few.tsv")}, "more labels than the 2 that have names"),
        ({"initialise_from": "nowhere"}, "no checkpoint to start from"),
        ({"reranking": RerankingConfig("nowhere")}, "no embeddings of the dual encoder"),
        ({"translations": Translations(languages=("cs",))}, "captions in both en and cs"),
        ({"fine_tuning": FineTuning(languages=("cs",)), "pretraining": None}, "captions in cs"),
    ],
)
def test_what_is_missing_is_said_plainly(
    data: Path, recipe: UC2Recipe, tmp_path: Path, changes: dict[str, Any], message: str | None
) -> None:
    (data / "few.tsv").write_text("en\tde\tfr\na\tb\tc\nd\te\tf\n", encoding="utf-8")
    few = replace(recipe, **changes)
    if message is None:  # ImageNet's names serve any store of so many labels
        assert load_data(few, data, "cpu").labels.own == {"en": 1.0, "de": 0.0, "fr": 1.0}
        return
    with pytest.raises(PolyglanceError, match=message):
        run(few, data, tmp_path)


def test_settings_out_of_bounds_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="one objective at least"):
        ObjectiveWeights(0, 0, 0, 0)
    with pytest.raises(PolyglanceError, match="batch is 1: give 2 or more"):
        Pretraining(batch=1)
    with pytest.raises(PolyglanceError, match="temperature is 0"):
        EarlyAdaptationConfig(temperature=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A caption beside itself teaches copying.
        ({"translations": Translations(languages=("en", "de"))}, "beside English: leave en out"),
        ({"pretraining": Pretraining(languages=("en",))}, "VTLM needs captions in another"),
        ({"pretraining": Pretraining(languages=("en", "cs"))}, "captions in cs"),
        ({"translations": Translations(texts=(TextFile("no.jsonl"),))}, r"no\.jsonl: there is no"),
        ({"fine_tuning": FineTuning(languages=("cs",))}, "captions in cs"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_on_is_found_out_before_anything_is_trained(
    data: Path, recipe: UC2Recipe, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        run(replace(recipe, **changes), data, tmp_path)
    assert not any((tmp_path / stage).exists() for stage in ("adaptation", "matching"))


def test_all_dictionaries_of_labels_that_are_missing_are_said_at_once(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    (data / "english.tsv").write_text("en\n" + "a\n" * 48, encoding="utf-8")
    labels = LabelNamesConfig("english.tsv", "none/{source}-{target}.tsv")
    lacking = replace(recipe, labels=labels, train=CaptionedImages("train.jsonl", "nowhere"))
    with pytest.raises(PolyglanceError) as told:
        run(lacking, data, tmp_path / "run")
    for name in ("nowhere: there is no store", "en-de.tsv, ", "en-fr.tsv: there is no dictionary"):
        assert name in str(told.value)
    assert not (tmp_path / "run").exists()
    unasked = replace(recipe.pretraining, mixture=ObjectiveWeights(mrtm=0))
    assert replace(recipe, labels=labels, adaptation=None, pretraining=unasked).missing(data) == []


def test_the_published_recipe_runs_by_the_real_command(data: Path, tmp_path: Path) -> None:
    published = open_recipe("uc2-flickr8k")
    assert published.kind == "uc2"
    mixture = published.settings.pretraining.mixture
    assert (mixture.itm, mixture.mlm, mixture.mrtm, mixture.vtlm) == (9, 12, 9, 3)
    assert published.settings.fine_tuning.margin == 0.2
    described = "={manifest: %s.jsonl, features: regions}"
    changes = [
        f"encoder={data / 'encoder'}", "train" + described % "train",
        "validation" + described % "val", "test" + described % "test",
        "labels.names=labels.tsv", "translations={texts: [{manifest: texts.jsonl}]}",
        "reranking={dual: dual-test}", "adaptation.steps=1", "pretraining.steps=2",
        "pretraining.matching_first=1",
        "pretraining.batch=4",
        "fine_tuning.batch=4", "fine_tuning.lookalikes=5", "loop.steps=1",
        "loop.precision=float32", "translate_test=dictionaries/{source}-{target}.tsv",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    command = ["train", "uc2-flickr8k", "--data", str(data), "--out", str(tmp_path), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    for figure in (
        "adaptation.rank_after.en",
        "test.all_pairs.average",
        "translate_test.all_pairs.average",
    ):
        assert f"\n{figure} " in f"\n{result.stdout}"
    again = CliRunner().invoke(app, command)  # all is done: it only measures
    assert again.exit_code == 0, again.output
    assert "reranked" in json.loads((tmp_path / "report.json").read_text())["test"]
