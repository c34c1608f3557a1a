"""Train UC2 on the toy dataset: all stages, evaluation, and what the paper's tables vary."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.toy_regions import write_region_data
from helpers.translators import CountingTranslator
from polyglance.cli import app
from polyglance.errors import PolyglanceError
from polyglance.recipes import open_recipe
from polyglance.recipes.cross_encoder.config import CaptionedImages, RerankingConfig, TextFile
from polyglance.recipes.uc2.config import (
    EarlyAdaptationConfig,
    FineTuning,
    ObjectiveWeights,
    Pretraining,
    Translations,
    UC2Recipe,
)
from polyglance.recipes.uc2.data import load_data, translate_split
from polyglance.recipes.uc2.labels import LabelNamesConfig
from polyglance.recipes.uc2.train import build_model, build_stages, pretraining_tasks, train
from polyglance.records import read_manifest, write_manifest
from polyglance.training.loop import LoopConfig

LANGUAGES = ("en", "de", "fr")
COUNTS = {"train": 60, "val": 10, "test": 12}


@pytest.fixture(autouse=True)
def _translation_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep translations away from the user's own cache."""
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
        translations=Translations(texts=(TextFile("texts.jsonl"),), cache_dir="aligned"),
        early_adaptation=EarlyAdaptationConfig(
            batch=60, temperature=0.1, steps=60, learning_rate=1e-2
        ),
        pretraining=Pretraining(batch=6, steps=8, learning_rate=1e-3),
        fine_tuning=FineTuning(batch=4, hard_negative_pool=5),
        loop=LoopConfig(steps=2, learning_rate=1e-3, save_every=0, log_every=1),
        translate_test="dictionaries/{source}-{target}.tsv",
        reranking=RerankingConfig("dual-test", validation_embeddings="dual-val", candidates=5),
    )


def logged_tasks(stage: Path) -> set[str]:
    lines = (stage / "log.jsonl").read_text().splitlines()
    return {entry["task"] for entry in map(json.loads, lines) if "task" in entry}


def test_all_stages_run_and_are_reported(data: Path, recipe: UC2Recipe, tmp_path: Path) -> None:
    report = train(recipe, data, tmp_path / "run")
    assert report["languages"] == ["en", "de", "fr"]
    assert report["labels"]["named"] == {"en": 1.0, "de": 1.0, "fr": 1.0}
    # Early adaptation improves the rank of a region's own label name among all 48.
    adapted = report["early_adaptation"]
    assert adapted["rank_before"]["en"]["mean"] > 10
    assert adapted["rank_after"]["en"]["mean"] < 0.5 * adapted["rank_before"]["en"]["mean"]
    assert logged_tasks(tmp_path / "run" / "pretraining") <= {"itm", "mlm", "mrtm", "vtlm"}
    assert len(logged_tasks(tmp_path / "run" / "pretraining")) > 1
    assert report["fine_tuning"]["best_step"] == 2
    assert str(report["validation"]["dual_weight"]) in report["validation"]["by_dual_weight"]
    assert set(report["test"]) == {"all_pairs", "dual", "reranked"}
    assert set(report["translate_test"]) == {"all_pairs"}
    for results in (*report["test"].values(), *report["translate_test"].values()):
        assert set(results) == {"en", "de", "fr", "average"}
        assert 0 <= results["average"]["mR"] <= 100
    # English captions are not translated.
    plain, translated = report["test"]["all_pairs"], report["translate_test"]["all_pairs"]
    assert plain["en"] == translated["en"]
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == report
    assert (data / "aligned" / "en-de.tsv").is_file()

    # The same pre-training, another fine-tuning: on German alone, without a dual encoder.
    other = replace(
        recipe,
        early_adaptation=None,
        pretraining=None,
        initialise_from=str(tmp_path / "run" / "pretraining"),
        fine_tuning=FineTuning(batch=4, languages=("de",), loss="matching"),
        translate_test=None,
        test_images=5,
        reranking=None,
    )
    report = train(other, data, tmp_path / "other")
    assert set(report) == {"languages", "fine_tuning", "test"}
    log = (tmp_path / "other" / "fine_tuning" / "log.jsonl").read_text().splitlines()
    assert set(json.loads(log[-1])["validation"]) == {"de", "score"}


def test_test_split_is_translated_by_any_translator(
    data: Path, recipe: UC2Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, str]] = []

    def open_translator(name: str, source: str, target: str, **_: Any) -> CountingTranslator:
        opened.append((name, source))
        return CountingTranslator(source, target)

    monkeypatch.setattr("polyglance.recipes.uc2.data.open_translator", open_translator)
    (data / "marian-de").mkdir()
    (data / "marian-fr").mkdir()
    uc2_data = load_data(recipe, data, "cpu")
    test, reader = uc2_data.test, uc2_data.reader
    assert test is not None
    translated = translate_split(test, "marian-{source}", reader)
    assert opened == [(str(data / "marian-de"), "de"), (str(data / "marian-fr"), "fr")]
    for before, after in zip(test.records, translated.records, strict=True):
        assert after.captions["en"] == before.captions["en"]
        for language in ("de", "fr"):
            expected = CountingTranslator(language, "en").translate(before.captions[language])
            assert list(after.captions[language]) == expected
    assert len(translated.captions) == len(test.captions)
    by_apertium = translate_split(test, "apertium", reader)
    assert by_apertium.captions.language_codes == translated.captions.language_codes
    assert opened[2:] == [("apertium", "de"), ("apertium", "fr")]


def test_missing_translator_fails_before_training(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    with pytest.raises(PolyglanceError, match="de-en"):
        train(replace(recipe, translate_test="none/{source}-{target}.tsv"), data, tmp_path / "run")
    assert not (tmp_path / "run" / "early_adaptation").exists()


def test_early_adaptation_uses_the_regions_of_all_corpora(data: Path, recipe: UC2Recipe) -> None:
    shutil.copytree(data / "regions", data / "more-regions", dirs_exist_ok=True)
    more = replace(recipe, extra_train=(CaptionedImages("val.jsonl", "more-regions"),))
    both, alone = (load_data(one, data, "cpu").soft_labels for one in (more, recipe))
    assert both is not None
    assert alone is not None
    assert len(both) > len(alone)


ABLATIONS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "without VTLM": ({"mixture": ObjectiveWeights(vtlm=0)}, {"itm", "mlm", "mrtm"}),
    "without MRTM": ({"mixture": ObjectiveWeights(mrtm=0)}, {"itm", "mlm", "vtlm"}),
    "without both": ({"mixture": ObjectiveWeights(mrtm=0, vtlm=0)}, {"itm", "mlm"}),
    "English pivot": (
        {"mixture": ObjectiveWeights(1, 1, 1, 1), "pivot": "english"},
        {"itm", "mlm", "mrtm", "vtlm"},
    ),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_of_the_paper_are_settings(
    data: Path, recipe: UC2Recipe, tmp_path: Path, name: str
) -> None:
    changes, expected = ABLATIONS[name]
    stage = Pretraining(batch=4, steps=16, learning_rate=1e-3, **changes)
    short = replace(
        recipe,
        early_adaptation=None,
        pretraining=stage,
        fine_tuning=None,
        test=None,
        variant="reference" if name == "without both" else "paper",
    )
    report = train(short, data, tmp_path)
    assert set(report) - {"labels"} == {"languages", "pretraining"}
    assert ("labels" in report) == ("mrtm" in expected)
    assert logged_tasks(tmp_path / "pretraining") == expected


def test_pretraining_may_begin_with_itm_alone(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    stage = Pretraining(batch=4, steps=2, itm_only_steps=6, learning_rate=1e-3)
    short = replace(recipe, early_adaptation=None, pretraining=stage, fine_tuning=None, test=None)
    report = train(short, data, tmp_path)
    assert report["itm_only"]["steps"] == 6
    assert logged_tasks(tmp_path / "itm_only") == {"itm"}
    # Without ITM, the other objectives take its steps.
    without = replace(stage, mixture=ObjectiveWeights(itm=0))
    report = train(replace(short, pretraining=without), data, tmp_path / "without")
    assert "itm_only" not in report
    assert report["pretraining"]["steps"] == 8


def test_epochs_are_as_many_for_one_language_as_for_all(data: Path, recipe: UC2Recipe) -> None:
    own = LoopConfig(steps=90, learning_rate=1e-3, warmup=9, validate_every=30)
    only = replace(recipe, early_adaptation=None, pretraining=None, distillation=None, loop=own)
    uc2_data = load_data(only, data, "cpu")
    model = build_model(only, uc2_data)
    table = uc2_data.train.captions
    steps = {}
    for languages in (("en",), ("de", "fr"), None):
        stage = FineTuning(batch=6, epochs=2.5, languages=languages, hard_negative_pool=5)
        [built] = build_stages(replace(only, fine_tuning=stage), model, uc2_data)
        steps[languages] = built.loop.steps
        captions = sum(len(table.rows_in_language(code)) for code in languages or LANGUAGES)
        assert built.loop.steps == pytest.approx(2.5 * captions / 6, abs=1)
        assert built.loop.warmup == pytest.approx(built.loop.steps / 10, abs=1)
        assert 2.5 <= built.loop.steps / built.loop.validate_every <= 3
        task: Any = built.tasks.tasks["retrieval"]
        assert task.warmup_steps == round(stage.hard_negative_warmup * built.loop.steps)
    assert steps[None] == pytest.approx(steps["en",] + steps["de", "fr"], abs=2)


def test_english_pivot_has_no_images_beside_other_languages(data: Path, recipe: UC2Recipe) -> None:
    uc2_data = load_data(recipe, data, "cpu")
    model = build_model(recipe, uc2_data)
    for pivot, languages in (("image", {"en", "de", "fr"}), ("english", {"en"})):
        stage = Pretraining(batch=4, pivot=pivot)  # type: ignore[arg-type]
        tasks: dict[str, Any] = pretraining_tasks(recipe, stage, model, uc2_data)
        for name in ("itm", "mlm", "mrtm"):
            assert set(tasks[name].corpus.captions.languages) == languages
        assert (tasks["vtlm"].regions is None) == (pivot == "english")
        assert tasks["vtlm"].co_masked == (0.0 if pivot == "english" else 1.0)
    stage = Pretraining(batch=4, masked=1.0, random=0.0)  # as in the paper's text
    tasks = pretraining_tasks(recipe, stage, model, uc2_data)
    assert [tasks[name].masking.masked for name in ("mlm", "vtlm")] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("variant", "chosen", "expected"),
    [
        ("paper", None, False),
        ("reference", None, True),
        ("paper", True, True),
        ("reference", False, False),
    ],
)
def test_the_reference_variant_masks_at_least_one_word_or_region(
    data: Path, recipe: UC2Recipe, variant: Any, chosen: bool | None, expected: bool
) -> None:
    uc2_data = load_data(recipe, data, "cpu")
    stage = Pretraining(batch=4, mask_at_least_one=chosen)
    changed = replace(recipe, variant=variant, pretraining=stage)
    model = build_model(changed, uc2_data)
    tasks: dict[str, Any] = pretraining_tasks(changed, stage, model, uc2_data)
    of_words = {tasks[name].masking.at_least_one for name in ("mlm", "vtlm")}
    assert of_words == {"masked" if expected else "no"}
    assert tasks["mrtm"].at_least_one == ("random" if expected else "no")


def test_positions_of_tlm_are_a_setting(data: Path, recipe: UC2Recipe) -> None:
    uc2_data = load_data(recipe, data, "cpu")
    for variant, chosen, runs_on in (
        ("paper", None, False),
        ("paper", "continue", True),
        ("reference", None, True),
        ("reference", "restart", False),
    ):
        stage = Pretraining(pivot="english", tlm_positions=chosen)  # type: ignore[arg-type]
        changed = replace(recipe, variant=variant, pretraining=stage)  # type: ignore[arg-type]
        assert build_model(changed, uc2_data).positions_run_on == runs_on


def test_published_limits_are_the_defaults() -> None:
    assert UC2Recipe().max_text_tokens == 60
    assert (UC2Recipe().translations.min_lift, UC2Recipe().translations.aligner) == (
        0,
        "fast_align",
    )


@pytest.mark.parametrize("pivot", ["image", "english"])
def test_excluded_languages_are_used_by_no_objective(
    data: Path, recipe: UC2Recipe, pivot: Any
) -> None:
    """Zero-shot evaluation on French needs a model that never read French beside English."""
    stage = Pretraining(batch=4, pivot=pivot)
    some = replace(recipe, pretraining=replace(stage, languages=("en", "de")))
    uc2_data = load_data(some, data, "cpu")
    assert some.pretraining is not None
    tasks: dict[str, Any] = pretraining_tasks(
        some, some.pretraining, build_model(some, uc2_data), uc2_data
    )
    table, second = tasks["vtlm"].captions.table, tasks["vtlm"].captions.second
    assert {table.language_codes[number] for number in table.language_ids[second]} == {"de"}
    english = replace(recipe, pretraining=replace(stage, languages=("en",)))
    with pytest.raises(PolyglanceError, match=r"in another language .*mixture\.vtlm to 0"):
        load_data(english, data, "cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LabelNamesConfig()}, None),
        ({"labels": LabelNamesConfig("few.tsv")}, "more labels than the 2 with names"),
        ({"initialise_from": "nowhere"}, "no checkpoint to start from"),
        ({"reranking": RerankingConfig("nowhere")}, "no embeddings of the dual encoder"),
        ({"translations": Translations(languages=("cs",))}, "captions in both en and cs"),
        ({"fine_tuning": FineTuning(languages=("cs",)), "pretraining": None}, "captions in cs"),
    ],
)
def test_missing_data_is_reported(
    data: Path, recipe: UC2Recipe, tmp_path: Path, changes: dict[str, Any], message: str | None
) -> None:
    (data / "few.tsv").write_text("en\tde\tfr\na\tb\tc\nd\te\tf\n", encoding="utf-8")
    changed = replace(recipe, **changes)
    if message is None:  # ImageNet's names fit any store with at most as many labels
        names = load_data(changed, data, "cpu").label_names
        assert names is not None
        assert names.coverage == {"en": 1.0, "de": 0.0, "fr": 1.0}
        return
    with pytest.raises(PolyglanceError, match=message):
        train(changed, data, tmp_path)


def test_settings_out_of_bounds_are_refused() -> None:
    with pytest.raises(PolyglanceError, match="at least one objective"):
        ObjectiveWeights(0, 0, 0, 0)
    with pytest.raises(PolyglanceError, match="batch is 1: give 2 or more"):
        Pretraining(batch=1)
    with pytest.raises(PolyglanceError, match="temperature is 0"):
        EarlyAdaptationConfig(temperature=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A caption paired with itself teaches copying.
        ({"translations": Translations(languages=("en", "de"))}, "besides English: leave en out"),
        ({"pretraining": Pretraining(languages=("en",))}, "VTLM needs captions in another"),
        ({"pretraining": Pretraining(languages=("en", "cs"))}, "captions in cs"),
        ({"translations": Translations(texts=(TextFile("no.jsonl"),))}, r"no\.jsonl: there is no"),
        ({"fine_tuning": FineTuning(languages=("cs",))}, "captions in cs"),
    ],
)
def test_unusable_settings_fail_before_training(
    data: Path, recipe: UC2Recipe, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PolyglanceError, match=message):
        train(replace(recipe, **changes), data, tmp_path)
    assert not any((tmp_path / stage).exists() for stage in ("early_adaptation", "itm_only"))


def test_all_missing_label_dictionaries_are_named_at_once(
    data: Path, recipe: UC2Recipe, tmp_path: Path
) -> None:
    (data / "english.tsv").write_text("en\n" + "a\n" * 48, encoding="utf-8")
    labels = LabelNamesConfig("english.tsv", dictionaries="none/{source}-{target}.tsv")
    changed = replace(recipe, labels=labels, train=CaptionedImages("train.jsonl", "nowhere"))
    with pytest.raises(PolyglanceError) as caught:
        train(changed, data, tmp_path / "run")
    for name in (
        "nowhere: there is no feature store",
        "en-de.tsv, ",
        "en-fr.tsv: there is no dictionary",
    ):
        assert name in str(caught.value)
    assert not (tmp_path / "run").exists()
    assert recipe.pretraining is not None
    unused = replace(recipe.pretraining, mixture=ObjectiveWeights(mrtm=0))
    without = replace(recipe, labels=labels, early_adaptation=None, pretraining=unused)
    assert without.missing_files(data) == []


def test_included_recipe_trains_from_the_command_line(data: Path, tmp_path: Path) -> None:
    included = open_recipe("uc2-flickr8k")
    assert included.system == "uc2"
    mixture = included.settings.pretraining.mixture
    assert (mixture.itm, mixture.mlm, mixture.mrtm, mixture.vtlm) == (9, 12, 9, 3)
    assert included.settings.fine_tuning.margin == 0.2
    split = "={manifest: %s.jsonl, features: regions}"
    changes = [
        f"encoder={data / 'encoder'}", "train" + split % "train",
        "validation" + split % "val", "test" + split % "test",
        "labels.names=labels.tsv", "translations={texts: [{manifest: texts.jsonl}]}",
        "reranking={dual_embeddings: dual-test}", "early_adaptation.steps=1",
        "word_head={batch: 4, steps: 1}",
        "pretraining.steps=2", "pretraining.itm_only_steps=1", "pretraining.batch=4",
        "fine_tuning.batch=4", "fine_tuning.hard_negative_pool=5", "loop.steps=1",
        "loop.precision=float32", "translate_test=dictionaries/{source}-{target}.tsv",
    ]  # fmt: skip
    options = [part for change in changes for part in ("--set", change)]
    command = ["train", "uc2-flickr8k", "--data", str(data), "--out", str(tmp_path), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    for figure in (
        "early_adaptation.rank_after.en",
        "test.all_pairs.average",
        "translate_test.all_pairs.average",
    ):
        assert f"\n{figure} " in f"\n{result.stdout}"
    again = CliRunner().invoke(app, command)  # nothing is left to train: it only evaluates
    assert again.exit_code == 0, again.output
    assert "reranked" in json.loads((tmp_path / "report.json").read_text())["test"]
