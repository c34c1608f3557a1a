from __future__ import annotations

from polyglance.text.dictionaries import Dictionary
from polyglance.text.word_translation import translate_words

GERMAN = Dictionary(
    [("a", "ein"), ("dog", "Hund"), ("dog", "Köter"), ("eats", "frisst"), ("ice", "Eis"),
     ("cream", "Sahne"), ("ice cream", "Speiseeis"), ("the", "das")]
)  # fmt: skip


def test_order_case_and_punctuation_are_kept() -> None:
    assert translate_words("A dog (the dog) eats!", GERMAN, "en") == "Ein Hund (das Hund) frisst!"
    assert translate_words("a DOG, a cat.", GERMAN, "en") == "ein HUND, ein cat."
    assert translate_words("", GERMAN, "en") == ""
    assert translate_words("...", GERMAN, "en") == "..."


def test_phrases_before_words() -> None:
    assert translate_words("the ice cream", GERMAN, "en") == "das Eis Sahne"
    assert translate_words("the ice cream", GERMAN, "en", max_phrase_words=3) == "das Speiseeis"


def test_unknown_words_are_kept_or_dropped() -> None:
    text = "A small dog, quickly, eats."
    assert translate_words(text, GERMAN, "en") == "Ein small Hund, quickly, frisst."
    assert translate_words(text, GERMAN, "en", keep_unknown=False) == "Ein Hund, frisst."
    assert translate_words("quickly a dog runs", GERMAN, "en", keep_unknown=False) == "ein Hund"


def test_scripts_without_spaces() -> None:
    chinese = Dictionary([("dog", "狗"), ("red", "红"), ("runs", "跑")])
    assert translate_words("Red dog runs, dog.", chinese, "en", target="zh") == "红狗跑,狗."
    assert translate_words("红狗跑。", chinese.reversed(), "zh", target="en") == "red dog runs。"


def test_unknown_words_keep_their_spaces_in_spaceless_targets() -> None:
    chinese = Dictionary([("dog", "狗"), ("run", "跑"), ("snow", "雪")])
    text = "Two dogs run, through the snow."
    assert translate_words(text, chinese, "en", target="zh") == "Two 狗跑, through the 雪."
    assert translate_words(text, chinese, "en", target="zh", keep_unknown=False) == "狗跑雪."
    assert translate_words("红狗", chinese.reversed(), "zh", target="ja") == "红dog"


def test_english_base_forms_are_a_fallback() -> None:
    german = Dictionary([("dog", "Hund"), ("run", "laufen"), ("runs", "läuft")])
    assert translate_words("Dogs running, a dog runs", german, "en") == "Hund laufen, a Hund läuft"
    assert translate_words("dogs", german, "fr") == "dogs"


def test_adjacent_words_are_separated() -> None:
    french = Dictionary([("l'", "the"), ("eau", "water"), ("dans", "in")])
    assert translate_words("Dans l'eau", french, "fr") == "In the water"
