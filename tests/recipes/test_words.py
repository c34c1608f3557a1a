"""Word models by recipe on the toy world: training, measuring, keeping, and what changes words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.smalr import SMALRConfig
from polyglance.models.word_folder import load_words
from polyglance.nn.hybrid_embedding import HybridEmbedding
from polyglance.nn.packing import Packing
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes import open_recipe
from polyglance.recipes.smalr import words
from polyglance.recipes.smalr.pretraining import Pretraining, align_words, pretrained_latent
from polyglance.recipes.smalr.recipe import Pictured, WordRecipe
from polyglance.recipes.smalr.words import run
from polyglance.recipes.smalr.world import World
from polyglance.records import read_manifest
from polyglance.text.dictionaries import open_dictionary
from polyglance.training.smalr_tasks import AveragedSentences, CaptionGrids, DescribedPictures
from toy_corpus import write_store
from toy_word_corpus import DICTIONARIES, LANGUAGES, RECIPE, make_toy_word_corpus


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    make_toy_word_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path) -> tuple[Path, dict[str, Any]]:
    recipe = replace(RECIPE, cache=str(data / "cache"), consistency=True)
    return data / "run", run(recipe, data, data / "run")


def few_steps(data: Path, **changes: Any) -> WordRecipe:
    """A recipe that is over at once."""
    loop = replace(RECIPE.loop, steps=2, validate_every=0)
    pretraining = replace(RECIPE.pretraining, steps=2)
    same = {"cache": str(data / "cache"), "loop": loop, "pretraining": pretraining}
    return replace(RECIPE, **{**same, **changes})


def test_smalr_learns_and_says_what_it_is(data: Path, trained: tuple[Path, dict[str, Any]]) -> None:
    folder, report = trained
    assert report["test"]["average"]["mR"] > 25  # by chance 9
    recalls = [report["test"][language]["mR"] for language in LANGUAGES]
    assert report["test"]["average"]["mR"] == pytest.approx(sum(recalls) / 3)
    both = [report["test"]["de"][way].values() for way in ("text_to_image", "image_to_text")]
    assert report["test"]["de"]["mR"] == pytest.approx(np.mean([*both[0], *both[1]]))
    assert report["best_score"] == pytest.approx(report["validation"]["average"]["mR"])
    assert report["test_time_parameters"] < report["trainable_parameters"]
    assert json.loads((folder / "report.json").read_text()) == report
    assert (folder / "log.jsonl").is_file()
    assert (folder / "pretraining" / "log.jsonl").is_file()


def test_what_is_kept_finds_the_pictures_again(
    data: Path, trained: tuple[Path, dict[str, Any]]
) -> None:
    kept = load_words(trained[0] / "words")
    assert kept.languages == LANGUAGES
    records = list(read_manifest(data / "flickr8k" / "test.jsonl"))
    with np.load(data / "flickr8k" / "features.npz") as arrays:
        of_picture = dict(zip(arrays["ids"].tolist(), arrays["features"][:, 0], strict=True))
    features = torch.tensor(np.stack([of_picture[r.image] for r in records])).float()
    texts = [text for record in records for text in record.captions["de"]]
    owners = np.repeat(np.arange(len(records)), [len(r.captions["de"]) for r in records])
    ids = kept.lexicon.encode_batch(texts, "de")
    flat = torch.tensor([number for one in ids for number in one])
    sentences = kept.text.encode_text(flat, Packing.of([len(one) for one in ids]))
    found = evaluate_retrieval(kept.pictures(features).numpy(), sentences.numpy(), owners)
    # The table is in half precision.
    assert found.mean_recall == pytest.approx(trained[1]["test"]["de"]["mR"], abs=1.0)


def test_consistency_is_measured_both_ways(trained: tuple[Path, dict[str, Any]]) -> None:
    measured = trained[1]["consistency"]
    alone = trained[1]["test"]["average"]["mR"]
    for source in ("dictionary", "dataset"):
        of_one = 32 * 3 + 32
        sizes = {"clc-a": 0, "clc-c": 3 * of_one, "clc-c-paper": of_one}
        assert measured[source]["parameters"] == sizes
        for way in sizes:
            assert measured[source][way]["average"] > alone + 1
    # All languages together say the same of a picture, whoever asks.
    assert measured["dataset"]["clc-a"]["en"] == pytest.approx(measured["dataset"]["clc-a"]["fr"])


def test_consistency_asks_validation_to_learn_and_test_to_measure(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def figures(learned_from: Any, measured: Any, owners: Any) -> dict[str, Any]:
        asked.append((learned_from("de"), measured("de"), owners["de"]))
        return {}

    monkeypatch.setattr(words, "consistency_figures", figures)
    for name in ("asked_by_others", "asked_word_by_word"):
        monkeypatch.setattr(words, name, lambda captions, language, *_: (captions, language))
    recipe = few_steps(data, consistency=True)
    run(recipe, data, tmp_path)
    assert len(asked) == 2
    captions = World.open(recipe, data, "cpu").captions
    for learned_from, measured, owners in asked:
        for (table, language), split, owner in zip(
            (learned_from, measured), ("validation", "test"), owners, strict=True
        ):
            assert language == "de"
            assert table.ids.tolist() == captions[split].ids.tolist()
            assert owner.tolist() == table.owners[table.of_language("de")].tolist()
    assert asked[0][0][0].ids.tolist() != asked[0][1][0].ids.tolist()


def test_latent_tokens_are_shared_by_the_models_that_want_them(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    recipe = few_steps(data, cache=str(cache))
    smalr = run(recipe, data, tmp_path / "smalr")
    hem = run(replace(recipe, model="hem"), data, tmp_path / "hem")
    slots = [load_words(tmp_path / name / "words").text.slots for name in ("smalr", "hem")]
    assert torch.equal(*slots)
    assert len(list(cache.glob("latent-*"))) == 1
    # What the tokens cost is told by both, not how long the second waited for them.
    assert hem["pretraining_seconds"] == smalr["pretraining_seconds"]
    tokens, vectors, width = 40, 24, 24
    assert hem["pretraining_parameters"] == tokens * (vectors + 1 + width)
    other = replace(recipe.loop, seed=1)
    run(replace(recipe, loop=other), data, tmp_path / "other")
    assert len(list(cache.glob("latent-*"))) == 2


def test_latent_tokens_of_other_captions_are_others(data: Path, tmp_path: Path) -> None:
    """The same words in the same order, about other pictures."""
    world = World.open(few_steps(data), data, "cpu")
    captions = world.captions["train"]
    moved = np.sort(captions.owners // 2)
    for number, table in enumerate((captions, replace(captions, owners=moved), captions)):
        pretrained_latent(
            SMALRConfig(latent_tokens=30, universal_width=8, candidates=2),
            world.vectors,
            CaptionGrids(table, sentences_each=1),
            Pretraining(steps=1, batch=8),
            rule=TripletRule(),
            easy_share=0.0,
            seed=0,
            folder=tmp_path / str(number),
            cache=tmp_path / "cache",
        )
    assert len(list((tmp_path / "cache").glob("latent-*"))) == 2


def test_all_models_have_the_same_number_of_steps(data: Path, tmp_path: Path) -> None:
    def steps(log: Path) -> int:
        return int(json.loads(log.read_text().splitlines()[-1])["step"]) if log.is_file() else 0

    shape = {**RECIPE.shape, "own_words": None, "latent_tokens": 0}
    shapes = {"smalr": {}, "mule": shape, "parallel-embn": {**shape, "own_width": 24}}
    pretraining = replace(RECIPE.pretraining, steps=3)
    for model, changes in shapes.items():
        run(
            few_steps(
                data, model=model, shape=changes or RECIPE.shape, pretraining=pretraining,
                cache=str(tmp_path / "cache"),
            ), data, tmp_path / model,
        )  # fmt: skip
    done = {
        model: (
            steps(tmp_path / model / "pretraining" / "log.jsonl"),
            steps(tmp_path / model / "log.jsonl"),
        )
        for model in shapes
    }
    assert done == {"smalr": (3, 2), "mule": (3, 2), "parallel-embn": (0, 5)}


def test_first_stage_moves_projections_alone(data: Path, tmp_path: Path) -> None:
    world = World.open(few_steps(data), data, "cpu")
    lexicon = world.lexicon
    table = HybridEmbedding.build(
        world.vectors,
        torch.from_numpy(lexicon.language_of),
        torch.from_numpy(lexicon.rank_in_language),
        own_words=None,
        own_width=16,
        width=24,
    )
    before = {name: value.clone() for name, value in table.state_dict().items()}
    grids, rule = CaptionGrids(world.captions["train"]), TripletRule(margin=0.2, negatives=20)

    def loss() -> float:
        task = AveragedSentences(table, grids, batch=64, rule=rule)
        return float(task.losses(np.random.default_rng(7))["neighbours"].detach())

    at_first = loss()
    moved, _ = align_words(
        table,
        grids,
        Pretraining(steps=30, learning_rate=1e-2, batch=64),
        rule=rule,
        easy_share=0.5,
        seed=0,
        folder=tmp_path,
    )
    after = table.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"projections"}
    assert moved == 3 * (16 + 1) * 24 + 24  # and the mask, which no sentence has
    assert all(p.requires_grad for p in table.parameters())
    assert loss() < 0.8 * at_first


def test_negatives_become_fewer_in_both_stages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: dict[str, list[int]] = {"pictures": [], "sentences": []}

    def watch(task: type, name: str, rule: Callable[[Any], TripletRule]) -> None:
        losses = task.losses  # type: ignore[attr-defined]

        def watched(self: Any, generator: np.random.Generator) -> Any:
            counted[name].append(rule(self).negatives)
            return losses(self, generator)

        monkeypatch.setattr(task, "losses", watched)

    watch(DescribedPictures, "pictures", lambda task: task.objective.triplets)
    watch(AveragedSentences, "sentences", lambda task: task.rule)
    recipe = few_steps(
        data, easy_share=0.5, triplets=TripletRule(negatives=16), cache=str(tmp_path / "cache"),
        loop=replace(RECIPE.loop, steps=8, validate_every=0),
        pretraining=replace(RECIPE.pretraining, steps=4),
    )  # fmt: skip
    run(recipe, data, tmp_path / "run")
    assert counted == {
        "pictures": [64, 45, 32, 23, 16, 16, 16, 16],  # 64 candidates a batch, by four steps to 16
        "sentences": [64, 32, 16, 16],
    }


def test_the_test_pictures_wait_until_everything_is_chosen(data: Path, tmp_path: Path) -> None:
    report = run(few_steps(data, measure_test=False, consistency=True), data, tmp_path)
    assert set(report["validation"]) == {*LANGUAGES, "average"}
    assert "test" not in report
    assert "consistency" not in report


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on processors without bfloat16
def test_half_precision_learns_the_same(data: Path, tmp_path: Path) -> None:
    losses = []
    for precision in ("float32", "bfloat16"):
        loop = replace(RECIPE.loop, steps=3, validate_every=0, log_every=1, precision=precision)
        run(few_steps(data, loop=loop), data, tmp_path / precision)
        lines = (tmp_path / precision / "log.jsonl").read_text().splitlines()
        losses.append([json.loads(line) for line in lines if "match" in json.loads(line)])
    for whole, half in zip(*losses, strict=True):
        for name in ("match", "match_masked", "neighbours", "masked"):
            assert half[name] == pytest.approx(whole[name], rel=0.03)
            assert half[name] != whole[name]


@pytest.mark.parametrize("model", ["hem", "language-agnostic", "small-liwe", "parallel-embn"])
def test_every_model_runs(model: str, data: Path, tmp_path: Path) -> None:
    changes = {"language-agnostic": {"own_words": 0}, "small-liwe": {"latent_tokens": 0}}
    shape = {**RECIPE.shape, **changes.get(model, {})}
    if model == "parallel-embn":
        shape |= {"own_words": None, "latent_tokens": 0, "own_width": 24}
    report = run(few_steps(data, model=model, shape=shape), data, tmp_path)
    assert set(report["test"]) == {*LANGUAGES, "average"}
    assert (report["latent_tokens"] > 0) == (model in ("hem", "language-agnostic"))
    assert load_words(tmp_path / "words").languages == LANGUAGES


def test_one_model_a_language_adds_up(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.shape, "own_words": None, "latent_tokens": 0, "own_width": 24}
    report = run(few_steps(data, model="embn", shape=shape), data, tmp_path)
    parts = [load_words(tmp_path / language / "words") for language in LANGUAGES]
    assert [part.languages for part in parts] == [(language,) for language in LANGUAGES]
    assert report["words"] == sum(len(part.lexicon) for part in parts)
    assert set(report["test"]) == {*LANGUAGES, "average"}


def test_queries_are_translated_and_nothing_else(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.shape, "own_words": None, "latent_tokens": 0, "own_width": 24}
    recipe = few_steps(data, model="embn", shape=shape, translate_to="en")
    report = run(recipe, data, tmp_path)
    assert load_words(tmp_path / "words").languages == ("en",)
    assert set(report["test"]) == {*LANGUAGES, "average"}
    alone = run(replace(recipe, translate_to=None, languages=("en",)), data, tmp_path / "alone")
    assert report["trainable_parameters"] == alone["trainable_parameters"]


def test_translated_captions_are_those_of_the_dictionary(data: Path) -> None:
    whole = World.open(few_steps(data), data, "cpu")
    world = whole.translated("en")
    english = world.lexicon.words
    dictionary = open_dictionary(data / DICTIONARIES.format(source="de", target="en"), source="de")
    before, after = whole.captions["test"], world.captions["test"]
    assert after.names == LANGUAGES
    assert after.owners.tolist() == before.owners.tolist()
    translated = 0
    for row in range(60):
        spoken = before.names[before.languages[row]]
        said = [whole.lexicon.words[n] for n in before.gather(np.array([row]))[0]]
        asked = [english[n] for n in after.gather(np.array([row]))[0]]
        if spoken == "en":
            assert asked == said
        if spoken == "de":
            first = (
                next((t for t in dictionary.translations(w) if t in english), None) for w in said
            )
            expected = [word for word in first if word]
            assert asked == (expected or ["<pad>"])
            translated += len(expected)
    assert translated > 40


def test_fewer_words_make_a_smaller_model(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.shape, "own_words": None, "latent_tokens": 0}
    recipe = few_steps(data, model="mule", shape=shape)
    whole = run(recipe, data, tmp_path / "whole")
    frequent = run(replace(recipe, min_count=100), data, tmp_path / "frequent")
    mapped = run(replace(recipe, dictionary_below=100), data, tmp_path / "mapped")
    assert frequent["words"] < mapped["words"] < whole["words"]
    assert frequent["trainable_parameters"] < whole["trainable_parameters"]
    lexicon = load_words(tmp_path / "mapped" / "words").lexicon
    assert lexicon.borrowed["de"]
    assert all(lexicon.language_of[n] == 0 for n in lexicon.borrowed["de"].values())


def test_features_of_a_store_are_the_vectors_of_the_whole(data: Path, tmp_path: Path) -> None:
    with np.load(data / "flickr8k" / "features.npz") as arrays:
        items = {
            name: np.concatenate([rows, -rows, rows])
            for name, rows in zip(arrays["ids"].tolist(), arrays["features"], strict=True)
        }
    write_store(data / "flickr8k" / "store", items)
    pictured = {
        split: Pictured(getattr(RECIPE, split).manifest, "flickr8k/store")
        for split in ("train", "validation", "test")
    }
    run(few_steps(data, **pictured), data, tmp_path)
    assert load_words(tmp_path / "words").seen_by.backbone == "test"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "smaller"}, "there is no model 'smaller' of words: choose from smalr, hem"),
        ({"consistency": True, "dictionaries": None}, "need dictionaries"),
        ({"dictionary_below": 5, "dictionaries": None}, "need dictionaries"),
        ({"translate_to": "it"}, "translate_to is it: give one of languages"),
        ({"batch": 0}, "batch is 0: give 1 or more"),
    ],
)
def test_recipes_that_cannot_be_are_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PolyglanceError, match=message):
        replace(RECIPE, **change)


def test_the_published_recipe_opens_and_can_be_changed() -> None:
    changes = ["model=mule", "shape.own_width=64", "objective.mask_weight=0.5", "triplets.margin=1"]
    recipe = open_recipe("smalr-flickr8k", changes)
    assert recipe.kind == "words"
    settings = recipe.settings
    assert (settings.model, settings.shape, settings.objective) == (
        "mule", {"own_width": 64}, {"mask_weight": 0.5},
    )  # fmt: skip
    assert settings.triplets.margin == 1
    assert len(settings.languages) == 7
