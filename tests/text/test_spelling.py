"""The speller and language guessing, by the lists that come with Polyglance and by small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.errors import DataError
from polyglance.text.spelling import (
    KnownWords,
    Speller,
    WordLists,
    guess_language,
    shipped_speller,
    shipped_word_lists,
    write_word_lists,
)

COUNTS = {
    "en": {"the": 60, "dog": 20, "on": 30, "beach": 10, "bench": 2, "a": 50, "train": 5},
    "de": {"der": 60, "hund": 20, "am": 30, "strand": 10, "ein": 50, "haus": 8, "tür": 8},
}


@pytest.fixture
def lists(tmp_path: Path) -> WordLists:
    write_word_lists(COUNTS, tmp_path)
    return WordLists(tmp_path)


def test_lists_keep_words_and_their_frequency(lists: WordLists) -> None:
    assert lists.languages == ("de", "en")
    english = lists.words("en")
    assert set(english) == set(COUNTS["en"])
    assert english["the"] == pytest.approx(-1.5, abs=0.3)  # 60 of 177
    assert english["the"] > english["dog"] > english["bench"]
    assert lists.words("fr") == {}
    assert set(lists.frequent["der"]) == {"de"}


def test_a_word_is_found_without_keeping_its_list(lists: WordLists) -> None:
    [code, *_] = lists.languages
    words = WordLists(lists._folder).words(code)
    for word in (min(words), max(words), *list(words)[:50]):
        assert lists.find(word, code) == words[word]
    assert lists.find(f"{min(words)}x", code) is None
    assert lists.find("", code) is None
    assert code not in lists._lists
    assert lists.find("word", "xx") is None


def test_a_language_of_which_too_little_is_known_gets_no_list(tmp_path: Path) -> None:
    once = {f"word{number}": 1 for number in range(10)}
    write_word_lists({"fi": once, "en": {"dog": 9}}, tmp_path)
    lists = WordLists(tmp_path)
    assert lists.languages == ("en",)
    assert set(lists.frequent["word3"]) == {"fi"}


def test_a_damaged_list_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "en.xz").write_bytes(b"no xz")
    with pytest.raises(DataError, match=r"en\.xz is damaged.*install Polyglance again"):
        WordLists(tmp_path).words("en")


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("baech", "beach"),  # swapped
        ("beac", "beac"),  # four letters are only swapped
        ("beeach", "beach"),  # added
        ("brach", "beach"),  # replaced: more probable than bench
        ("Baech", "Beach"),
        ("BAECH", "BEACH"),
        ("beach", "beach"),
        ("dgo", "dog"),
        ("beach2", "beach2"),
        ("quxquux", "quxquux"),
    ],
)
def test_unknown_words_are_corrected_by_one_edit(
    lists: WordLists, typed: str, corrected: str
) -> None:
    found = Speller(lists).correct(f"the {typed}, on", "en")
    assert found.text == f"the {corrected}, on"
    assert found.changes == (() if typed == corrected else ((typed, corrected),))


def test_compounds_and_english_words_are_known(lists: WordLists) -> None:
    speller = Speller(lists)
    assert speller.correct("Hundehaus am Strand", "de").changes == ()
    assert speller.correct("train am Strand", "de").changes == ()
    assert speller.known_share("hund qqqq", "de") == 0.5


def test_words_of_a_dictionary_are_known(tmp_path: Path) -> None:
    write_word_lists(COUNTS, tmp_path)
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "en.bloom").write_bytes(KnownWords.of(["leach", "peach"]).to_bytes())
    speller = Speller(WordLists(tmp_path))
    assert speller.correct("the peach, on", "en").changes == ()
    assert speller.correct("the beech, on", "en").changes == (("beech", "beach"),)
    assert speller.knows_rare_words("en")
    assert not speller.knows_rare_words("de")
    (tmp_path / "known" / "de.bloom").write_bytes(b"no set")
    with pytest.raises(DataError, match=r"de\.bloom is damaged: install Polyglance again"):
        Speller(WordLists(tmp_path)).correct("hundd", "de")


def test_a_set_of_words_has_all_of_them_and_few_others() -> None:
    known = KnownWords.from_bytes(
        KnownWords.of([f"word{number}" for number in range(500)]).to_bytes()
    )
    assert all(f"word{number}" in known for number in range(500))
    assert sum(f"other{number}" in known for number in range(2000)) < 60
    assert "word" not in KnownWords()


def test_words_without_their_accents_get_them_back(lists: WordLists) -> None:
    assert Speller(lists).correct("Tuer am Haus", "de").text == "Tür am Haus"
    assert Speller(lists).correct("tur am Haus", "de").text == "tür am Haus"
    assert shipped_speller().correct("kocka na ulici", "cs").text == "kočka na ulici"


def test_the_language_is_guessed_from_what_explains_the_query(lists: WordLists) -> None:
    speller = Speller(lists)
    assert speller.correct("dgo on teh baech").text == "dog on the beach"
    assert speller.correct("Hund am Strannd").text == "Hund am Strand"
    assert speller.correct("犬が走る").changes == ()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("a dog on the beach", "en"),
        ("ein Hund am Strand", "de"),
        ("un chien sur la plage", "fr"),
        ("pes na pláži", "cs"),
        ("um cachorro na praia", "pt"),
        ("كلب على الشاطئ", "ar"),
        ("это собака на пляже", "ru"),
        ("一只狗在海滩上", "zh"),
        ("浜辺の犬", "ja"),
        ("강아지", "ko"),
        ("", None),
        ("!?", None),
    ],
)
def test_languages_are_guessed(text: str, language: str | None) -> None:
    assert guess_language(text, shipped_word_lists()) == language


@pytest.mark.parametrize(
    ("typed", "corrected"),
    [
        ("dgo on teh baech", "dog on the beach"),
        ("Hund am Strannd", "Hund am Strand"),
        ("un chein sur la plage", "un chien sur la plage"),
        ("um cachorro corendo na praia", "um cachorro correndo na praia"),
        ("a boy in a swimming pool", "a boy in a swimming pool"),
        ("asdfghjkl", "asdfghjkl"),
        ("deux volets à la lisière de la forêt", "deux volets à la lisière de la forêt"),
        ("Zwei Eidechsen am Wasser", "Zwei Eidechsen am Wasser"),
        ("σκυλος στην παραλια", "σκύλος στην παραλία"),
    ],
)
def test_the_lists_that_come_with_polyglance(typed: str, corrected: str) -> None:
    assert shipped_speller().correct(typed).text == corrected


@pytest.mark.parametrize(
    ("word", "language"),
    [("Tiere", "de"), ("Rakete", "de"), ("Torten", "de"), ("crabe", "fr"), ("urso", "pt"),
     ("plaża", "pl"), ("chleb", "pl"), ("aap", "nl")],
)  # fmt: skip
def test_a_word_of_any_language_is_no_mistake_by_itself(word: str, language: str) -> None:
    correction = shipped_speller().correct(word)
    assert (correction.text, correction.language, correction.changes) == (word, language, ())


def test_mistakes_in_single_words_are_corrected_all_the_same() -> None:
    pairs = {
        "strnd": "strand", "peopel": "people", "beahc": "beach", "kitchne": "kitchen",
        "womna": "woman", "Stradn": "Strand", "plgae": "plage",
    }  # fmt: skip
    assert {typed: shipped_speller().correct(typed).text for typed in pairs} == pairs
