"""Dictionaries learned from sentences that mean the same: IBM's first model of translation.

Brown et al. 1993, model 1: every word of a translation comes from one word of the
original, or from none. Expectation and maximisation take turns at guessing which,
and how likely each word becomes each other. Sentences need not be translations:
what two people say of one picture does, if there is enough of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyglance.text.dictionaries import Dictionary

Words = Sequence[str]
Indices = NDArray[np.int64]
Shares = NDArray[np.float64]


def learn_dictionaries(
    pairs: Iterable[tuple[Words, Words]],
    source: str,
    target: str,
    *,
    iterations: int = 8,
    best: int = 3,
    least: float = 0.02,
) -> tuple[Dictionary, Dictionary]:
    """A dictionary from the first language of sentence pairs to the second, and one back.

    A translation counts by how likely it is in both directions together, for rare
    words are likely translations of everything they stand beside. Up to ``best``
    translations of a word are kept, those of ``least`` and more.
    """
    seen = _Pairs.of(pairs)
    there = seen.learn(iterations)
    back = seen.turned().learn(iterations)
    likely = there * back
    words, others = seen.words, seen.others
    return (
        _dictionary(seen.first, seen.second, likely, words, others, source, best, least),
        _dictionary(seen.second, seen.first, likely, others, words, target, best, least),
    )


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Every word that stands in a sentence beside every word of the other sentence."""

    words: list[str]
    others: list[str]
    first: Indices
    second: Indices
    """The kinds of pairs of words, by number."""
    kind: Indices
    """Of each pair of places, which kind of pair it is."""
    place: Indices
    """The place in the second sentence, numbered through all sentences."""
    place_back: Indices

    @classmethod
    def of(cls, pairs: Iterable[tuple[Words, Words]]) -> _Pairs:
        numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        flat: tuple[list[int], list[int]] = ([], [])
        sizes: list[tuple[int, int]] = []
        for both in pairs:
            for sentence, known, into in zip(both, numbers, flat, strict=True):
                into += [known.setdefault(word, len(known)) for word in sentence]
            sizes.append((len(both[0]), len(both[1])))
        here, there = (np.array(one, np.int64) for one in flat)
        lengths, lengths_there = np.array(sizes, np.int64).reshape(-1, 2).T
        # All places of a sentence against all of its pair, one pair of sentences after another.
        of_pair = np.repeat(np.arange(len(sizes)), lengths * lengths_there)
        start = np.cumsum(lengths * lengths_there) - lengths * lengths_there
        within = np.arange(len(of_pair)) - start[of_pair]
        width = lengths_there[of_pair]
        place_back = (np.cumsum(lengths) - lengths)[of_pair] + within // np.maximum(1, width)
        place = (np.cumsum(lengths_there) - lengths_there)[of_pair] + within % np.maximum(1, width)
        many = max(1, len(numbers[1]))
        kinds, kind = np.unique(here[place_back] * many + there[place], return_inverse=True)
        return cls(
            list(numbers[0]), list(numbers[1]), kinds // many, kinds % many, kind, place, place_back
        )

    def turned(self) -> _Pairs:
        """The same from the second language to the first."""
        return _Pairs(
            self.others, self.words, self.second, self.first, self.kind, self.place_back, self.place
        )

    def learn(self, iterations: int) -> Shares:
        """How likely the first word of each kind of pair becomes the second."""
        likely = np.full(len(self.first), 1.0 / max(1, len(self.others)))
        from_none = np.full(len(self.others), 1.0 / max(1, len(self.others)))
        places = int(self.place.max(initial=-1)) + 1
        word_at = np.zeros(places, np.int64)
        word_at[self.place] = self.second[self.kind]
        for _ in range(iterations):
            shares = likely[self.kind]
            total = np.bincount(self.place, shares, places) + from_none[word_at]
            counts = np.bincount(self.kind, shares / total[self.place], len(self.first))
            whole = np.bincount(self.first, counts, len(self.words))
            likely = counts / np.maximum(whole[self.first], 1e-12)
            lost = np.bincount(word_at, from_none[word_at] / total, len(self.others))
            from_none = lost / max(float(lost.sum()), 1e-12)
        return likely


def _dictionary(
    first: Indices,
    second: Indices,
    likely: Shares,
    words: list[str],
    others: list[str],
    source: str,
    best: int,
    least: float,
) -> Dictionary:
    kept = np.flatnonzero(likely >= least)
    kept = kept[np.lexsort((-likely[kept], first[kept]))]
    rank = np.arange(len(kept)) - np.searchsorted(first[kept], first[kept])
    kept = kept[rank < best]
    pairs = ((words[first[kind]], others[second[kind]]) for kind in kept)
    return Dictionary(pairs, source=source)
