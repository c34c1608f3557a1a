"""Recognise dates in the words of a query: "summer 2023", "letzte Weihnachten", "昨天".

A grammar of our own for the seven languages of the web page (`date_words`): years, months, days,
seasons, feasts, and all of these with "last", "this" or a year; relative days; numbers of days,
weeks, months and years ago; ranges of years. A general parser of dates gives one moment for a
text, where a photo search needs the period that somebody means, and its words.

An explicit date ("in July 2023") becomes a filter and leaves the query. A season, month or feast
alone ("winter coat", "Christmas tree") may describe what is to be seen: it stays in the query, and
pictures of that time of any year only gain some rank (`DatePhrase.explicit`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache, cached_property, lru_cache

from polyglance.search.signals.calendar import FEASTS, Period, month_period, season_periods
from polyglance.search.signals.date_words import WORDS, DateWords
from polyglance.search.signals.folding import Folded, fold

LANGUAGES = tuple(WORDS)
NUM_YEARS = 50
"""How far back a date without a year is looked for."""
FIRST_YEAR = 1826
"""The year of the first photograph."""
_YEAR = r"(?:18[2-9]\d|19\d\d|20\d\d)"
_UNITS = ("day", "week", "month", "year", "weekend")
_AMBIGUOUS = frozenset(("fall", "spring", "ete"))
"""Names of seasons that mean something else, too; months are taken for dates after "in" alone."""
_NUMBERS = r"\d{1,3}"
_NUMERIC = re.compile(
    rf"(?<![\w.-])(?:(?P<iso>{_YEAR}-\d\d(?:-\d\d)?)|(?P<dots>\d?\d\.\s?\d?\d\.\s?{_YEAR})"
    rf"|(?P<slashes>\d?\d/\d?\d/{_YEAR})|(?P<decade>(?:1[89]|20)\d0)(?:s|er)\b"
    rf"|(?P<from>{_YEAR})\s?[-–]\s?(?P<to>{_YEAR}))(?![\w-])"
)


@dataclass(frozen=True, slots=True)
class DatePhrase:
    """A date in the words of a query."""

    start: int
    end: int
    """Where it is in the query."""
    text: str
    """Its words."""
    periods: tuple[Period, ...]
    """First and last days; of a date in any year, those of all years until now."""
    explicit: bool
    """Whether it can only be a date."""

    @property
    def label(self) -> str:
        """The first and last day, or the words if there are many."""
        if len(self.periods) != 1:
            return self.text
        first, last = self.periods[0]
        return first.isoformat() if first == last else f"{first} – {last}"


@dataclass(frozen=True, slots=True)
class _Named:
    """A month, season or feast."""

    kind: str
    value: int | str

    def periods(self, year: int, *, south: bool) -> list[Period]:
        """Return its days in a year; none where the calendar ends."""
        if not FIRST_YEAR <= year < 2100:
            return []
        if self.kind == "month":
            return [month_period(year, int(self.value))]
        if self.kind == "season":
            return season_periods(int(self.value), year, south=south)
        return FEASTS[str(self.value)](year)

    def latest(self, today: date, *, south: bool) -> list[Period]:
        """Return the latest one that is over."""
        years = range(today.year - 2, today.year + 1)
        found = [period for year in years for period in self.periods(year, south=south)]
        # Winter is given in two parts, of which only those that begin in the year are whole.
        whole = [period for period in found if not (self.kind == "season" and _is_rest(period))]
        return [max(period for period in whole if period[1] < today)]


def _is_rest(period: Period) -> bool:
    return period[0].month == 1 and (period[1] - period[0]).days < 80


def find_dates(
    text: str, today: date, *, language: str | None = None, south: bool = False
) -> list[DatePhrase]:
    """Find the dates in a query.

    Args:
        text: The query.
        today: What "yesterday" and "last" count from.
        language: The query's language if it is known; its words are tried first.
        south: Seasons are those of the southern hemisphere.

    Returns:
        Dates that do not overlap, in the order of the text; the longest where several fit.
    """
    folded = Folded.of(text)
    order = sorted(LANGUAGES, key=lambda code: code != (language or "").split("-")[0])
    found = [
        (priority, match)
        for priority, code in enumerate(order)
        for match in _grammar(code).matches(folded.text, today, south)
    ]
    found += [(0, match) for match in _numeric(folded.text)]
    # The longest; of equal ones an explicit one, then the query's language.
    found.sort(key=lambda one: (one[1].start - one[1].end, not one[1].explicit, one[0]))
    chosen: list[DatePhrase] = []
    for _, match in found:
        if match.periods and not any(
            match.start < other.end and other.start < match.end for other in chosen
        ):
            chosen.append(match)
    placed = [(folded.span(match.start, match.end), match) for match in chosen]
    return [
        DatePhrase(start, end, text[start:end].strip(), match.periods, match.explicit)
        for (start, end), match in sorted(placed, key=lambda one: one[0])
    ]


@cache
def _grammar(code: str) -> _Grammar:
    return _Grammar(WORDS[code])


def _alternatives(words: str) -> list[str]:
    """Return the folded alternatives, longest first, as patterns."""
    folded = {fold(word) for word in words.split("|") if word}
    return [
        re.escape(word).replace(r"\ ", r"\s+") for word in sorted(folded, key=len, reverse=True)
    ]


class _Grammar:
    """The patterns of one language."""

    def __init__(self, words: DateWords) -> None:
        self._words, self._spaced = words, words.spaced
        self._names: dict[str, _Named] = {}
        for kind, listed in (("month", words.months), ("season", words.seasons)):
            for number, names in enumerate(listed.split(";"), kind == "month"):
                self._add(kind, number, names)
        for feast, names in words.feasts.items():
            self._add("feast", feast, names)
        self._unit_names = {
            fold(name): unit
            for unit, names in zip(_UNITS, words.units.split(";"), strict=True)
            for name in names.split("|")
        }
        days = (words.today, words.yesterday, words.before_yesterday)
        relative = "|".join((words.last_year, words.this_year, *days)).split("|")
        dated = [*self._names, *self._unit_names, *map(fold, relative)]
        self._first_words = {word.split()[0] for word in dated if word.strip()}

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], _Handler]]:
        return list(self._compile())

    def _add(self, kind: str, value: int | str, names: str) -> None:
        for name in names.split("|"):
            self._names.setdefault(fold(name), _Named(kind, value))

    def _compile(self) -> Iterator[tuple[re.Pattern[str], _Handler]]:
        words = self._words
        gap = r"\s+" if self._spaced else r"\s*"
        edge = r"\w" if self._spaced else r"[\da-z_]"
        begin, end = f"(?<!{edge})", f"(?!{edge})"
        named = "(?P<named>" + "|".join(_alternatives("|".join(self._names))) + ")"
        unit = "(?P<unit>" + "|".join(_alternatives("|".join(self._unit_names))) + ")"
        year = rf"(?P<year>{_YEAR})" + ("" if self._spaced else r"\s*年?")
        joined = "(?:" + "|".join(_alternatives(words.of)) + ")"
        join = rf"(?:\.?{gap}(?:{joined}{gap})*|\s*,\s*)" if self._spaced else rf"\s*{joined}?\s*"
        elision = r"\s*" if self._spaced else ""
        lead = (
            "(?P<lead>(?:(?:" + "|".join(_alternatives(words.lead)) + rf")(?:{gap}|(?<=')"
            f"{elision}))+)?"
        )
        day = r"(?P<day>\d?\d)(?:st|nd|rd|th|er|o|º|\.|日|号|號)?"

        def pattern(*parts: str) -> re.Pattern[str]:
            return re.compile(begin + lead + "".join(parts) + end)

        def any_of(listed: str) -> str:
            return "(?:" + ("|".join(_alternatives(listed)) or r"(?!)") + ")"

        if self._spaced:
            yield pattern(day, join, named, f"(?:{join}{year})?"), _Grammar._day
            yield pattern(named, gap, day, rf"(?:\s*,?\s*{year})?"), _Grammar._day
        else:
            yield pattern(f"(?:{year})?", named, day[:-1]), _Grammar._day
        yield pattern(named, join, year), _Grammar._in_year
        yield pattern(year, join, named), _Grammar._in_year
        of_last = f"(?:(?P<last>{any_of(words.last_year)})|(?P<this>{any_of(words.this_year)}))"
        if self._spaced:
            yield pattern(named, join, of_last), _Grammar._in_relative_year
            join_lead = rf"{gap}(?:(?:{'|'.join(_alternatives(words.lead))}){gap})?"
            yield pattern(of_last, join_lead, named), _Grammar._in_relative_year
        else:
            yield pattern(of_last, join, named), _Grammar._in_relative_year
        yield pattern(of_last), _Grammar._relative_year
        name_or_unit = f"(?:{unit}|{named})"
        for relative, before, after in (
            ("last", words.last_before, words.last_after),
            ("this", words.this_before, words.this_after),
        ):
            handler = _Grammar._last if relative == "last" else _Grammar._this
            if before:
                yield pattern(any_of(before), gap, name_or_unit), handler
            if after:
                yield pattern(name_or_unit, gap, any_of(after)), handler
        number = rf"(?P<number>{_NUMBERS}|[一二两三四五六七八九十])"
        for template in words.ago.split("|"):
            ago = re.escape(fold(template)).replace(r"\ ", gap)
            ago = ago.replace(r"\{n\}", number).replace(r"\{unit\}", unit)
            yield re.compile(begin + ago + end), _Grammar._ago
        for days, listed in enumerate((words.today, words.yesterday, words.before_yesterday)):
            yield pattern(f"(?P<days{days}>{any_of(listed)})"), _Grammar._days_ago
        first, last = year.replace("year>", "from>"), year.replace("year>", "to>")
        yield pattern(first, gap, any_of(words.until), gap, last), _Grammar._range
        yield pattern(any_of(words.since), gap, year), _Grammar._since
        if words.before:
            yield pattern(any_of(words.before), gap, year), _Grammar._before
        yield pattern(year), _Grammar._year
        yield pattern(named), _Grammar._any_year

    def matches(self, text: str, today: date, south: bool) -> Iterator[DatePhrase]:
        """Yield all dates that the patterns find in a folded text, also overlapping ones."""
        # Each pattern has a year, a name or a unit in it; to compile them takes longer than a
        # search, and most queries have none of these.
        if not any(map(str.isdigit, text)) and not any(word in text for word in self._first_words):
            return
        for pattern, handler in self._patterns:
            for match in pattern.finditer(text):
                periods = handler(self, match, today, south)
                explicit = handler is not _Grammar._any_year
                if periods:
                    start = match.start() if explicit else match.start("named")
                    yield DatePhrase(start, match.end(), "", tuple(periods), explicit)

    def _named(self, match: re.Match[str]) -> _Named:
        return self._names[" ".join(match["named"].split())]

    def _day(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        named = self._named(match)
        if named.kind != "month":
            return []
        years = [int(match["year"])] if match["year"] else _years(today)
        return [
            (day, day) for year in years if (day := _date(year, int(named.value), match["day"]))
        ]

    def _in_year(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return self._named(match).periods(int(match["year"]), south=south)

    def _in_relative_year(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        year = today.year - (match["last"] is not None)
        return self._named(match).periods(year, south=south)

    def _relative_year(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return [_year(today.year - (match["last"] is not None))]

    def _last(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        if match["unit"] is None:
            return self._named(match).latest(today, south=south)
        return _units_ago(self._unit(match), 1, today)

    def _this(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        if match["unit"] is None:
            return self._named(match).periods(today.year, south=south)
        return _units_ago(self._unit(match), 0, today)

    def _unit(self, match: re.Match[str]) -> str:
        return self._unit_names[" ".join(match["unit"].split())]

    def _ago(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        digits = "一二三四五六七八九十"
        number = match["number"].replace("两", "二")
        count = digits.index(number) + 1 if number in digits else int(number)
        return _units_ago(self._unit(match), count, today)

    def _days_ago(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        [name] = match.re.groupindex.keys() - {"lead"}
        day = today - timedelta(int(name.removeprefix("days")))
        return [(day, day)]

    def _range(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return [(date(int(match["from"]), 1, 1), date(int(match["to"]), 12, 31))]

    def _since(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return [(date(int(match["year"]), 1, 1), date(9999, 12, 31))]

    def _before(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return [(date(1, 1, 1), date(int(match["year"]) - 1, 12, 31))]

    def _year(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        return [_year(int(match["year"]))] if int(match["year"]) <= today.year + 1 else []

    def _any_year(self, match: re.Match[str], today: date, south: bool) -> list[Period]:
        named = self._named(match)
        doubtful = named.kind == "month" or match["named"] in _AMBIGUOUS
        if self._spaced and doubtful and (not match["lead"] or len(match["named"]) < 3):
            return []
        return list(_all_years(named, today.year, south))


_Handler = Callable[[_Grammar, "re.Match[str]", date, bool], list[Period]]


@lru_cache(maxsize=1024)
def _all_years(named: _Named, last: int, south: bool) -> tuple[Period, ...]:
    """Return the days of a month, season or feast in all years of photographs."""
    years = range(last - NUM_YEARS, last + 1)
    return tuple(period for year in years for period in named.periods(year, south=south))


def _years(today: date) -> range:
    """Return the years of photographs that a date without a year may mean."""
    return range(today.year - NUM_YEARS, today.year + 1)


def _year(year: int) -> Period:
    return date(year, 1, 1), date(year, 12, 31)


def _date(year: int, month: int, day: str | int) -> date | None:
    try:
        return date(year, month, int(day))
    except ValueError:
        return None


def _units_ago(unit: str, count: int, today: date) -> list[Period]:
    """Return the day, week, weekend, month or year that was so many of them ago."""
    if unit == "day":
        day = today - timedelta(count)
        return [(day, day)]
    if unit in ("week", "weekend"):
        monday = today - timedelta(today.weekday() + 7 * count)
        return [(monday + timedelta(5 * (unit == "weekend")), monday + timedelta(6))]
    if unit == "month":
        months = 12 * today.year + today.month - 1 - count
        return [month_period(months // 12, months % 12 + 1)]
    return [_year(today.year - count)] if today.year - count >= FIRST_YEAR else []


def _numeric(text: str) -> Iterator[DatePhrase]:
    """Yield dates in digits: 2023-07-03, 3.7.2023, 3/7/2023, 1990s, 2019-2021."""
    for match in _NUMERIC.finditer(text):
        periods = list(_numeric_periods(match))
        if periods:
            yield DatePhrase(match.start(), match.end(), "", tuple(periods), True)


def _numeric_periods(match: re.Match[str]) -> Iterator[Period]:
    if match["from"]:
        if match["from"] < match["to"]:
            yield date(int(match["from"]), 1, 1), date(int(match["to"]), 12, 31)
    elif match["decade"]:
        first_year = int(match["decade"])
        yield date(first_year, 1, 1), date(first_year + 9, 12, 31)
    elif match["iso"]:
        parts = [int(part) for part in match["iso"].split("-")]
        if len(parts) == 2 and 1 <= parts[1] <= 12:
            yield month_period(*parts)
        elif len(parts) == 3 and (day := _date(*parts)):
            yield day, day
    else:
        text = match["dots"] or match["slashes"]
        first, second, year = (int(part) for part in re.split(r"[./]\s?", text))
        orders = [(second, first)] if match["dots"] else [(second, first), (first, second)]
        for month, day_number in dict.fromkeys(orders):  # 3/7 is July or March: both
            if day := _date(year, month, day_number):
                yield day, day
