from __future__ import annotations

from datetime import date

import pytest

from polyglance.search.signals.calendar import FEASTS, chinese_new_year, easter, islamic_month
from polyglance.search.signals.dates import find_dates

TODAY = date(2026, 11, 17)


def periods(text: str, *, south: bool = False) -> list[str]:
    """Return the explicit dates of a text, as first..last."""
    return [
        f"{first}..{last}"
        for phrase in find_dates(text, TODAY, south=south)
        if phrase.explicit
        for first, last in phrase.periods
    ]


SUMMER_2023 = ["2023-06-01..2023-08-31"]
LAST_SUMMER = ["2026-06-01..2026-08-31"]
LAST_CHRISTMAS = ["2025-12-24..2025-12-26"]
YESTERDAY = ["2026-11-16..2026-11-16"]


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        (SUMMER_2023, "summer 2023;a dog in the summer of 2023;im Sommer 2023;été 2023;"
         "en été 2023;no verão de 2023;v létě 2023;léto 2023;صيف 2023;في صيف عام 2023;"
         "2023年夏天;2023年夏天的狗"),
        (LAST_SUMMER, "last summer;letzten Sommer;l'été dernier;no verão passado;minulé léto;"
         "الصيف الماضي;上个夏天"),
        (LAST_CHRISTMAS, "last Christmas;letzte Weihnachten;Noël dernier;Natal passado;"
         "minulé Vánoce;عيد الميلاد الماضي;去年圣诞节"),
        (YESTERDAY, "yesterday;gestern;hier;ontem;včera;أمس;昨天"),
        (["2026-11-14..2026-11-14"], "3 days ago;vor 3 Tagen;il y a 3 jours;há 3 dias;před 3 dny;"
         "قبل 3 أيام;3天前;三天前"),
        (["2026-11-09..2026-11-15"], "last week;letzte Woche;la semaine dernière;semana passada;"
         "minulý týden;الأسبوع الماضي;上周"),
        (["2025-01-01..2025-12-31"], "last year;letztes Jahr;l'année dernière;ano passado;loni;"
         "العام الماضي;去年"),
        (["2023-07-03..2023-07-03"], "3 July 2023;July 3, 2023;3. Juli 2023;3 juillet 2023;"
         "3 de julho de 2023;3. července 2023;3 يوليو 2023;2023年7月3日;2023-07-03;3.7.2023"),
        (["2024-03-29..2024-04-01"], "Easter 2024;Ostern 2024;Pâques 2024;Páscoa de 2024;"
         "o Velikonocích 2024;عيد الفصح 2024;2024年复活节"),
        (["2023-01-01..2023-02-28", "2023-12-01..2024-02-29"], "winter 2023;Winter 2023"),
        (["2019-01-01..2021-12-31"], "2019-2021;from 2019 to 2021;2019 bis 2021;de 2019 à 2021"),
        (["1990-01-01..1999-12-31"], "1990s;die 1990er"),
        (["2025-06-01..2025-08-31"], "loni v létě;去年夏天;summer last year"),
    ],
)  # fmt: skip
def test_dates_are_understood_in_seven_languages(expected: list[str], texts: str) -> None:
    assert {text: periods(text) for text in texts.split(";")} == dict.fromkeys(
        texts.split(";"), expected
    )


@pytest.mark.parametrize(
    "text",
    [
        "a Christmas tree", "winter coat", "a man in winter clothes", "children fall",
        "il a été vu", "may", "IMG_2019_x", "a march of soldiers", "three dogs", "1234",
    ],
)  # fmt: skip
def test_words_that_may_be_something_else_are_no_filter(text: str) -> None:
    assert periods(text) == []


def test_a_feast_without_a_year_is_a_hint_for_every_year() -> None:
    [hint] = find_dates("Kinder an Weihnachten", TODAY)
    assert not hint.explicit
    assert hint.text == "Weihnachten"
    assert (date(2011, 12, 24), date(2011, 12, 26)) in hint.periods


def test_seasons_of_the_southern_hemisphere_are_the_other_way_round() -> None:
    assert periods("winter 2023", south=True) == SUMMER_2023
    assert periods("last summer", south=True) == ["2025-12-01..2026-02-28"]


def test_the_place_of_a_date_in_the_text_is_that_of_its_words() -> None:
    text = "Ein Mädchen im Frühjahr 2019, lachend"
    [phrase] = find_dates(text, TODAY)
    assert text[phrase.start : phrase.end] == phrase.text == "im Frühjahr 2019"
    assert phrase.label == "2019-03-01 – 2019-05-31"


def test_the_language_decides_where_words_differ_and_3_7_may_be_july_or_march() -> None:
    assert periods("3/7/2023") == ["2023-07-03..2023-07-03", "2023-03-07..2023-03-07"]
    assert periods("31/7/2023") == ["2023-07-31..2023-07-31"]
    assert periods("31 February 2023") == ["2023-02-01..2023-02-28"]


def test_movable_feasts_are_on_the_days_of_almanacs() -> None:
    assert [easter(year).isoformat()[5:] for year in (1961, 2000, 2019, 2024, 2038)] == [
        "04-02", "04-23", "04-21", "03-31", "04-25",
    ]  # fmt: skip
    spring_festivals = "02-14 02-03 01-23 02-10 01-31 02-19 02-08 01-28 02-16 02-05 01-25 02-12"
    years = range(2010, 2022)
    assert " ".join(chinese_new_year(year).isoformat()[5:] for year in years) == spring_festivals
    assert [islamic_month(year, 9)[0][0].isoformat() for year in (2023, 2024, 2025)] == [
        "2023-03-23", "2024-03-11", "2025-03-01",
    ]  # fmt: skip
    assert len(islamic_month(2030, 9)) == 2  # Ramadan begins twice
    assert FEASTS["thanksgiving"](2023)[0][0] == date(2023, 11, 23)
