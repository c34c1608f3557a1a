from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.data.toy import ToyWorld
from polyglance.data.toy import dictionary as toy_dictionary
from polyglance.text.alignment import align
from polyglance.text.dictionaries import open_dictionary
from polyglance.text.learned_dictionary import learned_dictionary
from polyglance.text.parallel import ParallelText

PAIRS = [
    (["The", "dog"], ["Der", "Hund"]),
    (["a", "dog"], ["ein", "Hund"]),
    (["A", "dog"], ["Ein", "Köter"]),
    (["Dogs"], ["Hunde"]),
    (["dogs", "here"], ["Hunde", "hier"]),
]
LINKS = [[(0, 0), (1, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 1)], [(0, 0)], [(0, 0), (1, 1)]]


def test_counts_shares_and_spellings() -> None:
    found = learned_dictionary(PAIRS, LINKS, source="en", target="de", least_count=1)
    assert found.translations("DOG") == ("Hund", "Köter")
    assert found.score("dog", "Hund") == pytest.approx(2 / 3)
    assert found.translations("a") == ("ein",)  # as it is spelled inside a sentence
    assert found.translations("the") == ("Der",)  # never seen there
    often = learned_dictionary(PAIRS, LINKS, source="en", target="de")
    assert dict(often.pairs()) == {"dog": "Hund", "dogs": "Hunde", "a": "ein"}
    sure = learned_dictionary(PAIRS, LINKS, least_count=1, least_share=0.5)
    assert sure.translations("dog") == ("Hund",)


def test_words_that_are_mostly_left_alone_are_not_learned() -> None:
    pairs = [(["the"], ["na"])] * 30
    links = [[(0, 0)]] + [[]] * 29
    assert len(learned_dictionary(pairs, links, least_count=1)) == 0


def test_saved_with_its_scores_and_read_back(tmp_path: Path) -> None:
    found = learned_dictionary(PAIRS, LINKS, source="en", target="de", least_count=1)
    found.save(tmp_path / "en-de.tsv")
    assert "dog\tHund\t0.6667\n" in (tmp_path / "en-de.tsv").read_text(encoding="utf-8")
    back = open_dictionary(tmp_path / "en-de.tsv", source="en")
    assert list(back.pairs()) == list(found.pairs())


@pytest.mark.parametrize("language", ["de", "cs"])
def test_the_toy_world_s_dictionary_is_learned(language: str) -> None:
    pictures = list(ToyWorld(seed=2).pictures(500))
    text = ParallelText(
        [
            tuple(list(picture.captions[code][0].words) for code in ("en", language))  # type: ignore[misc]
            for picture in pictures
        ],
        "en",
        language,
    )
    found = learned_dictionary(text.pairs, align(text.plain()).links, source="en", target=language)
    known = {
        word.lower(): {other.lower() for other in others}
        for word, others in toy_dictionary("en", language).items()
    }
    asked = [word for word in known if word in found]
    right = [word for word in asked if found.translations(word)[0].lower() in known[word]]
    assert len(asked) > 25
    assert len(right) / len(asked) > 0.9
