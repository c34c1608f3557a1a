"""A dictionary read off the links of parallel sentences: ours, eflomal's or anybody's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from polyglance.records import replacing
from polyglance.text.dictionaries import Dictionary
from polyglance.text.links import Link
from polyglance.text.segment import normalise_word


class LearnedDictionary(Dictionary):
    """A dictionary that knows how often each translation was seen."""

    def __init__(self, entries: Iterable[tuple[str, str, float]], *, source: str = "") -> None:
        entries = sorted(entries, key=lambda entry: (entry[0], -entry[2], entry[1]))
        super().__init__(((word, other) for word, other, _ in entries), source=source)
        self._scores = {(self.folded(word), other): score for word, other, score in entries}

    def score(self, word: str, translation: str) -> float:
        """How often a word is linked to a translation, as a share of its occurrences."""
        return self._scores.get((self.folded(word), translation), 0.0)

    def save(self, path: str | Path) -> None:
        """Write a word, a translation and its score a line, as `open_dictionary` reads."""
        with replacing(path) as out:
            for word, translation in self.pairs():
                out.write(f"{word}\t{translation}\t{self.score(word, translation):.4f}\n")


def learned_dictionary(
    pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
    links: Iterable[Iterable[Link]],
    *,
    source: str = "",
    target: str = "",
    least_count: int = 2,
    least_share: float = 0.05,
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
        seen.update((plain_words[i], plain_others[j]) for i, j in linked)
        for place, (plain, spelled) in enumerate(zip(plain_others, others, strict=True)):
            # Noted, but not counted, at the beginning of a sentence.
            spellings[plain][spelled] += int(place > 0)
    entries = (
        (word, spellings[other].most_common(1)[0][0], count / totals[word])
        for (word, other), count in seen.items()
        if count >= least_count and count >= least_share * totals[word]
    )
    return LearnedDictionary(entries, source=source)
