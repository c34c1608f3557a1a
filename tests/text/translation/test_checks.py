from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.sentences import SENTENCES
from polyglance.data.toy import ToyDataset
from polyglance.errors import PolyglanceError
from polyglance.text.translation.checks import (
    CopyCheck,
    EmbeddingCheck,
    EmptyCheck,
    LanguageCheck,
    LengthCheck,
    RepetitionCheck,
    RoundTripCheck,
    chrf,
    length_ratio,
    max_consecutive_repeats,
    written_length,
)


def test_empty_and_copied() -> None:
    pairs = [("a dog", ""), ("a dog", " . "), ("?!", "?!"), ("🐕", "Hund"), ("a dog", "ein Hund")]
    assert EmptyCheck()(pairs, "en", "de") == [False, False, False, False, True]
    assert EmptyCheck()([("a dog", "狗"), ("a dog", "กา")], "en", "zh") == [True, True]
    pairs = [("A dog runs.", "a dog runs"), ("Taxi", "Taxi"), ("A dog.", "A Hund.")]
    assert CopyCheck()(pairs, "en", "de") == [False, True, True]


def test_untranslated_words_fail() -> None:
    kite = "A kite surfer is doing a flip over the waves."
    pairs = [
        (kite, "A kite surfer ni doing a flip over the waves."),
        (kite, "a KITE, surfer: ni doing a flip"),
        (kite.title(), "A Kite Surfer Ni Doing A Flip Over The Waves."),
        ("A dog runs fast.", "A mbwa runs fast."),
    ]
    assert CopyCheck()(pairs, "en", "sw") == [False] * 4
    # At most so many of them, and all of them are a copy wherever the threshold lies.
    pairs = [("a b c d e", "a b c x y"), ("a b c d e", "a b c d y"), ("a b c d e", "a b c d e")]
    assert CopyCheck()(pairs, "en", "sw") == [True, False, False]
    assert CopyCheck(1.0)(pairs, "en", "sw") == [True, True, False]


def test_names_and_numbers_may_stay() -> None:
    pairs = [
        ("Michael Jordan plays basketball.", "Michael Jordan spielt Basketball."),
        ("Tom Hanks and Meg Ryan in New York", "Tom Hanks und Meg Ryan in New York"),
        ("A Boeing 747 of British Airways lands.", "Eine Boeing 747 von British Airways landet."),
        ("Solve x³ + 2x² − x − 2 = 0.", "Løs x³ + 2x² − x − 2 = 0."),
        ("A man in a park in Berlin", "Ein Mann in einem Park in Berlin"),
        ("Taxi", "Taxi"),
    ]
    assert CopyCheck()(pairs, "en", "de") == [True] * len(pairs)


def test_lengths_are_compared_across_scripts() -> None:
    assert written_length("A dog, 2!") == 5
    assert written_length("两只狗。") == 9
    assert written_length("いぬ개") == 6
    assert length_ratio("a dog", "ein Hund") == pytest.approx(11 / 8)
    long = "A man in a red shirt is riding a bicycle down the street"
    pairs = [
        (long, "Ein Mann in einem roten Hemd fährt mit dem Fahrrad die Straße hinunter"),
        (long, "一个穿红衬衫的男人骑着自行车在街上"),
        (long, "Ein Mann"),
        ("a dog", "Ein Hund läuft über eine grüne Wiese und dann in den Wald"),
    ]
    assert LengthCheck()(pairs, "en", "de") == [True, True, False, False]
    assert LengthCheck(0.1, 9.0)(pairs, "en", "de") == [True] * 4


@pytest.mark.parametrize(
    ("min_ratio", "max_ratio"), [(3, 1), (0, 0), (float("nan"), 1), (0, float("nan"))]
)
def test_impossible_length_ratios_are_refused(min_ratio: float, max_ratio: float) -> None:
    with pytest.raises(PolyglanceError, match=r"no length ratio is at least .* and at most"):
        LengthCheck(min_ratio, max_ratio)


def test_repeated_phrases_fail() -> None:
    assert max_consecutive_repeats("", "en") == 0
    assert max_consecutive_repeats("a dog", "en") == 1
    assert max_consecutive_repeats("a very, very big dog", "en") == 2
    assert max_consecutive_repeats("on the dog on the dog on the dog.", "en") == 3
    assert max_consecutive_repeats("狗狗狗", "zh") == 3
    pairs = [
        ("a dog", "der der der Hund"),
        ("no no no!", "nein nein nein!"),
        ("a very very big dog", "ein sehr sehr großer Hund"),
    ]
    assert RepetitionCheck()(pairs, "en", "de") == [False, True, True]


@given(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4),
    st.integers(1, 6),
    st.lists(st.sampled_from(["x", "y"]), max_size=2),
)
def test_repeats_are_counted_anywhere_in_a_text(phrase: list[str], times: int, around: list[str]):
    text = " ".join([*around, *phrase * times, *around])
    output = max_consecutive_repeats(text, "en")
    assert output >= times
    # By its definition, looked for in every place.
    words = text.split()
    slow = max(
        count
        for start in range(len(words))
        for length in range(1, 5)
        for count in range(1, len(words) + 1)
        if words[start : start + length * count] == words[start : start + length] * count
        and start + length * count <= len(words)
    )
    assert output == slow


@given(st.text(max_size=12), st.text(max_size=12))
def test_length_ratio_is_symmetric_and_chrf_is_a_share(one: str, other: str) -> None:
    assert length_ratio(one, other) == pytest.approx(1 / length_ratio(other, one))
    assert 0 <= chrf(one, other) <= 1 + 1e-9
    assert chrf(one, one) == pytest.approx(1)


def test_chrf_by_hand() -> None:
    # 1-grams: a b | a c -> 1/2, 1/2; 2-grams: ab | ac -> 0, 0; the means are 1/4 each.
    assert chrf("ab", "ac") == pytest.approx(0.25)
    # 1-grams: precision 1, recall 1/2; F with recall counting double: 5 * 1 * .5 / (4 + .5)
    assert chrf("A", "a b") == pytest.approx(2.5 / 4.5)
    assert chrf("a", "b") == 0


def test_untranslated_captions_are_detected() -> None:
    """One in ten stays English; German is learned from all of them together."""
    pictures = ToyDataset(seed=3).pictures(100, "train")
    output = [(one.captions["en"][0].text, one.captions["de"][0].text) for one in pictures]
    pairs = [(here, here if not row % 10 else there) for row, (here, there) in enumerate(output)]
    assert LanguageCheck()(pairs, "en", "de") == [row % 10 > 0 for row in range(len(pairs))]
    assert LanguageCheck(margin=1e6)(pairs, "en", "de") == [True] * len(pairs)
    assert LanguageCheck()([], "en", "de") == []


def test_third_language_is_detected_from_examples() -> None:
    pairs = list(zip(SENTENCES["en"], SENTENCES["fr"], strict=True))
    known = {code: SENTENCES[code] for code in ("de", "fr", "cs")}
    assert not any(LanguageCheck(known)(pairs, "en", "de"))
    assert all(LanguageCheck(known)(pairs, "en", "fr"))


def test_embedding_and_round_trip_checks() -> None:
    pairs = [("a dog", "ein Hund"), ("a cat", "ein Zug"), ("a cow", "?")]
    alike = EmbeddingCheck(lambda here, _, there, __: [0.7, 0.69, 0.1], min_similarity=0.7)
    assert alike(pairs, "en", "de") == [True, False, False]
    back = {"ein Hund": "a dog", "ein Zug": "one train", "?": None}
    trip = RoundTripCheck(lambda texts, source, target: [back[text] for text in texts])
    assert trip(pairs, "en", "de") == [True, False, False]
