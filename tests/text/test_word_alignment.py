from __future__ import annotations

import itertools

import numpy as np

from polyglance.text.word_alignment import learn_dictionaries

PAIRS = [
    (["the", "house"], ["das", "haus"]),
    (["the", "book"], ["das", "buch"]),
    (["a", "book"], ["ein", "buch"]),
    (["a", "red", "house"], ["ein", "rotes", "haus"]),
    (["the", "red", "book"], ["das", "rote", "buch"]),
]


def slow_model_1(pairs: list[tuple[list[str], list[str]]], iterations: int) -> dict:
    """Brown et al. 1993, model 1, in loops; None stands for the empty word."""
    there = {t for _, target in pairs for t in target}
    likely = {
        (s, t): 1 / len(there)
        for source, target in pairs
        for s, t in itertools.product([*source, None], target)
    }
    for _ in range(iterations):
        counts = dict.fromkeys(likely, 0.0)
        for source, target in pairs:
            for t in target:
                total = sum(likely[s, t] for s in [*source, None])
                for s in [*source, None]:
                    counts[s, t] += likely[s, t] / total
        whole: dict = {}
        for (s, _), count in counts.items():
            whole[s] = whole.get(s, 0.0) + count
        likely = {(s, t): count / whole[s] for (s, t), count in counts.items()}
    return likely


def test_translations_are_those_of_model_1_both_ways() -> None:
    there = slow_model_1(PAIRS, 8)
    back = slow_model_1([(b, a) for a, b in PAIRS], 8)
    dictionary, reverse = learn_dictionaries(PAIRS, "en", "de", best=9, least=0.02)
    both = {(s, t): there[s, t] * back[t, s] for s, t in there if s is not None}
    for word in {s for s, _ in both}:
        expected = sorted((-v, t) for (s, t), v in both.items() if s == word and v >= 0.02)
        assert set(dictionary.translations(word)) == {t for _, t in expected}
        found = [both[word, t] for t in dictionary.translations(word)]
        assert found == sorted(found, reverse=True)
    assert dictionary.translations("house") == ("haus",)
    assert reverse.translations("buch")[0] == "book"
    assert dictionary.source == "en"
    assert reverse.source == "de"


def test_what_people_say_of_the_same_thing_is_enough() -> None:
    generator = np.random.default_rng(0)
    words = {"en": [f"e{i}" for i in range(30)], "de": [f"d{i}" for i in range(30)]}
    pairs = []
    for _ in range(600):
        things = generator.choice(30, 6, replace=False)
        said = [generator.choice(things, 4, replace=False) for _ in range(2)]
        pairs.append(([words["en"][i] for i in said[0]], [words["de"][i] for i in said[1]]))
    dictionary, _ = learn_dictionaries(pairs, "en", "de", least=0.0)
    right = [dictionary.translations(f"e{i}")[0] == f"d{i}" for i in range(30)]
    assert np.mean(right) > 0.9


def test_few_translations_are_kept_and_nothing_is_learned_from_nothing() -> None:
    dictionary, _ = learn_dictionaries(PAIRS, "en", "de", best=1, least=0.0)
    assert all(len(dictionary.translations(word)) == 1 for word in dictionary)
    nothing, back = learn_dictionaries([], "en", "de")
    assert len(nothing) == len(back) == 0
    assert len(learn_dictionaries([([], ["x"])], "en", "de")[0]) == 0
