from __future__ import annotations

from polyglance.records import Record
from polyglance.text.alignment.parallel import ParallelText


def test_sentences_are_cut_by_the_rules_of_their_languages_or_at_spaces() -> None:
    told = ParallelText.of([("The dog.", "一只狗")], "en", "zh")
    assert told.pairs == [(["The", "dog"], ["一", "只", "狗"])]
    assert list(told.plain()) == [(["the", "dog"], ["一", "只", "狗"])]
    untold = ParallelText.of([("The dog.", "Der Hund ."), ("", "leer")])
    assert untold.pairs == [(["The", "dog."], ["Der", "Hund", "."]), ([], ["leer"])]


def test_captions_of_records_are_paired_by_their_places() -> None:
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
