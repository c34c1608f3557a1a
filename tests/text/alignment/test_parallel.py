from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.errors import PolyglanceError
from polyglance.records import Record
from polyglance.text.alignment.parallel import ParallelText


def test_sentences_are_split_by_language_or_at_spaces() -> None:
    text = ParallelText.from_texts([("The dog.", "一只狗")], "en", "zh")
    assert text.pairs == [(["The", "dog"], ["一", "只", "狗"])]
    assert list(text.lowercased()) == [(["the", "dog"], ["一", "只", "狗"])]
    unnamed = ParallelText.from_texts([("The dog.", "Der Hund ."), ("", "leer")])
    assert unnamed.pairs == [(["The", "dog."], ["Der", "Hund", "."]), ([], ["leer"])]


def test_captions_of_records_are_paired_by_index() -> None:
    records = [
        Record(captions={"en": ("A dog.", "Two."), "de": ("Ein Hund.", "Zwei.")}),
        Record(captions={"en": ("A cat.",)}),
        Record(captions={"en": ("One.", "More."), "de": ("Eins.",)}),
    ]
    text = ParallelText.from_records(records, "en", "de")
    assert (text.source, text.target) == ("en", "de")
    assert text.pairs == [
        (["A", "dog"], ["Ein", "Hund"]),
        (["Two"], ["Zwei"]),
        (["One"], ["Eins"]),
    ]


def test_segmenter_splits_languages_without_spaces(tmp_path: Path) -> None:
    text = ParallelText.from_texts([("A blue sofa.", "蓝色的沙发")], "en", "zh", segment=True)
    assert text.pairs == [(["A", "blue", "sofa"], ["蓝色", "的", "沙发"])]
    for languages in ((), ("en", "de")):
        with pytest.raises(PolyglanceError, match="--languages en,zh"):
            ParallelText.from_texts([("A sofa.", "Ein Sofa.")], *languages, segment=True)
    assert text.write(tmp_path / "words") == 1
    written = (tmp_path / "words").read_text(encoding="utf-8")
    assert written == "A blue sofa ||| 蓝色 的 沙发\n"
