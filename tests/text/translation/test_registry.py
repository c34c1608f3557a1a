from __future__ import annotations

from pathlib import Path

import pytest

from helpers.translators import marian_folder
from polyglance.errors import PolyglanceError
from polyglance.text.translation import open_translator
from polyglance.text.translation.language_tags import language_tags
from polyglance.text.translation.registry import open_first_translator
from polyglance.text.translation.translators import WordByWord


def test_a_pattern_names_a_folder_for_each_pair(tmp_path: Path) -> None:
    marian_folder(tmp_path / "opus-mt-en-de")
    pattern = str(tmp_path / "opus-mt-{source}-{target}")
    assert open_translator(pattern, "eng", "ger").name == "opus-mt-en-de"
    with pytest.raises(PolyglanceError, match=r"opus-mt-en-fr: no such folder; name apertium"):
        open_translator(pattern, "en", "fr")
    with pytest.raises(PolyglanceError, match="already in English"):
        open_translator(pattern, "en", "eng")
    with pytest.raises(PolyglanceError, match="expected a language code such as 'de'"):
        open_translator(pattern, "en", "ger man")


def test_first_translator_that_supports_the_pair_is_used(tmp_path: Path) -> None:
    (tmp_path / "en-fr.txt").write_text("dog chien\n")
    names = [str(tmp_path / "{source}-{target}"), "words"]
    opened = open_first_translator(names, "en", "fr", dictionaries=[tmp_path])
    assert isinstance(opened, WordByWord)
    assert opened.translate(["A dog barks."]) == ["A chien barks."]
    with pytest.raises(PolyglanceError, match=r"en-de: no such folder.*no dictionary from English"):
        open_first_translator(names, "en", "de", dictionaries=[tmp_path])


def test_word_translator_fingerprint_follows_the_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "en-fr.txt"
    path.write_text("dog chien\n")
    first = open_translator("words", "en", "fr", dictionaries=[tmp_path]).fingerprint
    assert open_translator("words", "en", "fr", dictionaries=[path]).fingerprint == first
    path.write_text("dog chienne\n")
    assert open_translator("words", "en", "fr", dictionaries=[path]).fingerprint != first


def test_language_tags_of_four_model_types() -> None:
    words = ["▁dog", "</s>", "<unk>", "it_", "__x__", "dog_house"]
    assert language_tags([*words, ">>deu<<", ">>por<<"]) == {"de": ">>deu<<", "pt": ">>por<<"}
    assert language_tags([*words, "__de__", "__zh__"]) == {"de": "__de__", "zh": "__zh__"}
    nllb = language_tags([*words, "zho_Hant", "zho_Hans", "arb_Arab", "eng_Latn"])
    assert nllb == {"zh": "zho_Hans", "ar": "arb_Arab", "en": "eng_Latn"}
    assert language_tags([*words, "de_DE", "en_XX"]) == {"de": "de_DE", "en": "en_XX"}
