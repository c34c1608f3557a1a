"""Apertium, by a program of its name that does what Apertium does, and dictionaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.errors import PolyglanceError
from polyglance.text.dictionaries import Dictionary
from polyglance.text.translation.translators import Apertium, Translator, WordByWord

_SCRIPT = """#!/bin/sh
if [ "$1" = -l ]; then printf '  eng-spa\\n  spa-eng\\n  spa-eng_US\\n'; exit; fi
[ "$2" = eng-spa ] || exit 3
sed 's/dog/perro/g'
"""


@pytest.fixture
def apertium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "apertium"
    program.write_text(_SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_apertium_translates_each_text(apertium: Path) -> None:
    texts = ["a dog", "", "two\nlines of dog", "a cat "]
    assert Apertium("en", "es").translate(texts) == ["a perro", "", "two lines of perro", "a cat"]


def test_missing_apertium_or_pair_is_refused(
    apertium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PolyglanceError, match="no English to German: install the Debian package"):
        Apertium("en", "de")
    translator = Apertium("en", "es")
    apertium.write_text("#!/bin/sh\necho broken pipe >&2; exit 1\n")
    with pytest.raises(PolyglanceError, match="ended early: broken pipe"):
        translator.translate(["a dog"])
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PolyglanceError, match="apertium is not installed"):
        Apertium("en", "es")


def test_a_dictionary_is_a_translator_word_by_word() -> None:
    german = Dictionary([("dog", "Hund"), ("dog", "Rüde"), ("ice cream", "Eis"), ("and", "und")])
    texts = ["A dog and a dog.", "ice cream!", "zebra.", ""]
    translator: Translator = WordByWord(german, "eng", "de")
    assert (translator.source, translator.target) == ("en", "de")
    assert translator.translate(texts) == ["Hund und Hund.", "", "", ""]
    assert WordByWord(german, "en", "de", max_phrase_words=2).translate(texts)[1] == "Eis!"
    kept = WordByWord(german, "en", "de", keep_unknown=True).translate(texts)
    assert kept == ["A Hund und a Hund.", "ice cream!", "zebra.", ""]
