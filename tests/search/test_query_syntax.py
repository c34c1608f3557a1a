"""What a user typed, taken apart."""

from __future__ import annotations

import pytest

from polyglance.errors import PolyglanceError
from polyglance.search.query_syntax import ParsedQuery, Weighted, parse_query, parse_weight


def parts(query: ParsedQuery) -> list[tuple[str, float]]:
    return [(one.part, one.weight) for one in query.wanted]


@pytest.mark.parametrize(
    ("typed", "wanted", "excluded"),
    [
        ("a dog on the beach", [("a dog on the beach", 1)], []),
        ("beach without people", [("beach", 1)], ["people"]),
        ("beach -people", [("beach", 1)], ["people"]),
        ('beach -"red car" -dog', [("beach", 1)], ["red car", "dog"]),
        ("-dog", [], ["dog"]),
        ("beach^2 sunset", [("sunset", 1), ("beach", 2)], []),
        ('"red car"^0.5 street', [("street", 1), ("red car", 0.5)], []),
        ("street car^-1", [("street", 1)], ["car"]),
        ("beach^2", [("beach", 2)], []),
        ('a sign "no parking"', [("a sign no parking", 1)], []),
        ("„no parking“", [("no parking", 1)], []),
        ("t-shirt - blue", [("t-shirt - blue", 1)], []),
        ("2^3", [("2", 3)], []),
        (" ", [(" ", 1)], []),
    ],
)
def test_exclusions_weights_and_quotes(
    typed: str, wanted: list[tuple[str, float]], excluded: list[str]
) -> None:
    found = parse_query(typed, "en")
    assert (parts(found), list(found.excluded)) == (wanted, excluded)
    assert found.searched_for is None


def test_typing_mistakes_are_corrected_and_told() -> None:
    found = parse_query("dgo on teh baech without poeple")
    assert parts(found) == [("dog on the beach", 1)]
    assert found.excluded == ("people",)
    assert found.searched_for == "dog on the beach without people"
    assert found.language == "en"


def test_correction_can_be_switched_off_and_spares_names_and_quotes() -> None:
    assert parts(parse_query("a dog on the baech", correct=False)) == [("a dog on the baech", 1)]
    assert parse_query('a dog on the "baech"').text == "a dog on the baech"
    found = parse_query("a dog on the baech", known=lambda words: words)
    assert (found.text, found.searched_for) == ("a dog on the baech", None)


def test_a_query_is_written_in_its_usual_script_and_told() -> None:
    found = parse_query("ねこ")
    assert (found.text, found.language, found.searched_for) == ("猫", "ja", "猫")
    assert parse_query("пас на плажи").text == "pas na plaži"
    assert parse_query("ねこ", correct=False).text == "ねこ"
    assert parse_query('"ねこ"').text == "ねこ"
    assert parse_query("ねこ", known=lambda words: words).text == "ねこ"  # a name in the library
    excluded = parse_query("沒有人的海灘")
    assert (excluded.text, excluded.excluded) == ("海滩", ("人",))


def test_without_a_dictionary_words_are_replaced_only_by_likelier_ones() -> None:
    likely = parse_query("hezká zahrda", "cs", surprisal=lambda word: 9.0 if "rda" in word else 1.0)
    unlikely = parse_query(
        "hezká zahrda", "cs", surprisal=lambda word: 1.0 if "rda" in word else 9.0
    )
    assert (likely.text, unlikely.text) == ("hezká zahrada", "hezká zahrda")


def test_without_a_dictionary_other_forms_of_a_word_stay() -> None:
    assert parse_query("položená kniha", "cs").text == "položená kniha"  # položené is frequent
    assert parse_query("kniha na stoel", "cs").text != "kniha na stoel"


def test_literal_queries_are_taken_as_they_are() -> None:
    text = 'baech^2 -dog without "people"'
    found = parse_query(text, literal=True)
    assert (parts(found), found.excluded, found.searched_for) == ([(text, 1)], (), None)


def test_weights_have_bounds() -> None:
    with pytest.raises(PolyglanceError, match="a weight is above 0 and at most 100, not 0"):
        parse_query("beach^0")
    with pytest.raises(PolyglanceError, match="at most 100"):
        Weighted("beach", 1000.0)
    assert parse_weight("a.jpg^2.5") == ("a.jpg", 2.5)
    assert parse_weight("a.jpg") == ("a.jpg", 1.0)
