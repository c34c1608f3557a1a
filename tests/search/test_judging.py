"""Probabilities and the fold of search results, by a calibration of plain colours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.colour_encoder import ColourEncoder, write_image
from polyglance.encoders.calibration import (
    NUM_COEFFICIENTS,
    PEOPLE,
    POOLED,
    Background,
    Calibration,
)
from polyglance.search.library import Library
from polyglance.search.query_syntax import Weighted
from polyglance.search.results import SearchResults

COLOURS = ("red", "green", "blue", "white")


class CalibratedColours(ColourEncoder):
    """Colours whose probability depends on the cosine and the spelling alone: 0.5 at 0.8."""

    def __init__(self) -> None:
        super().__init__("calibrated colours")
        background = Background.of(self.encode_texts(COLOURS), len(COLOURS))
        coefficients = np.zeros(NUM_COEFFICIENTS)
        coefficients[0], coefficients[5], coefficients[-1] = 20.0, -100.0, -16.0
        self.calibration = Calibration(
            background,
            {POOLED: coefficients},
            {POOLED: 0.5},
            {PEOPLE: self.encode_texts(["blue"])[0]},
        )

    def surprisal(self, text: str) -> float:
        return 4.0 if "x" in text else 2.0


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A library of four colours, which no test changes."""
    folder = tmp_path_factory.mktemp("colours")
    for colour in COLOURS:
        write_image(folder / "photos" / f"{colour}.png", colour)
    with Library(folder / "my.polyglance", model=CalibratedColours()) as library:
        library.add(folder / "photos")
        yield library


def names(results: SearchResults) -> list[str]:
    return [hit.path.stem for hit in results]


def test_hits_above_the_fold_are_marked(colours: Library) -> None:
    results = colours.search("red", off=["names"])
    assert names(results)[0] == "red"
    assert results.fold == 1
    assert [hit.above_fold for hit in results] == [True, False, False, False]
    assert results[0].probability == pytest.approx(1 / (1 + np.exp(-4)), abs=1e-3)
    assert not results.nothing_fits
    values = results[0].to_json()
    assert (values["above_fold"], round(values["probability"], 2)) == (True, 0.98)
    json.dumps(values)


def test_nonsense_fits_nothing(colours: Library) -> None:
    results = colours.search("xxx", off=["names"])
    assert (results.fold, results.nothing_fits, len(results)) == (0, True, 4)
    assert colours.search("xxx", min_score=0.5, off=["names"]) == []


def test_a_page_counts_its_own_hits_above_the_fold(colours: Library) -> None:
    assert colours.search("red", k=1, off=["names"]).fold == 1
    assert colours.search("red", k=2, offset=1, off=["names"]).fold == 0


def test_names_of_files_count_as_much_as_they_do_in_the_ranking(colours: Library) -> None:
    [named] = colours.search("red", k=1)
    [seen] = colours.search("red", k=1, off=["names"])
    assert named.probability is not None
    assert seen.probability is not None
    assert named.probability > seen.probability


def test_names_are_certain_where_no_pixels_fit(tmp_path: Path) -> None:
    for path in ("Oma Geburtstag/1.png", "Oma Geburtstag/2.png", "red things/3.png", "IMG_7.png"):
        write_image(tmp_path / "photos" / path, "green")
    for number in range(4):
        write_image(tmp_path / "photos" / "other" / f"{number}x.png", "red")
    with Library(tmp_path / "my.polyglance", model=CalibratedColours()) as library:
        library.add(tmp_path / "photos")
        found = library.search("oma", k=9)
        assert [hit.path.parent.name for hit in found[:2]] == ["Oma Geburtstag"] * 2
        assert [hit.probability for hit in found[:2]] == [1.0, 1.0]
        assert found.fold == 2
        without = library.search("oma -blue", k=9, language="en")
        assert all((hit.probability or 0) < 1 for hit in without)  # a name does not show it
        partly = library.search("oma xyz", k=9)  # one of the two words is not in the name
        assert partly.fold == 0
        # What can be seen is judged by what is to be seen, with the name beside it.
        seen = library.search("red", k=9)
        assert "other" in [hit.path.parent.name for hit in seen if hit.above_fold]
        assert all(hit.probability is not None and hit.probability < 1 for hit in seen)
        [first, *others] = library.search("img_7.png", k=9)
        assert (first.path.name, first.probability, first.above_fold) == ("IMG_7.png", 1.0, True)
        assert not any(hit.above_fold for hit in others)


def test_probabilities_do_not_depend_on_how_many_hits_are_shown(tmp_path: Path) -> None:
    for number in range(40):
        colour = COLOURS[number % 4]
        write_image(tmp_path / "photos" / f"{'red' if number % 3 else 'x'} {number}.png", colour)
    with Library(tmp_path / "my.polyglance", model=CalibratedColours()) as library:
        library.add(tmp_path / "photos")
        for query in ("red", "white -red", "red blue"):
            shown = [library.search(query, k=k, language="en") for k in (1, 5, 40)]
            found = [{hit.path: hit.probability for hit in hits} for hits in shown]
            assert found[0].items() <= found[1].items() <= found[2].items(), query


def test_exclusions_lower_the_probability(colours: Library) -> None:
    plain = colours.search("white", off=["names"])
    without = colours.search("white -red", language="en", off=["names"])
    assert without.excluded == ("red",)
    assert names(without)[-1] == "red"
    assert plain[0].probability is not None
    assert without[0].probability is not None
    assert without[0].probability < plain[0].probability


def test_a_query_that_only_excludes_is_matched_by_all_else(colours: Library) -> None:
    results = colours.search("without red", language="en", off=["names"])
    assert names(results)[-1] == "red"
    assert [hit.above_fold for hit in results] == [True, True, True, False]
    assert results.fold == 3


def test_people_are_excluded_by_their_direction(colours: Library) -> None:
    assert names(colours.search("without people", language="en", off=["names"]))[-1] == "blue"


def test_what_is_unlike_people_fits_no_better_without_them(
    colours: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder: Any = colours._encoder()
    unlike_green = {PEOPLE: -encoder.encode_texts(["green"])[0]}
    changed = replace(encoder.calibration, directions=unlike_green)
    monkeypatch.setattr(encoder, "calibration", changed)
    plain = {hit.path: hit.probability for hit in colours.search("red", off=["names"])}
    without = colours.search("red without people", language="en", off=["names"])
    assert without.excluded == ("people",)
    assert [hit.probability for hit in without] == pytest.approx([plain[h.path] for h in without])


def test_pictures_have_no_probability(colours: Library) -> None:
    results = colours.search("red", picture=np.full((4, 4, 3), 255, np.uint8))
    assert (results.fold, results[0].probability, results[0].above_fold) == (None, None, None)


def test_weights_move_the_query(colours: Library) -> None:
    red, blue = (colours.vector(colours.search(name)[0]) for name in ("red", "blue"))
    both = colours.search(picture=[Weighted(red, 3.0), blue])
    assert names(both)[0] == "red"
    assert names(colours.search(picture=[red, Weighted(blue, 3.0)]))[0] == "blue"
    assert names(colours.search("red^3 blue", off=["names"]))[0] == "red"
    assert names(colours.search("red blue^3", off=["names"]))[0] == "blue"


def test_without_a_calibration_scores_are_cosines(tmp_path: Path) -> None:
    write_image(tmp_path / "red.png", "red")
    with Library(tmp_path / "raw.polyglance", model=ColourEncoder()) as library:
        library.add(tmp_path / "red.png")
        results = library.search("red")
        assert (results.fold, results[0].probability) == (None, None)
        assert "probability" not in results[0].to_json()
        assert library.search("red", min_score=0.99)
        assert not library.search("green", min_score=0.99, off=["names"])
