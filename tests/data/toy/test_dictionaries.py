"""Dictionaries and word alignments, against entries and links written by hand."""

from __future__ import annotations

from itertools import permutations

import pytest

from polyglance.data.toy import (
    LANGUAGES,
    ToyDataset,
    align_captions,
    describe,
    dictionary,
    format_pharaoh,
    lexicon,
)
from polyglance.data.toy.semantics import COLOURS, RELATIONS, SHAPES, SIZES, Fact, Thing

FACT = Fact(Thing("circle", "red"), "left_of", Thing("square", "blue", "small"))

KNOWN = [
    ("en", "red", "de", {"rot", "rote", "roten", "roter", "rotes"}),
    ("en", "star", "cs", {"hvězda", "hvězdy", "hvězdu", "hvězdou", "hvězd"}),
    ("en", "hearts", "ru", {"сердце", "сердца", "сердцем", "сердец"}),
    ("fr", "vertes", "en", None),
    ("fr", "verte", "en", {"green"}),
    ("de", "Herzen", "fr", {"cœur", "cœurs"}),
    ("cs", "modrým", "ru", {"синий", "синего", "синим", "синяя", "синей", "синюю", "синее"}),
    ("en", "square", "ar", {"مربع", "مربعًا", "المربع"}),
    ("ar", "حمراء", "ja", {"赤い", "赤"}),
    ("zh", "星星", "en", {"star", "stars"}),
    ("ja", "緑", "zh", {"绿色"}),
    ("en", "left", "cs", {"vlevo", "doleva"}),
]


@pytest.mark.parametrize(("source", "word", "target", "expected"), KNOWN)
def test_words_have_the_translations_written_by_hand(
    source: str, word: str, target: str, expected: set[str] | None
) -> None:
    found = dictionary(source, target).get(word)
    assert (None if found is None else set(found)) == expected


def test_dictionaries_are_symmetric() -> None:
    for source, target in permutations(LANGUAGES, 2):
        there, back = dictionary(source, target), dictionary(target, source)
        assert there
        for word, translations in there.items():
            assert all(word in back[translation] for translation in translations)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_content_word_is_in_the_lexicon_and_is_one_word(language: str) -> None:
    senses = lexicon(language)
    assert senses.keys() >= {*SHAPES, *COLOURS, *SIZES, *RELATIONS}
    assert all(" " not in form and form for forms in senses.values() for form in forms)


def test_alignment_of_a_sentence_written_by_hand() -> None:
    english, german, japanese, arabic = (
        describe(language, FACT, "definite") for language in ("en", "de", "ja", "ar")
    )
    # The red circle is to the left of the small blue square .
    #   0   1      2  3  4   5    6  7   8     9   10     11  12
    assert german.words[:7] == ("Der", "rote", "Kreis", "ist", "links", "von", "dem")
    assert format_pharaoh(align_captions(english, german)) == (
        "0-0 1-1 2-2 3-3 6-4 8-6 9-7 10-8 11-9 12-10"
    )
    # 赤い 円 は 小さな 青い 正方形 の 左 に あります 。
    assert (
        format_pharaoh(align_captions(english, japanese)) == "1-0 2-1 3-9 6-7 9-3 10-4 11-5 12-10"
    )
    # تقع الدائرة الحمراء على يسار المربع الأزرق الصغير .
    assert format_pharaoh(align_captions(english, arabic)) == "1-2 2-1 3-0 6-4 9-7 10-6 11-5 12-8"


def test_aligned_words_are_translations_of_each_other_by_the_dictionaries() -> None:
    dataset = ToyDataset(seed=3)
    items = [*dataset.pictures(25), *dataset.clips(15)]
    for source, target in permutations(LANGUAGES, 2):
        lookup = _without_capitals(dictionary(source, target))
        for item in items:
            a, b = item.translations[source], item.translations[target]
            links = align_captions(a, b)
            for i, j in links:
                if a.tokens[i].sense != ".":
                    assert b.words[j].lower() in lookup[a.words[i].lower()]
            # Each thing's shape and colour is linked, whatever else is.
            content = {i for i, t in enumerate(a.tokens) if t.sense in {*SHAPES, *COLOURS, *SIZES}}
            assert content <= {i for i, _ in links}


def test_independent_captions_align_only_shared_senses() -> None:
    one = describe("en", Fact(Thing("circle", "red"), "left_of", Thing("square")), "phrase")
    other = describe("fr", Fact(Thing("circle"), "left_of", Thing("square", "blue")), "phrase")
    linked = [(one.words[i], other.words[j]) for i, j in align_captions(one, other)]
    assert linked == [
        ("A", "Un"),
        ("circle", "cercle"),
        ("left", "gauche"),
        ("a", "un"),
        ("square", "carré"),
    ]


def _without_capitals(entries: dict[str, tuple[str, ...]]) -> dict[str, set[str]]:
    lowered: dict[str, set[str]] = {}
    for word, translations in entries.items():
        lowered.setdefault(word.lower(), set()).update(t.lower() for t in translations)
    return lowered
