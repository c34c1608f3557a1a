"""Days of feasts: fixed ones, and movable ones by computation."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from typing import TypeAlias

Period: TypeAlias = tuple[date, date]
"""First and last day."""


def easter(year: int) -> date:
    """Return Easter Sunday of a Gregorian year (the anonymous algorithm of Meeus, chapter 8)."""
    golden, (century, rest) = year % 19, divmod(year, 100)
    leap, odd = divmod(century, 4)
    correction = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - leap - correction + 15) % 30
    quarter, odd_year = divmod(rest, 4)
    weekday = (32 + 2 * odd + 2 * quarter - epact - odd_year) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def islamic_month(year: int, month: int) -> list[Period]:
    """Return the beginnings and ends of a month of the tabular Islamic calendar in a year.

    The tables differ from what is seen in the sky by a day at most.

    Args:
        year: A Gregorian year.
        month: 1 to 12; Ramadan is 9.

    Returns:
        One period, or two in years in which the month begins twice.
    """
    found = []
    about = (year - 622) * 33 // 32
    for hijri in range(about - 1, about + 3):
        first = _islamic_date(hijri, month)
        last = _islamic_date(hijri + (month == 12), month % 12 + 1) - timedelta(1)
        if first.year == year:
            found.append((first, last))
    return found


def _islamic_date(year: int, month: int) -> date:
    """Return the first day of a month of the tabular calendar, whose epoch is 19 July 622."""
    days = (year - 1) * 354 + (3 + 11 * year) // 30 + math.ceil(29.5 * (month - 1))
    return date.fromordinal(227_015 + days)


@cache
def chinese_new_year(year: int) -> date:
    """Return the first day of the Chinese year: the second new moon after the winter solstice.

    That holds unless a leap month follows the eleventh or twelfth, next in 2034.
    """
    thousands = (year - 2001) / 1000
    # Meeus, chapter 27, without its periodic terms, which shift it by minutes.
    solstice = _in_beijing(2451900.05952 + 365242.74049 * thousands - 0.06223 * thousands**2)
    number = _moon_before(solstice)
    moons = [_new_moon(number + later) for later in range(6)]
    return [moon for moon in moons if moon > solstice][1 + (year == 2034)]


def _moon_before(day: date) -> int:
    """Return the number of a new moon shortly before a day, counted from January 2000."""
    return int((day - date(2000, 1, 6)).days / 29.530588861) - 2


def _new_moon(number: int) -> date:
    """Return the day in Beijing of a new moon (Meeus, chapter 49, its largest terms)."""
    t = number / 1236.85
    jde = 2451550.09766 + 29.530588861 * number + 0.00015437 * t * t
    sun = math.radians(2.5534 + 29.10535670 * number)
    moon = math.radians(201.5643 + 385.81693528 * number + 0.0107582 * t * t)
    latitude = math.radians(160.7108 + 390.67050284 * number - 0.0016118 * t * t)
    jde += (
        -0.40720 * math.sin(moon)
        + 0.17241 * math.sin(sun)
        + 0.01608 * math.sin(2 * moon)
        + 0.01039 * math.sin(2 * latitude)
        + 0.00739 * math.sin(moon - sun)
        - 0.00514 * math.sin(moon + sun)
        + 0.00208 * math.sin(2 * sun)
    )
    return _in_beijing(jde)


def _in_beijing(jde: float) -> date:
    # 1721424.5 is the Julian day of the ordinal 0; clocks differ from dynamical time by 70 s.
    return date.fromordinal(math.floor(jde - 70 / 86400 + 8 / 24 - 1721424.5))


def _days(month: int, first: int, last: int) -> Callable[[int], list[Period]]:
    return lambda year: [(date(year, month, first), date(year, month, last))]


def _around_easter(first: int, last: int) -> Callable[[int], list[Period]]:
    return lambda year: [
        (easter(year) + timedelta(first), easter(year) + timedelta(last)),
    ]


def _thanksgiving(year: int) -> list[Period]:
    first = date(year, 11, 1)
    thursday = first + timedelta((3 - first.weekday()) % 7 + 21)
    return [(thursday, thursday + timedelta(3))]


def _eid(month: int, day: int, days: int) -> Callable[[int], list[Period]]:
    def periods(year: int) -> list[Period]:
        return [
            (first + timedelta(day - 1), first + timedelta(day - 1 + days))
            for first, _ in islamic_month(year, month)
        ]

    return periods


def _new_years_eve(year: int) -> list[Period]:
    return [(date(year, 12, 31), date(year + 1, 1, 1))]


def _spring_festival(year: int) -> list[Period]:
    first = chinese_new_year(year)
    return [(first - timedelta(1), first + timedelta(7))]


FEASTS: dict[str, Callable[[int], list[Period]]] = {
    "christmas": _days(12, 24, 26),
    "christmas_eve": _days(12, 24, 24),
    "new_years_eve": _new_years_eve,
    "new_year": _days(1, 1, 1),
    "easter": _around_easter(-2, 1),
    "easter_sunday": _around_easter(0, 0),
    "good_friday": _around_easter(-2, -2),
    "pentecost": _around_easter(48, 50),
    "carnival": _around_easter(-52, -46),
    "halloween": _days(10, 31, 31),
    "valentine": _days(2, 14, 14),
    "thanksgiving": _thanksgiving,
    "ramadan": lambda year: islamic_month(year, 9),
    "eid_al_fitr": _eid(10, 1, 2),
    "eid_al_adha": _eid(12, 10, 3),
    "chinese_new_year": _spring_festival,
}
"""The days of each feast that begin in a year."""


def season_periods(season: int, year: int, *, south: bool = False) -> list[Period]:
    """Return the meteorological seasons that a year's name can mean.

    Args:
        season: 0 for spring to 3 for winter.
        year: The year.
        south: In the southern hemisphere.

    Returns:
        Three months; of a season that spans New Year, what lies in the year and what begins in it.
    """
    first = (3 * season + 3 + 6 * south - 1) % 12 + 1
    if first < 12:
        return [(date(year, first, 1), _month_end(year, first + 2))]
    return [
        (date(year, 1, 1), _month_end(year, 2)),
        (date(year, 12, 1), _month_end(year + 1, 2)),
    ]


def month_period(year: int, month: int) -> Period:
    """Return the first and last day of a month."""
    return date(year, month, 1), _month_end(year, month)


def _month_end(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1) - timedelta(1)
