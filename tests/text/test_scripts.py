"""Queries in another script of their language, and without their accents."""

from __future__ import annotations

import pytest

from polyglance.text.scripts import marked_words, strip_marks, usual_script
from polyglance.text.scripts.cyrillic import cyrillic_letters


@pytest.mark.parametrize(
    ("typed", "language", "usual"),
    [
        ("ねこ", None, "猫"),
        ("ネコ", "ja", "猫"),
        ("うみべのいぬ", "ja", "海辺の犬"),
        ("しろいいぬがはしっている", "ja", "白い犬が走っている"),
        ("バスのとなり", "ja", "バスのとなり"),  # not made of known words alone
        ("きいろ", "ja", "黄色"),  # and not 木 and something
        ("一隻貓在車上", None, "一只猫在车上"),
        ("猫と車", "ja", "猫と車"),  # kanji stay as Japan writes them
        ("пас на плажи", "sr", "pas na plaži"),
        ("Њујорк, коњ", None, "Njujork, konj"),
        ("Qizil qoʻy, sigir", "uz", "қизил қўй, сигир"),
        ("қизил мушук", None, "қизил мушук"),
        ("кошка и конь", "ru", "кошка и конь"),
        ("қызыл мысық пен ит әні", "kk", "қызыл мысық пен ит әні"),
        ("كَلْبٌ على الشاطئ", "ar", "كلب على الشاطئ"),
        ("رجل يمشي سريعاً جدّاً", "ar", "رجل يمشي سريعاً جدّاً"),
        ("a dog", "en", "a dog"),
        ("ein Mädchen", "de", "ein Mädchen"),
    ],
)
def test_queries_are_written_in_the_usual_script(
    typed: str, language: str | None, usual: str
) -> None:
    assert usual_script(typed, language) == usual


def test_cyrillic_and_latin_letters_are_each_others_inverse() -> None:
    assert usual_script(cyrillic_letters("ljudi i džep", "sr"), "sr") == "ljudi i džep"


def test_the_most_frequent_word_gets_its_accents_back() -> None:
    words = {"kočka": -9.0, "kocka": -20.0, "pláži": -10.0, "plaží": -12.0, "pes": -8.0}
    # "kocka" is a word of its own.
    assert marked_words(words, "cs") == {"plazi": "pláži"}
    assert marked_words({"mädchen": -9.0, "straße": -9.0}, "de") == {
        "madchen": "mädchen",
        "maedchen": "mädchen",
        "strasse": "straße",
    }
    assert strip_marks("Σκύλος") == "σκυλος"
