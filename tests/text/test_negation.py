"""What a query excludes, in the languages of the interface."""

from __future__ import annotations

import pytest

from polyglance.text.negation import GRAMMARS, split_negation


@pytest.mark.parametrize(
    ("language", "text", "wanted", "excluded"),
    [
        ("en", "without people", "", ["people"]),
        ("en", "a beach without people", "a beach", ["people"]),
        ("en", "not a dog", "", ["dog"]),
        ("en", "a street without cars in winter", "a street in winter", ["cars"]),
        ("en", "beach, no people or dogs", "beach", ["people", "dogs"]),
        ("en", "nobody on the beach", "on the beach", ["people"]),
        ("en", "kitchen but not a table", "kitchen", ["table"]),
        ("en", "a beach without the people, at sunset", "a beach, at sunset", ["people"]),
        ("de", "ohne Menschen", "", ["Menschen"]),
        ("de", "kein Hund", "", ["Hund"]),
        ("de", "Straße ohne Autos im Winter", "Straße im Winter", ["Autos"]),
        ("de", "ein Park ohne Hunde und Katzen", "ein Park", ["Hunde", "Katzen"]),
        ("fr", "sans personne", "", ["personnes"]),
        ("fr", "pas un chien", "", ["chien"]),
        ("fr", "un parc sans l'homme", "un parc", ["homme"]),
        ("fr", "pas d'enfants", "", ["enfants"]),
        ("pt", "praia sem ninguém", "praia", ["pessoas"]),
        ("pt", "não um cachorro", "", ["cachorro"]),
        ("pt", "uma rua sem carros no inverno", "uma rua no inverno", ["carros"]),
        ("cs", "pláž bez lidí", "pláž", ["lidé"]),
        ("cs", "ne pes", "", ["pes"]),
        ("cs", "ulice bez aut v zimě", "ulice v zimě", ["aut"]),
        ("ar", "شاطئ بدون ناس", "شاطئ", ["أشخاص"]),
        ("ar", "ليس كلبا", "", ["كلبا"]),
        ("ar", "شارع بلا سيارات في الشتاء", "شارع في الشتاء", ["سيارات"]),
        ("zh", "没有人的海滩", "海滩", ["人"]),
        ("zh", "海滩上没有人", "海滩", ["人"]),
        ("zh", "不是狗", "", ["狗"]),
        ("zh", "没有汽车和狗的街道", "街道", ["汽车", "狗"]),
        ("zh", "無人的街道", "街道", ["人"]),
    ],
)
def test_exclusions(language: str, text: str, wanted: str, excluded: list[str]) -> None:
    found = split_negation(text, language)
    assert (found.wanted, list(found.excluded)) == (wanted, excluded)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "a boy not wearing shoes"),
        ("en", "notable dogs in the snow"),
        ("en", "no"),
        ("de", "ein Hund am Strand"),
        ("fr", "un chien sur la plage"),
        ("pt", "um cão na praia"),
        ("cs", "pes na pláži"),
        ("ar", "كلب على الشاطئ"),
        ("zh", "两个人在海滩"),
        ("ja", "人のいない浜辺"),
        (None, "without people"),
    ],
)
def test_other_queries_stay_as_they_are(language: str | None, text: str) -> None:
    found = split_negation(text, language)
    assert (found.wanted, found.excluded) == (text, ())


def test_long_queries_of_cues_end() -> None:
    for language in GRAMMARS:
        for cue in ("no ", "without ", "sans ", "ohne ", "bez ", "sem ", "没有"):
            split_negation(cue * 200, language)
