"""Take the dates and places out of the words of a query.

What can only be a date or a place becomes a filter, and the model reads the rest of the query. A
place is known if the library has pictures of it: nobody's "nice dog" is from Nice who never was
there. Names that are ordinary words, too, need a capital and a preposition to be a filter. Where
folders or files are named after a place, it is no filter but counts in the ranking, for their
pictures may have no coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from polyglance.errors import PolyglanceError
from polyglance.search.query import Reason
from polyglance.search.signals.dates import DatePhrase, find_dates
from polyglance.search.signals.folding import Folded, fold
from polyglance.search.signals.words import has_no_content, query_words

SwitchableSignal = Literal["names", "dates", "places", "text"]
SIGNALS: tuple[SwitchableSignal, ...] = ("names", "dates", "places", "text")
"""What can be switched off; pixels cannot."""

Periods = Sequence[tuple[str, str]]
"""First and last days, as they are stored."""
_PREPOSITIONS = """
in at from near around of to in bei aus nach von um nahe im à a au aux en dans de du près em no na
de do da perto v ve na z ze u do في من إلى قرب ب 在 从 到 en de cerca a da di ad nei
"""
_LEADS = frozenset(map(fold, _PREPOSITIONS.split()))
_CZECH_LEADS = frozenset(("v", "ve", "na", "z", "ze", "do", "u"))
_CZECH_ENDINGS = (
    ("ze", "ha"), ("e", "a"), ("e", ""), ("y", "a"), ("u", ""), ("u", "o"), ("ě", ""), ("i", ""),
    ("i", "e"), ("i", "a"),
)  # fmt: skip
_ORDINARY_WORDS = """
nice bath reading split cork mobile orange tours lens nancy angers bar man van ball golf hall bridge
sand essen baden weiden rose march young white brown green black holland march male lake port sandy
batman wells ash hove deal rugby wedding golden troy eden salem jordan turkey chad georgia paradise
pau sète sens vienne valence die mode trier halle ulm hof regen winter sommer fort beach bay park
hill cut mali malaga natal salto belo campo rio ponte porto gata brno most plzen hora louny buk pola
lada cali cola como bergen orlando florence victoria sofia santa san mesa chico queen king york
kent surrey dover hamburg frankfurter wiener bologna parma cheddar champagne cognac
"""
_ORDINARY = frozenset(map(fold, _ORDINARY_WORDS.split()))
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MAX_WORDS = 4
_EDGES = " \t\n,;:.،，。、的"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a query that became a filter."""

    signal: Literal["date", "place"]
    text: str
    """Its words in the query."""
    label: str
    """What it was understood as: ``2023-06-01 – 2023-08-31``, or ``Paris, France``."""
    since: str | None = None
    until: str | None = None
    """First and last day, of a date that is one period."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A query taken apart."""

    text: str
    """What is left for the model, or the whole query if nothing is."""
    parts: tuple[Part, ...] = ()
    """What became filters."""
    periods: tuple[tuple[str, str], ...] | None = None
    """First and last days of a filter by date."""
    places: tuple[str, ...] | None = None
    """Stored names of a filter by place."""
    hints: tuple[DatePhrase, ...] = ()
    """Dates that may also describe what is to be seen, and only count in the ranking."""
    rest: str = ""
    """What is left without the filters; empty if the query has nothing else."""
    ranked_places: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Words and stored names of places that names of files have, too, and that are no filter."""
    name: str | None = None
    """The whole query, if it is the name of files or folders."""

    @property
    def only_filters(self) -> bool:
        """Whether nothing is left that can be seen, as of ``photos from 2023``."""
        return bool(self.parts) and has_no_content(self.rest)

    @property
    def filter_reasons(self) -> tuple[Reason, ...]:
        """What filters say of every hit; it adds nothing to a rank."""
        return tuple(Reason(part.signal, part.text, 0.0) for part in self.parts)


def check_signals(off: Collection[str]) -> frozenset[str]:
    """Return the signals that are switched off, all of which exist."""
    for name in off:
        if name not in SIGNALS:
            raise PolyglanceError(f"there is no signal {name!r}: it is one of {', '.join(SIGNALS)}")
    return frozenset(off)


def understand(
    text: str,
    today: date,
    *,
    places: Mapping[str, Sequence[str]] | None = None,
    language: str | None = None,
    south: bool = False,
    off: Collection[str] = (),
    in_names: Callable[[str], bool] = lambda text: False,
    is_name: Callable[[str, Periods], bool] = lambda text, periods: False,
) -> Understood:
    """Take the dates and places out of a query.

    Args:
        text: The query.
        today: What "yesterday" counts from.
        places: The stored names of the library's places by the names that a query may have.
        language: The query's language if it is known.
        south: Seasons are those of the southern hemisphere.
        off: Signals that are switched off.
        in_names: Returns whether names of files have the words of a place: then what was taken
            there, perhaps without a coordinate, gains rank, and nothing is left out.
        is_name: Returns whether a text is the name of files or folders, rather than words and
            dates: ``2023 Paris`` is then that folder.

    Returns:
        What is left, and the filters.
    """
    dates = [] if "dates" in off else find_dates(text, today, language=language, south=south)
    explicit = [one for one in dates if one.explicit]
    cut = [(one.start, one.end) for one in explicit]
    parts = [Part("date", one.text, one.label, *_single(one)) for one in explicit]
    periods = [
        (first.isoformat(), last.isoformat()) for one in explicit for first, last in one.periods
    ]
    matches = [] if "places" in off or not places else _find_places(text, places, cut)
    names: list[str] = []
    ranked: list[tuple[str, tuple[str, ...]]] = []
    for start, end, shown, place_names in matches:
        cut.append((start, end))
        if in_names(shown):
            ranked.append((shown, tuple(place_names)))
            continue
        parts.append(Part("place", shown, place_names[0] if len(place_names) == 1 else shown))
        names += [name for name in place_names if name not in names]
    rest = _without(text, cut) if cut else text
    without_dates = _without(text, [(one.start, one.end) for one in explicit])
    # Of "photos from 2023" nothing but the date is left to be in a name.
    if without_dates and is_name(text, periods if query_words(without_dates) else ()):
        return Understood(text, rest=text, ranked_places=tuple(ranked), name=text)
    return Understood(
        rest or text,
        tuple(parts),
        tuple(periods) or None,
        tuple(names) or None,
        tuple(one for one in dates if not one.explicit),
        rest,
        tuple(ranked),
    )


def _single(phrase: DatePhrase) -> tuple[str | None, str | None]:
    if len(phrase.periods) != 1:
        return None, None
    first, last = phrase.periods[0]
    return first.isoformat(), last.isoformat()


def _find_places(
    text: str, places: Mapping[str, Sequence[str]], cut: Sequence[tuple[int, int]]
) -> list[tuple[int, int, str, Sequence[str]]]:
    """Return start, end, words and stored names of the places in a query; the longest names."""
    folded = Folded.of(text)
    matches: list[tuple[int, int, str, Sequence[str]]] = []

    def add(start: int, end: int, shown: str, names: Sequence[str]) -> None:
        taken = [*cut, *((one[0], one[1]) for one in matches)]
        if not any(start < other_end and other < end for other, other_end in taken):
            matches.append((start, end, shown, names))

    if _NO_SPACES.search(folded.text):
        spelled = [name for name in places if _NO_SPACES.search(name) and name in folded.text]
        for name in sorted(spelled, key=len, reverse=True):
            if len(name) >= 2:
                start, end = folded.span(place := folded.text.index(name), place + len(name))
                lead = start - (start > 0 and text[start - 1] in "在从到於于")
                add(lead, end, text[start:end], places[name])
    words = list(_WORD.finditer(folded.text))
    for count in range(min(_MAX_WORDS, len(words)), 0, -1):
        for first in range(len(words) - count + 1):
            chosen = words[first : first + count]
            name = re.sub(r"\s+", " ", folded.text[chosen[0].start() : chosen[-1].end()])
            led = first > 0 and words[first - 1].group() in _LEADS
            names = places.get(name)
            if names is None and led and words[first - 1].group() in _CZECH_LEADS:
                names = next((places[form] for form in _nominatives(name) if form in places), None)
            if names is None:
                continue
            start, end = folded.span(chosen[0].start(), chosen[-1].end())
            if count == 1 and not _is_place(text[start:end], led, first == 0, len(words) == 1):
                continue
            whole = folded.span(words[first - 1].start(), chosen[-1].end()) if led else (start, end)
            add(*whole, text[start:end], names)
    return sorted(matches, key=lambda one: one[0])


def _nominatives(name: str) -> list[str]:
    """Return what a folded Czech name in another case may be the form of: praze of praha."""
    return [
        name.removesuffix(ending) + other
        for ending, other in _CZECH_ENDINGS
        if name.endswith(ending) and len(name) > len(ending) + 2
    ]


def _is_place(word: str, led: bool, first: bool, alone: bool) -> bool:
    """Return whether a name of one word is meant as a place.

    Args:
        word: As it is written.
        led: After a preposition.
        first: At the beginning of the query, where anything may have a capital.
        alone: All of the query.

    Returns:
        Whether it is.
    """
    if fold(word) in _ORDINARY:
        return word[:1].isupper() and (led or alone)
    has_case = word.lower() != word.upper()
    return led or alone or not has_case or word[:1].isupper() or (len(word) >= 4 and not first)


def _without(text: str, cut: Sequence[tuple[int, int]]) -> str:
    """Return a text without some parts, and without what separated them."""
    pieces, place = [], 0
    for start, end in sorted(cut):
        pieces.append(text[place:start])
        place = end
    pieces.append(text[place:])
    return " ".join(stripped for piece in pieces if (stripped := piece.strip(_EDGES)))
