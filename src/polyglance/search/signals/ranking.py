"""Combine signals with the cosine of pictures, and say what spoke for a hit.

A hit's rank is its cosine in standard deviations of the query's cosines over the library, plus for
each signal a weight times how much of the query it answers:

    rank = (cosine - mean) / deviation + sum of weight * coverage ** POWER

Coverage is the share of the query's words that a name, place or text has, each word counted by the
square root of its inverse document frequency ``log(items / items with it) / log(items)``: words
that many names have say little. A word that more than half of the items have is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Literal

import numpy as np

from polyglance.search.exact import Bonus, Neighbors
from polyglance.search.query import Hit, Reason, Signal
from polyglance.search.signals.calendar import Period
from polyglance.search.signals.dates import DatePhrase
from polyglance.search.signals.understanding import Understood
from polyglance.search.signals.word_index import WordIndex, items_with_all, place_word
from polyglance.search.signals.words import query_words
from polyglance.search.store import Filter, Ids, Item, Span

Kind = Literal["n", "p", "t"]

WEIGHTS: dict[Signal, float] = {"name": 5.0, "place": 5.0, "text": 5.0, "date": 1.0}
"""What each signal adds at most, in standard deviations of the cosine.

The weight of names was chosen by ``benchmarks/experiments/signal_weights.py`` on validation
pictures: the smallest with which every picture is found by its folder's name alone. The same holds
for the text inside pictures from 3 on, and up to 8 it pushes no other picture down. Of dates, 0.5
and 1 are best: with more, those who remember the season wrongly no longer find their picture.
Places, which are filters unless folders are named after them, could count even more.
"""
NAMED = 100.0
"""What an item gains whose file or folder is called like the whole query: it comes first."""
POWER = 1.5
"""Names that have only some of the query's words count less than their share.

Chosen together with the weight: names of other pictures push no picture without a name down.
"""
MAX_FREQUENCY = 0.5
"""Words that a larger share of the items has are ignored."""
MAX_TABLE = 1 << 23
"""The highest id up to which tables by id are used."""
MAX_DAYS = 1000
"""Days of a feast in all years that are looked up; a feast of more has no rank."""

_KINDS: dict[Kind, tuple[Signal, str]] = {
    "n": ("name", "names"),
    "p": ("place", "places"),
    "t": ("text", "text"),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Evidence:
    """Items that a signal speaks for, and how much."""

    signal: Signal
    text: str
    items: Ids
    """Rising."""
    share: float = 1.0
    """What it adds to the signal's coverage."""

    def has(self, item: int) -> bool:
        return _has(self.items, item)


@dataclass(frozen=True, slots=True, eq=False)
class SignalQuery:
    """A query with its signals."""

    understood: Understood
    evidence: tuple[_Evidence, ...] = ()
    bonus: Bonus = field(
        default_factory=lambda: Bonus(np.zeros(0, np.int64), np.zeros(0, np.float32))
    )
    named: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rising ids of the items whose file or folder is called like the whole query."""

    def restrict(self, where: Filter) -> Filter:
        """Add the filters of the query's words to others."""
        periods, places = self.understood.periods, self.understood.places
        if where.places is not None and places is not None:
            places = tuple(name for name in places if name in where.places)
        return replace(
            where,
            periods=periods if periods is not None else where.periods,
            places=places if places is not None else where.places,
        )

    def reasons(self, item: int, cosine: float, cosine_stats: tuple[float, float] | None) -> tuple[
        Reason, ...
    ]:  # fmt: skip
        """Return what speaks for an item, the strongest first.

        Args:
            item: Its id.
            cosine: Of its picture with the query.
            cosine_stats: Mean and standard deviation of the query's cosines.

        Returns:
            The reasons; filters come last, since every hit passes them.
        """
        mean, deviation = cosine_stats or (0.0, 1.0)
        found = [Reason("picture", None, (cosine - mean) / max(deviation, 1e-6))]
        words: dict[Signal, list[_Evidence]] = {}
        for one in self.evidence:
            if one.has(item):
                words.setdefault(one.signal, []).append(one)
        if _has(self.named, item):
            words.pop("name", None)
            found.append(Reason("name", self.understood.name, NAMED))
        for signal, parts in words.items():
            text = " ".join(dict.fromkeys(part.text for part in parts))
            coverage = min(sum(part.share for part in parts), 1.0)  # as in `_sum`
            found.append(Reason(signal, text, WEIGHTS[signal] * coverage**POWER))
        found.sort(key=lambda one: -one.score)
        return (*found, *self.understood.filter_reasons)


def answers_all(reason: Reason, understood: Understood) -> bool:
    """Return whether a name, place or text has all that was asked for, whatever is to be seen.

    A place does if the query has no other words.
    """
    if reason.signal not in ("name", "text") and (reason.signal != "place" or understood.rest):
        return False
    return reason.score >= 0.99 * WEIGHTS[reason.signal]


def _has(items: Ids, item: int) -> bool:
    place = int(np.searchsorted(items, item))
    return place < len(items) and int(items[place]) == item


def collect(
    understood: Understood,
    text: str,
    words: WordIndex | None,
    off: frozenset[str],
    named: Ids | None = None,
) -> SignalQuery:
    """Find what names, places, texts and dates say about a query.

    Args:
        understood: The query taken apart.
        text: The words that names may have.
        words: The library's words, or None without.
        off: Signals that are switched off.
        named: Rising ids of the items that are called like the whole query.

    Returns:
        The query with the items that gain something.
    """
    if words is None:
        return SignalQuery(understood)
    words.refresh(complete=False)
    evidence = [*_find_words(text, words, off)]
    for shown, names in understood.ranked_places:
        # Taken there, or called so: either says the same.
        parts = list(words.postings([place_word(name) for name in names]).values())
        if "names" not in off:
            parts.append(items_with_all(words, [f"n:{word}" for word in query_words(shown)]))
        items = _union([part for part in parts if len(part)])
        evidence += [_Evidence("place", shown, items)] if len(items) else []
    if "dates" not in off:
        evidence += [
            _Evidence("date", hint.text, items)
            for hint in understood.hints
            if len(items := _items_of(hint, words))
        ]
    bonus = _sum(evidence)
    if named is None or not len(named):
        return SignalQuery(understood, tuple(evidence), bonus)
    items = _union([bonus.items, named])
    values = np.zeros(len(items), np.float32)
    values[np.searchsorted(items, bonus.items)] = bonus.values
    values[np.searchsorted(items, named)] += NAMED
    return SignalQuery(understood, tuple(evidence), Bonus(items, values), named)


def _find_words(text: str, words: WordIndex, off: frozenset[str]) -> list[_Evidence]:
    terms, count = query_words(text), words.count()
    kinds = [kind for kind, (_, name) in _KINDS.items() if name not in off]
    if not terms or not kinds or not count:
        return []
    postings = words.postings([f"{kind}:{term}" for kind in kinds for term in terms])
    found = list[_Evidence]()
    for kind in kinds:
        weights = {term: _rarity(len(postings.get(f"{kind}:{term}", ())), count) for term in terms}
        total = sum(weights.values())
        for term, weight in weights.items():
            items = postings.get(f"{kind}:{term}")
            if items is not None and weight > 0:
                signal, _ = _KINDS[kind]
                found.append(_Evidence(signal, terms[term], items, weight / total))
    return found


def _rarity(having: int, count: int) -> float:
    """Return what a word counts that so many of ``count`` items have."""
    if having > max(1.0, MAX_FREQUENCY * count):
        return 0.0
    if count < 2 or not having:
        return 1.0
    return max(0.05, math.sqrt(math.log(count / having) / math.log(count)))


def _items_of(hint: DatePhrase, words: WordIndex) -> Ids:
    """Return the items of a season, month or feast of any year."""
    return _union(list(words.postings(_words_of(hint.periods)).values()))


@lru_cache(maxsize=256)
def _words_of(periods: tuple[Period, ...]) -> list[str]:
    """Return the words of the index for the months or days of some periods."""
    if all(first.day == 1 and (last + timedelta(1)).day == 1 for first, last in periods):
        return sorted(
            {f"d:{month:02}" for first, last in periods for month in _months(first, last)}
        )
    days = [
        (first + timedelta(day)).isoformat()
        for first, last in periods
        for day in range((last - first).days + 1)
    ]
    of_any_year = {f"d:{day[5:]}" for day in days}
    if len(of_any_year) * len(periods) == len(days):  # the same days in every year
        return sorted(of_any_year)
    return [f"d:{day}" for day in days] if len(days) <= MAX_DAYS else []


def _months(first: date, last: date) -> list[int]:
    count = (last.month - first.month) % 12 + 1
    return [(first.month - 1 + step) % 12 + 1 for step in range(count)]


def _union(parts: Sequence[Ids]) -> Ids:
    """Return the rising ids that are in any part."""
    if not parts:
        return np.zeros(0, np.int64)
    highest = max(int(part[-1]) for part in parts if len(part))
    if highest > MAX_TABLE:
        return np.unique(np.concatenate(parts))
    table = np.zeros(highest + 1, np.bool_)  # ten times as fast
    for part in parts:
        table[part] = True
    return np.flatnonzero(table)


def _sum(evidence: Sequence[_Evidence]) -> Bonus:
    """Add up what items gain."""
    items = _union([one.items for one in evidence])
    values = np.zeros(len(items), np.float32)
    highest = int(items[-1]) if len(items) else 0
    for signal in dict.fromkeys(one.signal for one in evidence):
        own = [one for one in evidence if one.signal == signal]
        if highest <= MAX_TABLE:
            table = np.zeros(highest + 1, np.float32)
            for one in own:
                table[one.items] += np.float32(one.share)
            coverage = table[items]
        else:
            coverage = np.zeros(len(items), np.float32)
            for one in own:
                coverage[np.searchsorted(items, one.items)] += np.float32(one.share)
        values += np.float32(WEIGHTS[signal]) * np.minimum(coverage, 1) ** np.float32(POWER)
    return Bonus(items, values)


def rank_hits(
    neighbors: Neighbors,
    items: Mapping[int, tuple[Item, Span | None]],
    asked: SignalQuery | None,
) -> list[Hit]:
    """Make hits of what an index found, the best first, in the same order for any number of them.

    Args:
        neighbors: What the index found.
        items: Their items and spans by id; what was deleted meanwhile is missing.
        asked: The query's signals, or None without words.

    Returns:
        The hits, each with its reasons.
    """
    gains = np.zeros(len(neighbors)) if neighbors.gains is None else neighbors.gains
    columns = (neighbors.ids, neighbors.items, neighbors.scores, gains)
    found = []
    for number, item, cosine, gain in zip(*(column.tolist() for column in columns), strict=True):
        if number in items:
            why = asked.reasons(item, cosine, neighbors.cosine_stats) if asked else ()
            hit = Hit.from_item(number, *items[number], score=cosine, why=why)
            found.append((cosine + gain, hit))
    found.sort(key=lambda one: (-one[0], one[1].id))
    return [hit for _, hit in found]
