"""Dictionaries learned from parallel sentences: from word links of any aligner, or from the
translation tables of ours."""

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
"""A word, a translation, and its score."""


class LearnedDictionary(Dictionary):
    """A dictionary with a score for each translation."""

    def __init__(self, entries: Iterable[Entry], *, source: str = "") -> None:
        entries = sorted(entries, key=lambda entry: (entry[0], -entry[2], entry[1]))
        super().__init__(((word, other) for word, other, _ in entries), source=source)
        self._scores = {(self.normalise(word), other): score for word, other, score in entries}

    def score(self, word: str, translation: str) -> float:
        """Return the score of a translation; 0 if it is not one."""
        return self._scores.get((self.normalise(word), translation), 0.0)

    def save(self, path: str | Path) -> None:
        """Write one ``word<TAB>translation<TAB>score`` per line, as `open_dictionary` reads."""
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
    """Build a dictionary from word links; the most frequent translation comes first.

    A translation has its most frequent spelling, not counting sentence beginnings,
    whose capitals say nothing. Its score is the share of the word's occurrences that
    are linked to it.

    Args:
        pairs: The words of each sentence and its translation, in their original spelling.
        links: The links of each pair, as word indices.
        source: Language of the words.
        target: Language of the translations.
        min_count: Leave out translations that are linked less often.
        min_share: Leave out translations with a lower score; words without a
            counterpart, such as articles, are linked to anything now and then.
    """
    normalise_source, normalise_target = (
        cache(partial(normalise_word, language=code)) for code in (source, target)
    )
    totals: Counter[str] = Counter()
    cooccurrences: Counter[tuple[str, str]] = Counter()
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (words, others), linked in zip(pairs, links, strict=True):
        source_words = list(map(normalise_source, words))
        target_words = list(map(normalise_target, others))
        totals.update(source_words)
        # A word linked to two occurrences of a translation counts once.
        once = dict.fromkeys((i, target_words[j]) for i, j in linked)
        cooccurrences.update((source_words[i], other) for i, other in once)
        for index, (word, spelling) in enumerate(zip(target_words, others, strict=True)):
            # The spelling at the beginning of a sentence is recorded with a count of 0.
            spellings[word][spelling] += int(index > 0)
    entries = (
        (word, spellings[other].most_common(1)[0][0], count / totals[word])
        for (word, other), count in cooccurrences.items()
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
    """Build a dictionary for each direction from an aligner's translation tables.

    A translation's score is the product of its probabilities in both directions, since
    rare words are probable translations of every word near them. Unlike
    `dictionary_from_links` this also works for comparable sentences that describe the
    same thing without being translations.

    Args:
        alignment: The result of `align`.
        source: Language of the source words.
        target: Language of the target words.
        max_translations: Keep only the best translations of each word.
        min_score: Leave out translations with a lower score.

    Returns:
        The dictionaries from source to target and from target to source.
    """
    backward = {
        word: alignment.backward.translations(word, min_probability=min_score)
        for word in alignment.backward.sources
    }
    entries = [
        (word, other, probability * backward[other].get(word, 0.0))
        for word in alignment.forward.sources[1:]
        for other, probability in alignment.forward.translations(
            word, min_probability=min_score
        ).items()
    ]
    forward = [entry for entry in entries if entry[2] >= min_score]
    reverse = [(other, word, score) for word, other, score in forward]
    return (
        LearnedDictionary(_best_entries(forward, max_translations), source=source),
        LearnedDictionary(_best_entries(reverse, max_translations), source=target),
    )


def _best_entries(entries: Iterable[Entry], max_translations: int) -> Iterator[Entry]:
    """Yield the best translations of each word."""
    counts: Counter[str] = Counter()
    for entry in sorted(entries, key=lambda entry: (-entry[2], entry[1])):
        counts[entry[0]] += 1
        if counts[entry[0]] <= max_translations:
            yield entry
