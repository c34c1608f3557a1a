from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyglance.data.toy import ToyDataset
from polyglance.data.toy import dictionary as toy_dictionary
from polyglance.text.alignment import AlignerSettings, align
from polyglance.text.alignment.parallel import ParallelText
from polyglance.text.dictionaries import open_dictionary
from polyglance.text.learned_dictionary import dictionaries_from_alignment, dictionary_from_links

PAIRS = [
    (["The", "dog"], ["Der", "Hund"]),
    (["a", "dog"], ["ein", "Hund"]),
    (["A", "dog"], ["Ein", "Köter"]),
    (["Dogs"], ["Hunde"]),
    (["dogs", "here"], ["Hunde", "hier"]),
]
LINKS = [[(0, 0), (1, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 1)], [(0, 0)], [(0, 0), (1, 1)]]


def test_counts_shares_and_spellings() -> None:
    found = dictionary_from_links(PAIRS, LINKS, source="en", target="de", min_count=1)
    assert found.translations("DOG") == ("Hund", "Köter")
    assert found.score("dog", "Hund") == pytest.approx(2 / 3)
    assert found.translations("a") == ("ein",)  # as it is spelled inside a sentence
    assert found.translations("the") == ("Der",)  # its only spelling
    often = dictionary_from_links(PAIRS, LINKS, source="en", target="de")
    assert dict(often.pairs()) == {"dog": "Hund", "dogs": "Hunde", "a": "ein"}
    sure = dictionary_from_links(PAIRS, LINKS, min_count=1, min_share=0.5)
    assert sure.translations("dog") == ("Hund",)


def test_repeated_translation_in_a_sentence_counts_once() -> None:
    pairs = [(["no", "dog"], ["ne", "pas", "ne"]), (["no", "No"], ["ne", "ne"])]
    links = [[(0, 0), (0, 2)], [(0, 0), (0, 1), (1, 1), (1, 1)]]
    found = dictionary_from_links(pairs, links, min_count=1)
    assert found.score("no", "ne") == 1
    assert len(dictionary_from_links(pairs[:1], links[:1])) == 0  # linked once only


def test_rare_translations_are_not_learned() -> None:
    pairs = [(["the"], ["na"])] * 30
    links = [[(0, 0)]] + [[]] * 29
    assert len(dictionary_from_links(pairs, links, min_count=1)) == 0


def test_saved_with_its_scores_and_read_back(tmp_path: Path) -> None:
    found = dictionary_from_links(PAIRS, LINKS, source="en", target="de", min_count=1)
    found.save(tmp_path / "en-de.tsv")
    assert "dog\tHund\t0.6667\n" in (tmp_path / "en-de.tsv").read_text(encoding="utf-8")
    back = open_dictionary(tmp_path / "en-de.tsv", source="en")
    assert list(back.pairs()) == list(found.pairs())


@pytest.mark.parametrize("language", ["de", "cs"])
def test_toy_dataset_dictionary_is_learned(language: str) -> None:
    pictures = list(ToyDataset(seed=2).pictures(500))
    text = ParallelText(
        [
            tuple(list(picture.captions[code][0].words) for code in ("en", language))  # type: ignore[misc]
            for picture in pictures
        ],
        "en",
        language,
    )
    found = dictionary_from_links(
        text.pairs, align(text.lowercased()).links, source="en", target=language
    )
    known = {
        word.lower(): {other.lower() for other in others}
        for word, others in toy_dictionary("en", language).items()
    }
    shared = [word for word in known if word in found]
    right = [word for word in shared if found.translations(word)[0].lower() in known[word]]
    assert len(shared) > 25
    assert len(right) / len(shared) > 0.9


def test_scores_are_the_product_of_both_directions() -> None:
    pairs = [
        (["the", "house"], ["das", "haus"]),
        (["the", "book"], ["das", "buch"]),
        (["a", "book"], ["ein", "buch"]),
        (["a", "red", "house"], ["ein", "rotes", "haus"]),
        (["the", "red", "book"], ["das", "rote", "buch"]),
    ]
    found = align(
        pairs,
        AlignerSettings(ibm1_iterations=8, fast_align_iterations=0, hmm_iterations=0, alpha=0.0),
    )
    there, back = dictionaries_from_alignment(found, source="en", target="de", max_translations=9)
    assert (there.source, back.source) == ("en", "de")
    for word in {word for words, _ in pairs for word in words}:
        both = {
            other: likely * found.backward.translations(other, min_probability=0).get(word, 0.0)
            for other, likely in found.forward.translations(word, min_probability=0).items()
        }
        best = sorted((-score, other) for other, score in both.items() if score >= 0.02)
        assert there.translations(word) == tuple(other for _, other in best)
        for score, other in best:
            assert there.score(word, other) == pytest.approx(-score)
            assert back.score(other, word) == pytest.approx(-score)
    assert there.translations("house") == ("haus",)
    first, _ = dictionaries_from_alignment(found, max_translations=1, min_score=0.0)
    assert len(first) == 5
    assert all(len(first.translations(word)) == 1 for word in first)


def test_comparable_sentences_suffice() -> None:
    generator = np.random.default_rng(0)
    pairs = []
    for _ in range(600):
        things = generator.choice(30, 6, replace=False)
        mentioned = [generator.choice(things, 4, replace=False) for _ in range(2)]
        pairs.append(([f"e{i}" for i in mentioned[0]], [f"d{i}" for i in mentioned[1]]))
    found = align(
        pairs,
        AlignerSettings(ibm1_iterations=8, fast_align_iterations=0, hmm_iterations=0, alpha=0.0),
    )
    there, back = dictionaries_from_alignment(found, min_score=0.0)
    assert np.mean([there.translations(f"e{i}")[0] == f"d{i}" for i in range(30)]) > 0.9
    assert np.mean([back.translations(f"d{i}")[0] == f"e{i}" for i in range(30)]) > 0.9
