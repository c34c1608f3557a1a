"""MMP on extracted features, from manifests to report, on clips of the toy dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.interruptions import interrupt_before_step
from helpers.toy_clips import LANGUAGES, ToyCorpus
from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import DirectionResult, RetrievalResult
from polyglance.models.mmp import MMPObjective
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp import tasks
from polyglance.recipes.mmp.config import ClipSampling, FeatureSplit, MMPRecipe, TrainingCorpus
from polyglance.recipes.mmp.data import draw_records, load_data, with_translations
from polyglance.recipes.mmp.evaluation import RetrievalSplit, recall_sums
from polyglance.recipes.mmp.train import build_model, train
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text import open_tokenizer

FEATURES = "clips/features.npz"
CHANCE = 100 * 10 / 60
"""R@10 of random ranking among the 60 test clips."""


def recall_at_10(report: dict[str, Any], languages: Iterable[str] = LANGUAGES) -> float:
    """Return text-to-video R@10 on test, averaged over languages."""
    return float(np.mean([report["test"][name]["text_to_visual"]["R@10"] for name in languages]))


def shorter(recipe: MMPRecipe, steps: int = 2, **changes: Any) -> MMPRecipe:
    return replace(recipe, loop=replace(recipe.loop, steps=steps, **changes))


def test_training_with_all_three_loss_terms_learns_both_languages(
    toy: ToyCorpus, tmp_path: Path
) -> None:
    recipe = replace(
        shorter(toy.recipe, 40),
        captions_per_image=2,
        objective=replace(toy.recipe.objective, intra=True, cross=True),
    )
    report = train(recipe, toy.data, tmp_path)
    assert recall_at_10(report) > CHANCE + 10
    assert recall_at_10(report, ["de"]) > CHANCE + 8


def test_pretraining_on_subtitles_improves_fine_tuning(toy: ToyCorpus, tmp_path: Path) -> None:
    """Also in the language that fine-tuning leaves out: the claim of the paper's Table 4."""
    videos = TrainingCorpus(
        "clips/videos.jsonl", "clips/videos.npz", batch=48, subtitles=ClipSampling(4, 4)
    )
    pretraining = replace(shorter(toy.recipe, 75), corpora=(videos,), validation=None)
    pretrained = train(pretraining, toy.data, tmp_path / "pretrained")
    assert pretrained["trained_on"] == ["de", "en"]
    assert recall_at_10(pretrained) > CHANCE + 8
    english = replace(shorter(toy.recipe, 12), languages=("en",))
    scratch = train(english, toy.data, tmp_path / "scratch")
    tuning = replace(english, initialise_from=str(tmp_path / "pretrained"))
    tuned = train(tuning, toy.data, tmp_path / "tuned")
    assert recall_at_10(tuned, ["en"]) > recall_at_10(scratch, ["en"]) + 10
    assert recall_at_10(tuned, ["de"]) > recall_at_10(scratch, ["de"]) + 5


def test_run_writes_report_resumes_and_saves_recipe(toy: ToyCorpus, tmp_path: Path) -> None:
    recipe = shorter(toy.recipe, 4, validate_every=2)
    report = train(recipe, toy.data, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert report["trained_on"] == ["de", "en"]
    for split in ("validation", "test"):
        for language in LANGUAGES:
            to_visual = report[split][language]["text_to_visual"]
            to_text = report[split][language]["visual_to_text"]
            assert set(to_visual) == {
                "R@1", "R@5", "R@10", "median_rank", "queries", "candidates"
            }  # fmt: skip
            assert (to_visual["candidates"], to_visual["queries"]) == (60, 120)
            assert (to_text["candidates"], to_text["queries"]) == (120, 60)
            recalls = [way[f"R@{k}"] for way in (to_visual, to_text) for k in (1, 5, 10)]
            assert report[split][language]["mR"] == pytest.approx(np.mean(recalls))
    again = train(recipe, toy.data, tmp_path)  # nothing is left to train
    assert again["test"] == report["test"]
    reopened = open_recipe(tmp_path / "recipe.yaml")
    assert (reopened.system, reopened.settings) == ("mmp", recipe)
    with pytest.raises(PolyglanceError, match="a run with another recipe"):
        train(replace(recipe, max_text_tokens=9), toy.data, tmp_path)


def test_a_killed_run_resumes_to_the_bit(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(
        shorter(toy.recipe, 4, validate_every=0, save_every=2), validation=None, test=None
    )
    train(recipe, toy.data, tmp_path / "whole")
    interrupt_before_step(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, toy.data, tmp_path / "killed")
    train(recipe, toy.data, tmp_path / "killed")
    ours, theirs = (
        load_file(tmp_path / name / "latest" / "model.safetensors") for name in ("killed", "whole")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def result(to_visual: list[float], to_text: list[float]) -> RetrievalResult:
    ways = [
        DirectionResult(9, 9, dict(zip((1, 5, 10), recalls, strict=True)), 2.0)
        for recalls in (to_text, to_visual)
    ]
    return RetrievalResult(*ways)


def test_checkpoint_score_sums_text_to_video_recalls() -> None:
    results = {
        "en": result([10, 30, 50], to_text=[99, 99, 99]),
        "de": result([1, 2, 4], to_text=[0, 0, 0]),
    }
    assert recall_sums(results) == {"en": 90, "de": 7, "score": 97}


def test_best_checkpoint_has_the_highest_score(toy: ToyCorpus, tmp_path: Path) -> None:
    """Train at a learning rate that diverges late, so that the last checkpoint is not the best."""
    recipe = shorter(toy.recipe, 20, validate_every=2, learning_rate=3e-2, schedule="constant")
    report = train(recipe, toy.data, tmp_path)
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    scores = {e["step"]: e["validation"] for e in entries if "validation" in e}
    assert set(scores) == set(range(2, 21, 2))
    for score in scores.values():
        assert score["score"] == pytest.approx(score["en"] + score["de"])
    best = max(scores, key=lambda step: scores[step]["score"])
    assert report["best_step"] == best
    recalls = [
        report["validation"][language]["text_to_visual"][f"R@{k}"]
        for language in LANGUAGES
        for k in (1, 5, 10)
    ]
    assert sum(recalls) == pytest.approx(report["best_score"]) == scores[best]["score"]


def captured_sentences(
    recipe: MMPRecipe, toy: ToyCorpus, out: Path, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """Return the texts that reached the model, for each step and each caption of a clip."""
    tokenizer, batches = open_tokenizer(toy.encoder), []

    def spy(model: Any, features: Any, visuals: Any, captions: Any, *rest: Any) -> Any:
        for text in captions:
            parts = text.ids.split(text.packing.lengths.tolist())
            batches.append([tokenizer.decode(part.tolist()) for part in parts])
        return original(model, features, visuals, captions, *rest)

    original = tasks.mmp_losses
    monkeypatch.setattr(tasks, "mmp_losses", spy)
    train(recipe, toy.data, out)
    return batches


def training_texts(toy: ToyCorpus, language: str) -> set[str]:
    tokenizer = open_tokenizer(toy.encoder)
    texts = {
        text
        for record in read_manifest(toy.data / "clips" / "train.jsonl")
        for text in record.captions[language]
    }
    return {tokenizer.decode(tokenizer.encode(text)) for text in texts}


def test_english_only_uses_no_other_language(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(shorter(toy.recipe, 5), languages=("en",))
    batches = captured_sentences(recipe, toy, tmp_path, monkeypatch)
    assert len(batches) == 5
    assert {text for batch in batches for text in batch} <= training_texts(toy, "en")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["trained_on"] == ["en"]
    assert set(report["test"]) == {"en", "de"}  # the other is evaluated as well
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert set(log[-1]["validation"]) == {"en", "score"}  # but does not select the checkpoint


def test_two_captions_per_clip_are_in_two_languages(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(shorter(toy.recipe, 5), captions_per_image=2)
    batches = captured_sentences(recipe, toy, tmp_path, monkeypatch)
    english, german = training_texts(toy, "en"), training_texts(toy, "de")
    assert not english & german
    for x, y in zip(batches[::2], batches[1::2], strict=True):
        pairs = list(zip(x, y, strict=True))
        assert all((a in english) != (b in english) for a, b in pairs)
        assert {a in english for a, _ in pairs} == {True, False}


def test_translations_are_joined_by_key() -> None:
    records = [
        Record(video="a", captions={"en": ("one",)}),
        Record(video="b", id="B", captions={"en": ("two",), "de": ("zwei",)}),
        Record(video="c", captions={"en": ("three",)}),
    ]
    translations = [
        Record(video="c", captions={"de": ("drei",), "fr": ("trois",)}),
        Record(id="B", captions={"de": ("zwo",), "fr": ("deux",)}),
        Record(video="elsewhere", captions={"de": ("nichts",)}),
    ]
    joined = with_translations(records, translations, None)
    assert [record.video for record in joined] == ["a", "b", "c"]
    assert joined[0].captions == {"en": ("one",)}
    assert joined[1].captions == {"en": ("two",), "de": ("zwei", "zwo"), "fr": ("deux",)}
    assert joined[2].captions == {"en": ("three",), "de": ("drei",), "fr": ("trois",)}
    some = with_translations(records, translations, ["fr"])
    assert some[2].captions == {"en": ("three",), "fr": ("trois",)}
    with pytest.raises(PolyglanceError, match="no translation matches a record"):
        with_translations(records, translations[2:], None)


def test_fewer_records_are_among_more() -> None:
    records = [Record(image=f"{number}.jpg") for number in range(50)]
    few, many = draw_records(records, 5), draw_records(records, 20)
    assert len(few) == 5
    assert len(many) == 20
    assert set(map(id, few)) < set(map(id, many))
    assert many == sorted(many, key=records.index)
    assert many != records[:20]
    assert draw_records(records, 99) == records


def test_a_corpus_trains_on_as_many_records_as_it_says(toy: ToyCorpus) -> None:
    (corpus,) = toy.recipe.corpora
    few = replace(toy.recipe, corpora=(replace(corpus, max_records=3),))
    ((_, split),) = load_data(few, toy.data, "cpu").corpora
    assert isinstance(split, RetrievalSplit)
    assert len(split.visuals) == 3
    assert set(split.captions.record_ids.tolist()) == {0, 1, 2}
    # Records that lack the language are not among them.
    manifest = toy.data / corpus.manifest
    records = [
        replace(record, captions={"de": record.captions["de"]}) if number % 2 else record
        for number, record in enumerate(read_manifest(manifest))
    ]
    write_manifest(manifest.with_name("half.jsonl"), records)
    half = replace(corpus, manifest="clips/half.jsonl", max_records=9)
    english = replace(few, corpora=(half,), languages=("en",))
    ((_, split),) = load_data(english, toy.data, "cpu").corpora
    assert isinstance(split, RetrievalSplit)
    assert len(set(split.captions.record_ids.tolist())) == len(split.visuals) == 9
    whole = load_data(few, toy.data, "cpu").test
    assert whole is not None
    assert len(whole.visuals) > 3


def test_translate_train_uses_the_translations(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = list(read_manifest(toy.data / "clips" / "train.jsonl"))
    only = [replace(r, captions={"en": r.captions["en"]}) for r in clips]
    write_manifest(toy.data / "clips" / "english.jsonl", only)
    german = [Record(video=r.video, captions={"de": r.captions["de"]}) for r in clips]
    write_manifest(toy.data / "clips" / "translated.jsonl", german)
    corpus = TrainingCorpus("clips/english.jsonl", FEATURES, translations="clips/translated.jsonl")
    recipe = replace(shorter(toy.recipe, 5), captions_per_image=2, corpora=(corpus,))
    texts = {
        text for batch in captured_sentences(recipe, toy, tmp_path, monkeypatch) for text in batch
    }
    assert texts & training_texts(toy, "de")
    assert texts & training_texts(toy, "en")


def test_parameter_groups_have_their_own_learning_rates(toy: ToyCorpus, tmp_path: Path) -> None:
    """Adam's first step moves every weight by its learning rate, whatever the gradient."""
    recipe = replace(
        shorter(toy.recipe, 1, learning_rate=1e-3, schedule="constant", warmup=0, grad_clip=None),
        encoder_lr_multiplier=0.5,
        visual_lr_multiplier=2.0,
    )
    before = build_model(recipe, visual_width(toy)).state_dict()
    train(recipe, toy.data, tmp_path)
    after = load_file(tmp_path / "latest" / "model.safetensors")
    moved = {name: float((after[name] - before[name]).abs().quantile(0.9)) for name in after}
    for name, rate in {
        "visual_input.weight": 2e-3,
        "visual_input.bias": 2e-3,
        "encoder.layers.0.widen.weight": 0.5e-3,
        "text_pooling.layers.0.widen.weight": 1e-3,
        "visual_pooling.layers.0.widen.weight": 1e-3,
    }.items():
        assert moved[name] == pytest.approx(rate, rel=0.02), name


def visual_width(toy: ToyCorpus) -> int:
    with np.load(toy.data / FEATURES) as arrays:
        return int(arrays["features"].shape[2])


def test_image_variant_starts_from_a_video_model(toy: ToyCorpus, tmp_path: Path) -> None:
    """The layer on features is new, all other weights come from the video model."""
    video = replace(shorter(toy.recipe, 3), validation=None, test=None)
    train(video, toy.data, tmp_path / "video")
    pictures = [
        replace(record, video=None, image=record.video)
        for record in read_manifest(toy.data / "clips" / "val.jsonl")
    ]
    write_manifest(toy.data / "pictures" / "train.jsonl", pictures)
    random = np.random.default_rng(0)
    np.savez(
        toy.data / "pictures" / "regions.npz",
        ids=np.array([record.image for record in pictures]),
        features=random.normal(size=(len(pictures), 5, 7)).astype(np.float32),
    )
    image = replace(
        shorter(video, 1, learning_rate=1e-30),  # no visible change in float32
        initialise_from=str(tmp_path / "video"),
        visual_lr_multiplier=2.0,
        corpora=(TrainingCorpus("pictures/train.jsonl", "pictures/regions.npz"),),
    )
    train(image, toy.data, tmp_path / "image")
    old = load_file(tmp_path / "video" / "latest" / "model.safetensors")
    new = load_file(tmp_path / "image" / "latest" / "model.safetensors")
    assert new["visual_input.weight"].shape == (32, 7)
    for name in set(new) - {"visual_input.weight", "visual_input.bias"}:
        torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-20)


def test_recipe_errors_name_the_fix(toy: ToyCorpus, tmp_path: Path) -> None:
    recipe, corpus = shorter(toy.recipe), toy.recipe.corpora[0]
    write_manifest(toy.data / "clips" / "french.jsonl", [Record(captions={"fr": ("rien",)})])
    wrong = {
        "has no corpora": replace(recipe, corpora=()),
        "no such manifest": replace(recipe, corpora=(replace(corpus, manifest="no.jsonl"),)),
        "there are no such features": replace(recipe, test=FeatureSplit("clips/val.jsonl", "no")),
        "none of 1 records has features": replace(
            recipe, test=FeatureSplit("clips/french.jsonl", FEATURES)
        ),
        "no record of the split 'dev', only of train": replace(
            recipe, corpora=(replace(corpus, split="dev"),)
        ),
        "nothing to train on in sw, only in de, en": replace(recipe, languages=("sw",)),
        r"train\.jsonl has nothing to train on in sw, xx, only in de, en: set languages": replace(
            recipe, languages=("en", "xx", "sw")
        ),
        r"videos\.jsonl has nothing to train on in xx, only in de, en": replace(
            recipe,
            languages=("en", "xx"),
            corpora=(
                TrainingCorpus("clips/videos.jsonl", "clips/videos.npz", subtitles=ClipSampling()),
            ),
        ),
        "captions_per_image to 2": replace(recipe, objective=MMPObjective(intra=False, cross=True)),
        "no trained model here": replace(recipe, initialise_from=str(tmp_path)),
        "must all have one width": replace(
            recipe, corpora=(replace(corpus, features=(FEATURES, FEATURES)),)
        ),
        "no video has features and subtitles": replace(
            recipe, corpora=(replace(corpus, subtitles=ClipSampling()),)
        ),
    }
    for message, mistaken in wrong.items():
        with pytest.raises(PolyglanceError, match=message):
            train(mistaken, toy.data, tmp_path / "out")
    records = [
        replace(record, captions={"fr": record.captions["en"]})
        for record in read_manifest(toy.data / "clips" / "val.jsonl")
    ]
    write_manifest(toy.data / "clips" / "french.jsonl", records)
    french = replace(recipe, validation=FeatureSplit("clips/french.jsonl", FEATURES))
    with pytest.raises(PolyglanceError, match=r"none of the languages trained on \(de, en\)"):
        train(french, toy.data, tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"captions_per_image": 0}, "captions_per_image is 0: give 1 or more"),
        ({"max_text_tokens": 2}, "max_text_tokens is 2: give 3 or more"),
        ({"max_visual_tokens": 0}, "max_visual_tokens is 0: give 1 or more"),
        ({"dropout": 1.0}, r"dropout is 1\.0: give a number from 0"),
        ({"encoder_dropout": -0.1}, r"encoder_dropout is -0\.1: give a number from 0"),
        ({"visual_lr_multiplier": -1.0}, r"visual_lr_multiplier is -1\.0: give 0 or more"),
        ({"corpora": [{"batch": 0}]}, r"corpora\.0: batch is 0: give 1 or more"),
        ({"corpora": [{"max_records": 0}]}, r"corpora\.0: max_records is 0: give 1 or more"),
        ({"corpora": [{"max_records": 9, "subtitles": {}}]}, "for captions, not subtitles"),
        ({"corpora": [{"weight": 0.0}]}, r"weight is 0\.0: give a number above 0"),
        ({"loop": {"steps": -1}}, "loop: steps is -1: give 0 or more"),
        ({"objective": {"temperature": 0}}, r"objective: temperature is 0\.0: give a number above"),
    ],
)
def test_out_of_range_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    named = {"manifest": "train.jsonl", "features": "features"}
    if "corpora" in settings:
        settings = {"corpora": [{**named, **corpus} for corpus in settings["corpora"]]}
    with pytest.raises(PolyglanceError, match=message):
        load(MMPRecipe, settings)


def test_languages_may_come_from_different_corpora(toy: ToyCorpus, tmp_path: Path) -> None:
    """Validation need not have all of the languages."""
    corpora = []
    for language in LANGUAGES:
        name = f"clips/only-{language}.jsonl"
        records = [
            replace(record, captions={language: record.captions[language]})
            for record in read_manifest(toy.data / "clips" / "val.jsonl")
        ]
        write_manifest(toy.data / name, records)
        corpora.append(TrainingCorpus(name, FEATURES, batch=8))
    recipe = replace(
        shorter(toy.recipe, 1),
        languages=LANGUAGES,
        corpora=tuple(corpora),
        validation=FeatureSplit("clips/only-de.jsonl", FEATURES),
        test=None,
    )
    report = train(recipe, toy.data, tmp_path)
    assert report["trained_on"] == ["de", "en"]
    assert set(report["validation"]) == {"de"}


def test_recipe_round_trips_through_yaml(toy: ToyCorpus, tmp_path: Path) -> None:
    from polyglance.config import dump

    (tmp_path / "recipe.yaml").write_text(dump(toy.recipe))
    assert load(MMPRecipe, tmp_path / "recipe.yaml") == toy.recipe
