"""Name the place of a coordinate, and find the places that a query names, without a network.

The table beside this file has 69,000 cities of GeoNames (https://www.geonames.org, CC BY 4.0) with
their names in many languages, and countries by CLDR's names; ``tools/gazetteer.py`` writes it.
A place is written as ``Paris, France``.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from polyglance.search.signals.folding import fold

MAX_KILOMETRES = 100.0
"""Farther from any city, a picture has no place."""
RADIUS = 0.006
"""Kilometres that a city reaches, by the square root of its people: 9 for Paris."""
EARTH = 6371.0
_CELL = 1.0
"""Degrees of the cells in which cities are looked up."""


@dataclass(frozen=True, slots=True)
class Place:
    """A city, or a country."""

    name: str
    """As it is stored: ``Paris, France``, or ``France``."""
    aliases: tuple[str, ...]
    """Its folded names in many languages, its own first."""
    country: str
    """Two letters."""
    latitude: float | None = None
    longitude: float | None = None
    people: int = 0

    def reaches(self, other: Place) -> bool:
        """Return whether a city is one that somebody may mean by this name."""
        if self.latitude is None or self.longitude is None:
            return self.country == other.country
        if other.latitude is None or other.longitude is None:
            return False
        distance = float(
            _kilometres(
                _on_sphere(self.latitude, self.longitude)[None],
                _on_sphere(other.latitude, other.longitude),
            )[0]
        )
        return distance <= max(2.0, 2 * RADIUS * self.people**0.5) and other.people <= self.people


class Gazetteer:
    """The table of places; about 0.1 s to read."""

    def __init__(self, text: str) -> None:
        """Read the lines of the table."""
        self._text = f"\n{text}"
        self._countries: dict[str, Place] = {}
        self._codes: dict[str, str] = {}
        for line in text[: text.index("\n", text.rindex("\n@") + 1)].split("\n"):
            code, name, others = line[1:].split("\t")
            aliases = (fold(name), *filter(None, others.split("|")))
            self._countries[code] = Place(name, aliases, code)
            self._codes[name] = code
        self._cities: _Cities | None = None

    def place(self, name: str) -> Place | None:
        """Return the place with a stored name, or None if it is not in the table."""
        if name in self._codes:
            return self._countries[self._codes[name]]
        city, separator, country = name.rpartition(", ")
        code = self._codes.get(country)
        start = self._text.find(f"\n{city}\t{code}\t") if separator and code else -1
        if start < 0:
            return None
        return self._parse(self._text[start + 1 : self._text.index("\n", start + 1)])

    def country(self, code: str) -> Place | None:
        """Return the country with a code of two letters."""
        return self._countries.get(code)

    def nearest(self, latitude: float, longitude: float) -> str | None:
        """Return the name of the city at a coordinate, in degrees; None far from any."""
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            return None
        if self._cities is None:
            self._cities = _Cities(self._text)
        line = self._cities.nearest(round(latitude, 3), round(longitude, 3))
        return None if line is None else self._parse(line).name

    def _parse(self, line: str) -> Place:
        name, code, latitude, longitude, people, others = line.split("\t")
        return Place(
            f"{name}, {self._countries[code].name}",
            (fold(name), *filter(None, others.split("|"))),
            code,
            float(latitude),
            float(longitude),
            int(people),
        )


class _Cities:
    """Cities by the cell of the globe that they are in."""

    def __init__(self, text: str) -> None:
        self._lines = [line for line in text.split("\n") if line and not line.startswith("@")]
        parts = [line.split("\t", 5)[2:5] for line in self._lines]
        table = np.array(parts, np.float64)
        self._points = _on_sphere(table[:, 0], table[:, 1])
        self._reach = RADIUS * np.sqrt(table[:, 2])
        cells = np.floor(table[:, :2] / _CELL).astype(np.int64)
        self._cells: dict[tuple[int, int], list[int]] = {}
        for city, (row, column) in enumerate(cells.tolist()):
            self._cells.setdefault((row, column), []).append(city)
        self.nearest = lru_cache(maxsize=65536)(self._nearest)

    def _nearest(self, latitude: float, longitude: float) -> str | None:
        row, column = int(latitude // _CELL), int(longitude // _CELL)
        # Degrees of longitude are shorter near the poles.
        wide = min(180, int(1 / max(0.01, np.cos(np.radians(latitude)))) + 1)
        width = int(360 / _CELL)
        near = [
            city
            for north in (-1, 0, 1)
            for east in range(-wide, wide + 1)
            for city in self._cells.get(
                (row + north, (column + east + width // 2) % width - width // 2), ()
            )
        ]
        if not near:
            return None
        distances = _kilometres(self._points[near], _on_sphere(latitude, longitude))
        best = int(np.argmin(distances - self._reach[near]))
        return self._lines[near[best]] if distances[best] <= MAX_KILOMETRES else None


def _on_sphere(
    latitude: float | NDArray[np.float64], longitude: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return unit vectors, ``[..., 3]``."""
    north, east = np.radians(latitude), np.radians(longitude)
    return np.stack(
        [np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1
    )


def _kilometres(points: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    distances: NDArray[np.float64] = EARTH * np.arccos(np.clip(points @ point, -1, 1))
    return distances


@cache
def gazetteer() -> Gazetteer:
    """Return the table of places, read once."""
    packed = (files("polyglance.search.signals") / "gazetteer.tsv.gz").read_bytes()
    return Gazetteer(gzip.decompress(packed).decode())


def names_of_places(places: Iterable[str]) -> dict[str, list[str]]:
    """Return the places of a library by every name that a query may have for them.

    Args:
        places: The names of the places that the library has.

    Returns:
        By folded name: the library's names of that city and of those within its reach, or of all
        cities of that country.
    """
    table = gazetteer()
    listed = [place for name in places if (place := table.place(name)) is not None]
    areas = {place.name: place for place in listed}
    for place in listed:
        country = table.country(place.country)
        if country is not None:
            areas.setdefault(country.name, country)
    names: dict[str, list[str]] = {}
    # The largest of a name first: Paris in France before Paris in Texas.
    for area in sorted(areas.values(), key=lambda one: (one.latitude is not None, -one.people)):
        inside = [place.name for place in listed if place.name == area.name or area.reaches(place)]
        for alias in area.aliases:
            names.setdefault(alias, inside)
    return names
