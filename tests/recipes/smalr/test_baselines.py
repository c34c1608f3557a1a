"""The models that SMALR is compared with, by recipe on the toy corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.toy_smalr_corpus import DICTIONARIES, LANGUAGES, RECIPE, few_steps
from polyglance.models.smalr_folder import load_smalr
from polyglance.recipes.smalr.data import load_data
from polyglance.recipes.smalr.train import train
from polyglance.text.dictionaries import open_dictionary


@pytest.fixture(scope="module")
def data(toy_corpus: Path) -> Path:
    return toy_corpus


@pytest.mark.parametrize("model", ["hem", "language-agnostic", "small-liwe", "parallel-embn"])
def test_every_baseline_trains(model: str, data: Path, tmp_path: Path) -> None:
    changes = {"language-agnostic": {"own_words": 0}, "small-liwe": {"latent_tokens": 0}}
    shape = {**RECIPE.model_config, **changes.get(model, {})}
    if model == "parallel-embn":
        shape |= {"own_words": None, "latent_tokens": 0, "own_width": 24}
    report = train(few_steps(data, model=model, model_config=shape), data, tmp_path)
    assert set(report["test"]) == {*LANGUAGES, "average"}
    assert (report["latent_tokens"] > 0) == (model in ("hem", "language-agnostic"))
    assert load_smalr(tmp_path / "words").languages == LANGUAGES


def test_monolingual_models_are_trained_per_language(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.model_config, "own_words": None, "latent_tokens": 0, "own_width": 24}
    report = train(few_steps(data, model="embn", model_config=shape), data, tmp_path)
    parts = [load_smalr(tmp_path / language / "words") for language in LANGUAGES]
    assert [part.languages for part in parts] == [(language,) for language in LANGUAGES]
    assert report["words"] == sum(len(part.lexicon) for part in parts)
    assert set(report["test"]) == {*LANGUAGES, "average"}


def test_translate_to_trains_on_one_language(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.model_config, "own_words": None, "latent_tokens": 0, "own_width": 24}
    recipe = few_steps(data, model="embn", model_config=shape, translate_to="en")
    report = train(recipe, data, tmp_path)
    assert load_smalr(tmp_path / "words").languages == ("en",)
    assert set(report["test"]) == {*LANGUAGES, "average"}
    alone = train(replace(recipe, translate_to=None, languages=("en",)), data, tmp_path / "alone")
    assert report["trainable_parameters"] == alone["trainable_parameters"]


def test_translated_captions_come_from_the_dictionary(data: Path) -> None:
    whole = load_data(few_steps(data), data, "cpu")
    corpus = whole.translated_to("en")
    english = corpus.lexicon.words
    dictionary = open_dictionary(data / DICTIONARIES.format(source="de", target="en"), source="de")
    before, after = whole.captions["test"], corpus.captions["test"]
    assert after.language_codes == LANGUAGES
    assert after.record_ids.tolist() == before.record_ids.tolist()
    translated = 0
    for row in range(60):
        language = before.language_codes[before.language_ids[row]]
        words = [whole.lexicon.words[n] for n in before.gather(np.array([row]))[0]]
        translation = [english[n] for n in after.gather(np.array([row]))[0]]
        if language == "en":
            assert translation == words
        if language == "de":
            first = (
                next((t for t in dictionary.translations(w) if t in english), None) for w in words
            )
            expected = [word for word in first if word]
            assert translation == (expected or ["<pad>"])
            translated += len(expected)
    assert translated > 40


def test_smaller_lexicons_make_smaller_models(data: Path, tmp_path: Path) -> None:
    shape = {**RECIPE.model_config, "own_words": None, "latent_tokens": 0}
    recipe = few_steps(data, model="mule", model_config=shape)
    whole = train(recipe, data, tmp_path / "whole")
    frequent = train(replace(recipe, min_count=100), data, tmp_path / "frequent")
    mapped = train(replace(recipe, dictionary_min_count=100), data, tmp_path / "mapped")
    assert frequent["words"] < mapped["words"] < whole["words"]
    assert frequent["trainable_parameters"] < whole["trainable_parameters"]
    lexicon = load_smalr(tmp_path / "mapped" / "words").lexicon
    assert lexicon.aliases["de"]
    assert all(lexicon.language_ids[n] == 0 for n in lexicon.aliases["de"].values())
