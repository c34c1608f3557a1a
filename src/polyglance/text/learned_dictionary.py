"""Dictionaries learned from sentences: read off links, ours, eflomal's or anybody's, or off
what both directions of our aligner believe of words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from polyglance.records import atomic_write
from polyglance.text.dictionaries import Dictionary
from polyglance.text.segment import normalise_word

if TYPE_CHECKING:
    from polyglance.text.alignment import Alignment
    from polyglance.text.alignment.links import Link

Entry = tuple[str, str, float]
"""A word, a translation, and how good it is."""


class LearnedDictionary(Dictionary):
    """A dictionary that knows how often each translation was seen."""

    def __init__(self, entries: Iterable[Entry], *, source: str = "") -> None:
        entries = sorted(entries, key=lambda entry: (entry[0], -entry[2], entry[1]))
        super().__init__(((word, other) for word, other, _ in entries), source=source)
        self._scores = {(self.normalise(word), other): score for word, other, score in entries}

    def score(self, word: str, translation: str) -> float:
        """How often a word is linked to a translation, as a share of its occurrences."""
        return self._scores.get((self.normalise(word), translation), 0.0)

    def save(self, path: str | Path) -> None:
        """Write a word, a translation and its score a line, as `open_dictionary` reads."""
        with atomic_write(path) as out:
            for word, translation in self.pairs():
                out.write(f"{word}\t{translation}\t{self.score(word, translation):.4f}\n")


def dictionary_from_links(
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
    links: Iterable[Iterable[Link]],
    *,
    source: str = "",
    target: str = "",
    min_count: int = 2,
    min_share: float = 0.05,
) -> LearnedDictionary:
    """Words and what they are linked to, what was seen most often first.

    ``pairs`` are sentences as they are spelled, in the places that ``links``
    count. Of a translation its commonest spelling is taken, for a capital at the
    beginning of a sentence says nothing. Left out is what was seen less than
    ``least_count`` times, or with less than ``least_share`` of a word's
    occurrences: what English says with an article and Czech with nothing is
    linked to anything now and then.
    """
    ours, theirs = (cache(partial(normalise_word, language=code)) for code in (source, target))
    totals: Counter[str] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (words, others), linked in zip(pairs, links, strict=True):
        plain_words, plain_others = list(map(ours, words)), list(map(theirs, others))
        totals.update(plain_words)
        # A translation that stands twice in its sentence is one of the word all the same.
        once = dict.fromkeys((i, plain_others[j]) for i, j in linked)
        seen.update((plain_words[i], other) for i, other in once)
        for place, (plain, spelled) in enumerate(zip(plain_others, others, strict=True)):
            # Noted, but not counted, at the beginning of a sentence.
            spellings[plain][spelled] += int(place > 0)
    entries = (
        (word, spellings[other].most_common(1)[0][0], count / totals[word])
        for (word, other), count in seen.items()
        if count >= min_count and count >= min_share * totals[word]
    )
    return LearnedDictionary(entries, source=source)


def dictionaries_from_alignment(
    alignment: Alignment,
    *,
    source: str = "",
    target: str = "",
    max_translations: int = 3,
    min_score: float = 0.02,
) -> tuple[LearnedDictionary, LearnedDictionary]:
    """A dictionary there and one back, of what is a likely translation in both directions.

    A translation's score is its probability there times that back, for rare words
    are likely translations of everything they stand beside. Up to ``most`` of a
    word are kept, those of ``least`` and more. Unlike links this serves sentences
    too that are no translations but tell of the same: a word is then linked now
    and then to anything, and most often to what it means.
    """
    back = {
        word: alignment.backward.translations(word, min_probability=min_score)
        for word in alignment.backward.sources
    }
    both = [
        (word, other, likely * back[other].get(word, 0.0))
        for word in alignment.forward.sources[1:]
        for other, likely in alignment.forward.translations(word, min_probability=min_score).items()
    ]
    kept = [entry for entry in both if entry[2] >= min_score]
    turned = [(other, word, score) for word, other, score in kept]
    return (
        LearnedDictionary(_best_entries(kept, max_translations), source=source),
        LearnedDictionary(_best_entries(turned, max_translations), source=target),
    )


def _best_entries(entries: Iterable[Entry], most: int) -> Iterator[Entry]:
    """The best translations of each word, so many."""
    taken: Counter[str] = Counter()
    for entry in sorted(entries, key=lambda entry: (-entry[2], entry[1])):
        taken[entry[0]] += 1
        if taken[entry[0]] <= most:
            yield entry
