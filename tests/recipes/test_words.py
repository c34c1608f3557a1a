"""Word models by recipe on the toy world: training, measuring, keeping, and what changes words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.word_folder import load_words
from polyglance.nn.packing import Packing
from polyglance.recipes import open_recipe
from polyglance.recipes.word_consistency import asked_by_others, asked_word_by_word
from polyglance.recipes.word_texts import Dictionaries, WordTexts, renumbered
from polyglance.recipes.word_world import Pictured
from polyglance.recipes.words import WordRecipe, run
from polyglance.records import Record, read_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.text.lexicon import Lexicon
from toy_corpus import write_store
from toy_word_corpus import LANGUAGES, RECIPE, make_toy_word_corpus


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
        assert measured[source]["parameters"] == 32 * 3 + 32
        for way in ("clc-a", "clc-c"):
            assert measured[source][way]["average"] > alone - 5
    # All languages together say the same of a picture, whoever asks.
    assert measured["dataset"]["clc-a"]["en"] == pytest.approx(measured["dataset"]["clc-a"]["fr"])


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


def toy_texts() -> WordTexts:
    counts = {"en": {"dog": 9, "red": 5, "cat": 1}, "de": {"hund": 8, "rot": 3, "katze": 1}}
    lexicon = Lexicon(counts)
    records = [
        Record(captions={"en": ("red dog",), "de": ("rot hund", "katze")}),
        Record(captions={"en": ("cat", "dog cat"), "de": ("hund",)}),
    ]
    table = CaptionTable.build(records, lexicon.tokenizers, languages=lexicon.languages)
    vectors = np.arange(8, dtype=np.float32)[:, None]
    return WordTexts(lexicon, vectors, {"train": table, "test": table})


def rows_of(table: CaptionTable) -> list[list[int]]:
    return [table.gather(np.array([row]))[0].tolist() for row in range(len(table))]


def test_another_lexicon_is_other_numbers() -> None:
    texts = toy_texts()
    assert rows_of(texts.captions["test"]) == [[3, 2], [6, 5], [7], [4], [2, 4], [5]]
    frequent = texts.among(texts.lexicon.without_rare(3))
    assert frequent.vectors[:, 0].tolist() == [0, 1, 2, 3, 5, 6]
    # A caption without a known word stays a query, but is nothing to learn from.
    assert rows_of(frequent.captions["test"]) == [[3, 2], [5, 4], [0], [0], [2], [4]]
    assert rows_of(frequent.captions["train"]) == [[3, 2], [5, 4], [2], [4]]
    assert frequent.captions["train"].owners.tolist() == [0, 0, 1, 1]
    german = texts.among(Lexicon({"de": texts.lexicon.counts["de"]}))
    assert rows_of(german.captions["test"]) == [[3, 2], [4], [2]]
    assert german.captions["test"].names == ("de",)
    assert german.captions["test"].owners.tolist() == [0, 0, 1]


def test_renumbering_keeps_the_place_of_empty_captions() -> None:
    table = toy_texts().captions["test"]
    numbers = np.zeros(8, np.int64)
    numbers[[2, 5]] = [20, 50]
    assert rows_of(renumbered(table, numbers)) == [[20], [50], [0], [0], [20], [50]]
    assert rows_of(renumbered(table, np.zeros(8, np.int64))) == [[0]] * 6


def test_translations_are_the_first_that_the_lexicon_knows(tmp_path: Path) -> None:
    texts = toy_texts()
    dictionary = Dictionary(
        [("dog", "Köter"), ("dog", "Hund"), ("red", "Rot"), ("cat", "Mieze")], source="en"
    )
    assert texts.translations("en", "de", dictionary).tolist() == [0, 0, 5, 6, 0, 0, 0, 0]
    dictionary.save(tmp_path / "en-de.tsv")
    dictionaries = Dictionaries(str(tmp_path / "{source}-{target}.tsv"))
    assert dictionaries.numbers(texts, "en", "de").tolist() == [0, 0, 5, 6, 0, 0, 0, 0]
    assert dictionaries.numbers(texts, "de", "de").tolist() == list(range(8))


def test_consistency_asks_in_every_language() -> None:
    texts = toy_texts()
    table = texts.captions["test"]
    pictures = torch.eye(4)[:2]

    def encode(captions: CaptionTable) -> torch.Tensor:
        """A caption is its first word's number and its language."""
        first = captions.ids[captions.offsets[:-1]]
        return torch.tensor(np.stack([first, captions.languages, first * 0, first * 0], 1)).float()

    def translate(source: str, target: str) -> np.ndarray:
        numbers = np.zeros(8, np.int64)
        numbers[[3, 2]] = [6, 5] if target == "de" else [3, 2]
        return numbers

    scores = asked_word_by_word(table, "en", translate, encode, pictures)
    assert scores.shape == (2, 2, 3)
    assert scores[1, 0].tolist()[0] == 6  # red became rot
    assert scores[1, 1].tolist()[0] == 1  # and is asked as German
    assert torch.isnan(scores[:, :, 1]).all()  # a cat is in no dictionary
    assert scores[1, 0, 2] == 5  # of "dog cat" the dog is left
    vectors = torch.arange(6).float()[:, None] * torch.ones(4)
    scores = asked_by_others(table, "en", vectors, pictures)
    assert scores[0, 0].tolist() == [0, 3, 4]
    assert scores[1, 0].tolist() == [1, 5, 5]  # the one German caption is said twice


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


def test_dictionaries_need_a_pattern() -> None:
    with pytest.raises(PolyglanceError, match=r"give a path with \{source\} and \{target\}"):
        Dictionaries("dictionaries.tsv")


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
