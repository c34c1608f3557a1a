"""MMP on extracted features, from manifests to report, on the toy world's clips."""

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

from polyglance.config import load
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import DirectionResult, RetrievalResult
from polyglance.models.mmp import MMPObjective
from polyglance.recipes import open_recipe
from polyglance.recipes.mmp.features import (
    Corpus,
    Described,
    FeatureRecipe,
    build_model,
    checkpoint_score,
    run,
    with_translations,
)
from polyglance.records import Record, read_manifest, write_manifest
from polyglance.text import open_tokenizer
from polyglance.training import pairing
from polyglance.training.subtitles import ClipSampling
from toy_corpus import LANGUAGES, ToyCorpus

FEATURES = "clips/features.npz"
CHANCE = 100 * 10 / 60
"""R@10 of a model that knows nothing, among the 60 test clips."""


def found_in_ten(report: dict[str, Any], languages: Iterable[str] = LANGUAGES) -> float:
    """Text-to-video R@10 on test, the mean of languages."""
    return float(np.mean([report["test"][name]["text_to_visual"]["R@10"] for name in languages]))


def shorter(recipe: FeatureRecipe, steps: int = 2, **changes: Any) -> FeatureRecipe:
    return replace(recipe, loop=replace(recipe.loop, steps=steps, **changes))


def test_two_languages_and_all_three_terms_learn(toy: ToyCorpus, tmp_path: Path) -> None:
    recipe = replace(
        shorter(toy.recipe, 55),
        captions_each=2,
        objective=replace(toy.recipe.objective, intra=True, cross=True),
    )
    report = run(recipe, toy.data, tmp_path)
    assert found_in_ten(report) > CHANCE + 10
    assert found_in_ten(report, ["de"]) > CHANCE + 8


def test_pretraining_on_subtitles_helps_what_follows(toy: ToyCorpus, tmp_path: Path) -> None:
    """Also in the language that fine-tuning leaves out: the claim of the paper's Table 4."""
    videos = Corpus(
        "clips/videos.jsonl", "clips/videos.npz", batch=48, subtitles=ClipSampling(4, 4)
    )
    pretraining = replace(shorter(toy.recipe, 75), corpora=(videos,), validation=None)
    pretrained = run(pretraining, toy.data, tmp_path / "pretrained")
    assert pretrained["trained_on"] == ["de", "en"]
    assert found_in_ten(pretrained) > CHANCE + 8
    english = replace(shorter(toy.recipe, 12), languages=("en",))
    scratch = run(english, toy.data, tmp_path / "scratch")
    tuning = replace(english, initialise_from=str(tmp_path / "pretrained"))
    tuned = run(tuning, toy.data, tmp_path / "tuned")
    assert found_in_ten(tuned, ["en"]) > found_in_ten(scratch, ["en"]) + 10
    assert found_in_ten(tuned, ["de"]) > found_in_ten(scratch, ["de"]) + 5


def test_a_run_reports_resumes_and_keeps_its_recipe(toy: ToyCorpus, tmp_path: Path) -> None:
    recipe = shorter(toy.recipe, 4, validate_every=2)
    report = run(recipe, toy.data, tmp_path)
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
    again = run(recipe, toy.data, tmp_path)  # nothing is left to train
    assert again["test"] == report["test"]
    reopened = open_recipe(tmp_path / "recipe.yaml")
    assert (reopened.kind, reopened.settings) == ("features", recipe)
    with pytest.raises(PolyglanceError, match="a run by another recipe"):
        run(replace(recipe, longest_text=9), toy.data, tmp_path)


def result(to_visual: list[float], to_text: list[float]) -> RetrievalResult:
    ways = [
        DirectionResult(9, 9, dict(zip((1, 5, 10), recalls, strict=True)), 2.0)
        for recalls in (to_text, to_visual)
    ]
    return RetrievalResult(*ways)


def test_a_checkpoint_counts_by_its_recalls_from_text_to_video() -> None:
    results = {
        "en": result([10, 30, 50], to_text=[99, 99, 99]),
        "de": result([1, 2, 4], to_text=[0, 0, 0]),
    }
    assert checkpoint_score(results) == {"en": 90, "de": 7, "score": 97}


def test_the_checkpoint_with_the_highest_sum_is_kept(toy: ToyCorpus, tmp_path: Path) -> None:
    """Trained at a rate that spoils everything in the end, so that the last is not the best."""
    recipe = shorter(toy.recipe, 20, validate_every=2, learning_rate=3e-2, schedule="constant")
    report = run(recipe, toy.data, tmp_path)
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


def sentences_seen(
    recipe: FeatureRecipe, toy: ToyCorpus, out: Path, monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """What the model was shown: of each step and each caption a clip, the texts."""
    tokenizer, seen = open_tokenizer(toy.encoder), []

    def spy(model: Any, features: Any, visuals: Any, captions: Any, *rest: Any) -> Any:
        for text in captions:
            parts = text.ids.split(text.packing.lengths.tolist())
            seen.append([tokenizer.decode(part.tolist()) for part in parts])
        return original(model, features, visuals, captions, *rest)

    original = pairing.mmp_losses
    monkeypatch.setattr(pairing, "mmp_losses", spy)
    run(recipe, toy.data, out)
    return seen


def told(toy: ToyCorpus, language: str) -> set[str]:
    tokenizer = open_tokenizer(toy.encoder)
    texts = {
        text
        for record in read_manifest(toy.data / "clips" / "train.jsonl")
        for text in record.captions[language]
    }
    return {tokenizer.decode(tokenizer.encode(text)) for text in texts}


def test_english_only_never_sees_another_language(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(shorter(toy.recipe, 5), languages=("en",))
    seen = sentences_seen(recipe, toy, tmp_path, monkeypatch)
    assert len(seen) == 5
    assert {text for batch in seen for text in batch} <= told(toy, "en")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["trained_on"] == ["en"]
    assert set(report["test"]) == {"en", "de"}  # the other is measured all the same
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert set(log[-1]["validation"]) == {"en", "score"}  # but does not choose


def test_two_captions_a_clip_are_in_two_languages(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(shorter(toy.recipe, 5), captions_each=2)
    seen = sentences_seen(recipe, toy, tmp_path, monkeypatch)
    english, german = told(toy, "en"), told(toy, "de")
    assert not english & german
    for x, y in zip(seen[::2], seen[1::2], strict=True):
        pairs = list(zip(x, y, strict=True))
        assert all((a in english) != (b in english) for a, b in pairs)
        assert {a in english for a, _ in pairs} == {True, False}


def test_translations_join_by_key() -> None:
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
    with pytest.raises(PolyglanceError, match="no translation belongs to a record"):
        with_translations(records, translations[2:], None)


def test_translate_train_sees_the_translations(
    toy: ToyCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = list(read_manifest(toy.data / "clips" / "train.jsonl"))
    only = [replace(r, captions={"en": r.captions["en"]}) for r in clips]
    write_manifest(toy.data / "clips" / "english.jsonl", only)
    german = [Record(video=r.video, captions={"de": r.captions["de"]}) for r in clips]
    write_manifest(toy.data / "clips" / "translated.jsonl", german)
    corpus = Corpus("clips/english.jsonl", FEATURES, translations="clips/translated.jsonl")
    recipe = replace(shorter(toy.recipe, 5), captions_each=2, corpora=(corpus,))
    seen = {text for batch in sentences_seen(recipe, toy, tmp_path, monkeypatch) for text in batch}
    assert seen & told(toy, "de")
    assert seen & told(toy, "en")


def test_each_part_learns_at_its_rate(toy: ToyCorpus, tmp_path: Path) -> None:
    """Adam's first step moves every weight by its learning rate, whatever the gradient."""
    recipe = replace(
        shorter(toy.recipe, 1, learning_rate=1e-3, schedule="constant", warmup=0, clip=None),
        encoder_rate=0.5,
        visual_rate=2.0,
    )
    before = build_model(recipe, visual_width(toy)).state_dict()
    run(recipe, toy.data, tmp_path)
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


def test_pictures_after_video(toy: ToyCorpus, tmp_path: Path) -> None:
    """The image variant: other features, the layer on them anew, all else from the video model."""
    video = replace(shorter(toy.recipe, 3), validation=None, test=None)
    run(video, toy.data, tmp_path / "video")
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
        shorter(video, 1, learning_rate=1e-30),  # nothing that float32 could tell
        initialise_from=str(tmp_path / "video"),
        visual_rate=2.0,
        corpora=(Corpus("pictures/train.jsonl", "pictures/regions.npz"),),
    )
    run(image, toy.data, tmp_path / "image")
    old = load_file(tmp_path / "video" / "latest" / "model.safetensors")
    new = load_file(tmp_path / "image" / "latest" / "model.safetensors")
    assert new["visual_input.weight"].shape == (32, 7)
    for name in set(new) - {"visual_input.weight", "visual_input.bias"}:
        torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-20)


def test_mistakes_in_a_recipe_are_one_sentence(toy: ToyCorpus, tmp_path: Path) -> None:
    recipe, corpus = shorter(toy.recipe), toy.recipe.corpora[0]
    write_manifest(toy.data / "clips" / "french.jsonl", [Record(captions={"fr": ("rien",)})])
    wrong = {
        "has no corpora": replace(recipe, corpora=()),
        "no such manifest": replace(recipe, corpora=(replace(corpus, manifest="no.jsonl"),)),
        "there are no such features": replace(recipe, test=Described("clips/val.jsonl", "no")),
        "none of 1 records has features": replace(
            recipe, test=Described("clips/french.jsonl", FEATURES)
        ),
        "none of 0 records": replace(recipe, corpora=(replace(corpus, split="dev"),)),
        "languages that the corpus has": replace(recipe, languages=("sw",)),
        r"train\.jsonl has nothing to train on in sw, xx, only in de, en: set languages": replace(
            recipe, languages=("en", "xx", "sw")
        ),
        r"videos\.jsonl has nothing to train on in xx, only in de, en": replace(
            recipe,
            languages=("en", "xx"),
            corpora=(Corpus("clips/videos.jsonl", "clips/videos.npz", subtitles=ClipSampling()),),
        ),
        "captions_each to 2": replace(recipe, objective=MMPObjective(intra=False, cross=True)),
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
            run(mistaken, toy.data, tmp_path / "out")
    spoken = [
        replace(record, captions={"fr": record.captions["en"]})
        for record in read_manifest(toy.data / "clips" / "val.jsonl")
    ]
    write_manifest(toy.data / "clips" / "french.jsonl", spoken)
    french = replace(recipe, validation=Described("clips/french.jsonl", FEATURES))
    with pytest.raises(PolyglanceError, match=r"none of the languages trained on \(de, en\)"):
        run(french, toy.data, tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"captions_each": 0}, "captions_each is 0: give 1 or more"),
        ({"longest_text": 2}, "longest_text is 2: give 3 or more"),
        ({"longest_visual": 0}, "longest_visual is 0: give 1 or more"),
        ({"dropout": 1.0}, r"dropout is 1\.0: give a share"),
        ({"encoder_dropout": -0.1}, r"encoder_dropout is -0\.1: give a share"),
        ({"visual_rate": -1.0}, r"visual_rate is -1\.0: give 0 or more"),
        ({"corpora": [{"batch": 0}]}, r"corpora\.0: batch is 0: give 1 or more"),
        ({"corpora": [{"weight": 0.0}]}, r"weight is 0\.0: give a number above 0"),
        ({"loop": {"steps": -1}}, "loop: steps is -1: give 0 or more"),
        ({"objective": {"temperature": 0}}, r"objective: temperature is 0\.0: give a number above"),
    ],
)
def test_a_setting_out_of_bounds_is_one_sentence(settings: dict[str, Any], message: str) -> None:
    named = {"manifest": "train.jsonl", "features": "features"}
    if "corpora" in settings:
        settings = {"corpora": [{**named, **corpus} for corpus in settings["corpora"]]}
    with pytest.raises(PolyglanceError, match=message):
        load(FeatureRecipe, settings)


def test_languages_may_come_from_different_corpora(toy: ToyCorpus, tmp_path: Path) -> None:
    """And what is measured has no need to be in all of them."""
    corpora = []
    for language in LANGUAGES:
        name = f"clips/only-{language}.jsonl"
        spoken = [
            replace(record, captions={language: record.captions[language]})
            for record in read_manifest(toy.data / "clips" / "val.jsonl")
        ]
        write_manifest(toy.data / name, spoken)
        corpora.append(Corpus(name, FEATURES, batch=8))
    recipe = replace(
        shorter(toy.recipe, 1),
        languages=LANGUAGES,
        corpora=tuple(corpora),
        validation=Described("clips/only-de.jsonl", FEATURES),
        test=None,
    )
    report = run(recipe, toy.data, tmp_path)
    assert report["trained_on"] == ["de", "en"]
    assert set(report["validation"]) == {"de"}


def test_a_recipe_is_a_file(toy: ToyCorpus, tmp_path: Path) -> None:
    from polyglance.config import dump

    (tmp_path / "recipe.yaml").write_text(dump(toy.recipe))
    assert load(FeatureRecipe, tmp_path / "recipe.yaml") == toy.recipe
