"""Test searching by names, dates, places and texts, in a file and on PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.colour_encoder import ColourEncoder, write_image
from polyglance.errors import PolyglanceError
from polyglance.search.exact import Bonus
from polyglance.search.library import Library
from polyglance.search.query import Hit
from polyglance.search.signals.gazetteer import gazetteer, names_of_places
from polyglance.search.signals.understanding import understand
from polyglance.search.signals.word_index import words_path
from polyglance.search.signals.words import query_words, split_words
from polyglance.search.store import Details, Entry, FileSignature, Item

PLACES = ["Paris, France", "Nice, France", "Munich, Germany", "Beijing, China", "Prague, Czechia"]


@pytest.fixture(params=["a file", "PostgreSQL"])
def album(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Library]:
    """Return a library of colours, in either place."""
    place: str | Path = tmp_path / "my.polyglance"
    if request.param == "PostgreSQL":
        place = request.getfixturevalue("postgres").database()
    with Library(place, model=ColourEncoder()) as library:
        yield library


def put(
    library: Library, path: str, colour: str, taken: str = "2020-05-05T12:00:00", **details: object
) -> None:
    """Store a picture of a colour that has no file."""
    store = library._store(create=True)
    [vector] = ColourEncoder().encode_texts([colour])
    signature = FileSignature(len(path), 1)
    item = Item(path, "picture", signature, path[:32], taken, 4, 4)
    store.put([Entry(item, vector[None], details=Details(**details))])  # type: ignore[arg-type]


def names(hits: list[Hit]) -> list[str]:
    return [hit.path.stem for hit in hits]


def reasons(hit: Hit) -> list[tuple[str, str | None]]:
    return [(one.signal, one.text) for one in hit.why if one.signal != "picture"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("IMG_20230704BeachParty", "img 20230704 beach party"),
        ("XMLFile2Go", "xml file 2 go"),
        ("Geburtstag-Oma (1998)", "geburtstag oma 1998"),
        ("Übergrößen_été", "ubergrossen ete"),
        ("北京旅行2019", "北京 京旅 旅行 2019"),
        ("رحلة٢٠١٩", "رحلة 2019"),
        ("dogs", "dog"),
    ],
)
def test_names_are_taken_apart(name: str, words: str) -> None:
    assert list(split_words(name)) == words.split()


def test_words_of_a_query_are_kept_as_they_are_written_without_those_that_say_nothing() -> None:
    assert query_words("the Dogs of the Müllers, mit der Oma") == {
        "dog": "Dogs", "muller": "Müllers", "oma": "Oma",
    }  # fmt: skip


def test_names_of_files_and_folders_raise_a_hit_and_say_so(album: Library) -> None:
    for number in range(20):
        put(album, f"/photos/DCIM/IMG_{number:04}.jpg", ("red", "green")[number % 2])
    put(album, "/photos/GeburtstagOma/IMG_0099.jpg", "blue")
    album.refresh_signals()
    [best, *others] = album.search("Geburtstag Oma", k=5)
    assert best.path.parent.name == "GeburtstagOma"
    assert reasons(best) == [("name", "Geburtstag Oma")]
    assert all(reasons(hit) == [] for hit in others)
    without = album.search("Geburtstag Oma", k=30, off=["names"])
    assert without[0].path.parent.name == "DCIM"
    assert not any(map(reasons, without))
    with pytest.raises(PolyglanceError, match="names, dates, places, text"):
        album.search("red", off=["smells"])


def test_what_is_called_like_the_whole_query_comes_first(album: Library) -> None:
    put(album, "camera/IMG_0003.jpg", "green")
    put(album, "camera/IMG_00031.jpg", "green")
    put(album, "camera/IMG_0004.jpg", "red")
    put(album, "copies/img_0003.png", "blue")
    put(album, "Größe M/holiday.jpg", "white")
    for number in range(4):  # in a folder and of a date that a query may name together
        put(album, f"2019 Red Sea/a{number}.jpg", "blue", "2021-01-01T12:00:00")
    album.refresh_signals()
    for query in ("IMG_0003", "img_0003", "  IMG_0003 "):
        hits = album.search(query, k=9)
        assert sorted(names(hits[:2])) == ["IMG_0003", "img_0003"], query
        assert [reasons(hit) for hit in hits[:2]] == [[("name", hits.searched_for or query)]] * 2
        assert all(("name", query) not in reasons(hit) for hit in hits[2:])
    assert names(album.search("IMG_0003.jpg"))[0] == "IMG_0003"
    assert names(album.search("holiday.jpg"))[0] == "holiday"
    assert names(album.search("grosse m"))[0] == names(album.search("größe M"))[0] == "holiday"
    # A folder's name is no filter by date, and its pictures come before any that is red.
    hits = album.search("2019 red sea", k=9)
    assert [hit.path.parent.name for hit in hits[:4]] == ["2019 Red Sea"] * 4
    assert hits.understood == ()
    assert album.search("2019", k=9) == []  # a year alone is one
    assert names(album.search("red 2021", k=9)) == ["a0", "a1", "a2", "a3"]
    # The end of a path is a name, and so is one with another suffix.
    for query, stem in (
        ("camera/IMG_0003.jpg", "IMG_0003"), ("Camera\\IMG_0003", "IMG_0003"),
        ("IMG_0004.png", "IMG_0004"),
    ):  # fmt: skip
        hits = album.search(query, k=9)
        assert [hit.path.stem for hit in hits if hit.gain > 50] == [stem], query
    assert names(album.search("2019 Red Sea/a2"))[0] == "a2"
    # Without names, in a part of a name, or where most are called so, all is as it was.
    assert album.search("2019 red sea", off=["names"]) == []
    for query, off in (("IMG_000", []), ("IMG_0003", ["names"]), ("holiday", [])):
        found = album.search(query, k=9, off=off)
        assert max(hit.gain for hit in found) < 10, query
    for number in range(12):
        put(album, f"many/IMG 77/{number}.jpg", "white")
    album.refresh_signals()
    assert max(hit.gain for hit in album.search("IMG 77", k=9)) < 10


def test_a_year_is_no_filter_of_files_that_are_named_so(album: Library) -> None:
    for number in range(9):
        put(album, f"other/{number}.jpg", "red", "2021-03-03T12:00:00")
    put(album, "Oma 2018/scan.jpg", "green", "2026-01-01T12:00:00")
    put(album, "Feier Opa 2021/dated.jpg", "green", "2021-01-01T12:00:00")
    album.refresh_signals()
    for query in ("Oma 2018", "2018 Oma", "Oma in 2018"):
        hits = album.search(query, k=20)
        assert (len(hits), hits.understood) == (11, ())
        assert names(hits)[0] == "scan"
    hits = album.search("Opa 2021", k=20)  # the filter leaves out none that is named so
    assert len(hits) == 10
    assert names(hits)[0] == "dated"
    assert album.search("Oma 2018", off=["names"]) == []
    assert names(album.search("photos from 2018", k=20)) == []  # nothing but a date
    assert len(album.search("Oma 2018", off=["dates"], k=20)) == 11


def test_words_follow_files_that_are_added_moved_and_deleted(
    library: Library, photos: Path
) -> None:
    write_image(photos / "a.png", "red")
    write_image(photos / "zebra.png", "blue")
    library.add(photos)
    assert names(library.search("zebra", k=1)) == ["zebra"]
    (photos / "zebra.png").rename(photos / "giraffe.png")
    assert library.update().moved == 1
    assert reasons(library.search("zebra", k=1)[0]) == []
    assert reasons(library.search("giraffe", k=1)[0]) == [("name", "giraffe")]
    (photos / "giraffe.png").unlink()
    library.update()
    write_image(photos / "okapi.png", "blue")
    library.update()
    assert library._signals().words().postings(["n:giraffe", "n:okapi"]).keys() == {"n:okapi"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "damage",
    [
        "nothing of a database",
        "CREATE TRIGGER t AFTER INSERT ON documents BEGIN SELECT 1; END",
        "UPDATE meta SET value = '{\"totals\": 5}'",
        "UPDATE postings SET items = 'text'",
        "UPDATE postings SET items = x'00'",
    ],
)
def test_an_index_that_was_changed_is_made_again_or_not_used(
    library: Library, photos: Path, damage: str
) -> None:
    write_image(photos / "a.png", "red")
    write_image(photos / "okapi.png", "blue")
    library.add(photos)
    library.close()
    assert library.path is not None
    words = words_path(library.path)
    if damage.startswith("nothing"):
        words.write_text(damage)
    else:
        with closing(sqlite3.connect(words)) as connection, connection:
            connection.execute(damage)
    with Library(library.path, model=ColourEncoder()) as again:
        found = reasons(again.search("okapi", k=1)[0])
        assert found == ([] if "postings" in damage else [("name", "okapi")])


def test_a_date_in_words_becomes_a_filter_that_can_be_switched_off(album: Library) -> None:
    put(album, "/a/summer.jpg", "red", "2023-07-01T10:00:00")
    put(album, "/a/autumn.jpg", "red", "2023-10-01T10:00:00")
    put(album, "/a/other.jpg", "blue", "2023-08-31T23:59:59")
    album.refresh_signals()
    hits = album.search("red im Sommer 2023")
    assert names(hits) == ["summer", "other"]
    assert hits[0].score > 0.99  # the model read "red"
    assert reasons(hits[0]) == [("date", "im Sommer 2023")]
    assert len(album.search("red im Sommer 2023", off=["dates"])) == 3
    understood = album.understand("red im Sommer 2023")
    assert understood.text == "red"
    [part] = understood.parts
    assert (part.signal, part.since, part.until) == ("date", "2023-06-01", "2023-08-31")
    assert names(album.search("red summer 2023", since="2023-08")) == ["other"]
    assert names(album.search("October 2023")) == ["autumn"]


class Pairs:
    """Stacks of two hits that follow each other."""

    def fold(self, hits: list[Hit]) -> list[Hit]:
        return [replace(hits[n], stack=(*hits[n + 1 : n + 2],)) for n in range(0, len(hits), 2)]


def test_what_is_asked_for_by_date_or_place_alone_is_sorted_by_date(album: Library) -> None:
    paris = {"latitude": 48.8584, "longitude": 2.2945}
    for number in (3, 1, 12, 7):
        colour = ("red", "blue")[number % 2]
        put(album, f"/a/{number}.jpg", colour, f"2023-{number:02}-05T10:00:00", **paris)
    put(album, "/a/later.jpg", "red", "2024-02-01T10:00:00", **paris)
    put(album, "/a/elsewhere.jpg", "red", "2023-02-01T10:00:00")
    album.refresh_signals()
    found = album.search("in Paris 2023")
    assert names(found) == ["12", "7", "3", "1"]
    assert [one.signal for one in found[0].why] == ["date", "place"]
    assert [hit.shown_score for hit in found[:2]] == ["2023-12-05", "2023-07-05"]
    assert found[0].to_json()["score"] is None
    assert found.fold is None
    assert names(album.search("2023", k=2, offset=1)) == ["7", "3"]
    put(album, "/a/new.jpg", "blue", "2023-12-31T10:00:00")  # moments later
    assert names(album.search("2023", k=2)) == ["new", "12"]
    assert names(album.search("2023", folder="/b")) == []
    for text in (
        "photos from 2023", "my pictures taken in 2023", "Bilder aus dem Jahr 2023",
        "toutes les photos de 2023", "imagens de 2023", "fotky z roku 2023", "2023年的照片",
        "صور 2023", "写真 2023",
    ):  # fmt: skip
        assert names(album.search(text, k=2, min_score=0.5)) == ["new", "12"], text
    for text in (
        "2023 🐶", "3 2023", "犬 2023", "2023 -people", "videos 2023", "not in 2023", "who in 2023",
    ):  # fmt: skip
        assert not any(hit.by_date for hit in album.search(text)), text
    # Two that stand for each other are one hit.
    album._stacks = lambda: Pairs()  # type: ignore[assignment, method-assign]
    stacked = album.search("in Paris 2023", k=1, offset=1, stack=True)
    assert [(hit.path.stem, len(hit.stack)) for hit in stacked] == [("3", 1)]
    del album._stacks
    # With anything to be seen, what fits best comes first.
    red = Image.new("RGB", (4, 4), "red")
    for asked in (album.search("red 2023"), album.search("2023", picture=red)):
        assert asked[0].score > 0.8
        assert asked[0].path.stem in ("12", "elsewhere")
    without = album.search("2023", exclude="blue", k=9)
    assert without[0].score > without[-1].score


def test_a_feast_without_a_year_only_raises_pictures_of_that_time(album: Library) -> None:
    for number in range(1, 13):
        put(album, f"/a/{number:02}.jpg", "white", f"2020-{number:02}-25T10:00:00")
    put(album, "/a/easter.jpg", "white", "2021-04-04T10:00:00")
    album.refresh_signals()
    [best, *others] = album.search("a Christmas tree", k=20)
    assert best.path.stem == "12"
    assert reasons(best) == [("date", "Christmas")]
    assert len(others) == 12
    assert names(album.search("Ostern", k=1)) == ["easter"]
    assert set(names(album.search("ein Kind im Sommer", k=3))) == {"06", "07", "08"}


def test_places_are_named_by_their_coordinates_and_found_in_any_language(album: Library) -> None:
    put(album, "/a/tower.jpg", "red", latitude=48.8584, longitude=2.2945)
    put(album, "/a/beer.jpg", "red", latitude=48.1374, longitude=11.5755)
    put(album, "/a/sea.jpg", "red", latitude=0.0, longitude=-30.0)
    put(album, "/a/none.jpg", "red")
    album.refresh_signals()
    store = album._store()
    assert store.details(["/a/tower.jpg"])["/a/tower.jpg"].place == "Paris, France"
    assert store.details(["/a/sea.jpg"])["/a/sea.jpg"].place is None
    for query in ("red in Paris", "red à Paris", "red 巴黎", "red في باريس", "red in Frankreich"):
        hits = album.search(query)
        assert names(hits) == ["tower"], query
        assert hits[0].score > 0.99
        assert [one.signal for one in hits[0].why] == ["picture", "place"]
    assert names(album.search("red Mnichov")) == ["beer"]
    assert len(album.search("red in Paris", off=["places"])) == 4
    assert len(album.search("red in Rome")) == 4  # nothing is from there


def test_a_place_that_folders_are_named_after_is_no_filter(album: Library) -> None:
    for number in range(9):
        put(album, f"/a/{number}.jpg", "blue")
    put(album, "/a/tower.jpg", "blue", latitude=48.8584, longitude=2.2945)
    put(album, "/Paris 1970/scan.jpg", "blue")
    album.refresh_signals()
    hits = album.search("blue in Paris", k=20)
    assert len(hits) == 11
    assert hits[0].score > 0.99  # the model read "blue"
    found = {hit.path.stem: reasons(hit) for hit in hits[:2]}
    assert found == {"tower": [("place", "Paris")], "scan": [("place", "Paris")]}
    assert hits[0].gain == hits[1].gain == pytest.approx(5)  # neither is twice in Paris
    put(album, "/Munich Germany/x.jpg", "blue")
    put(album, "/a/square.jpg", "blue", latitude=48.1374, longitude=11.5755)
    album.refresh_signals()
    # A folder's whole name comes first; what was taken there still gains rank.
    first, second, *others = album.search("Munich Germany", k=20)
    assert (first.path.stem, second.path.stem) == ("x", "square")
    assert second.gain == pytest.approx(5)
    assert max(hit.gain for hit in others) == 0


def test_a_coordinate_gets_the_city_that_reaches_it() -> None:
    table = gazetteer()
    assert table.nearest(48.8355, 2.2400) == "Boulogne-Billancourt, France"
    assert table.nearest(-33.8568, 151.2153) == "Sydney, Australia"
    assert table.nearest(64.1466, -21.9426) == "Reykjavík, Iceland"
    assert table.nearest(-16.8, 179.99) is not None  # on either side of the date line
    assert table.nearest(91, 0) is None
    near = names_of_places(["Paris, France", "Boulogne-Billancourt, France", "Rome, Italy"])
    assert near["parigi"] == ["Paris, France", "Boulogne-Billancourt, France"]
    assert near["italie"] == ["Rome, Italy"]


@pytest.mark.parametrize(
    ("query", "rest", "places"),
    [
        ("a dog in Paris last summer", "a dog", ["Paris, France"]),
        ("nice dog", "nice dog", None),
        ("a dog in Nice", "a dog", ["Nice, France"]),
        ("dog munich", "dog", ["Munich, Germany"]),
        ("pes v Praze", "pes", ["Prague, Czechia"]),
        ("2016年夏天北京的孩子", "孩子", ["Beijing, China"]),
        ("ein Hund in München im Sommer 2023, am Strand", "ein Hund am Strand",
         ["Munich, Germany"]),
        ("Paris", "", ["Paris, France"]),
        ("children in the bath", "children in the bath", None),
    ],
)  # fmt: skip
def test_the_model_reads_a_query_without_its_dates_and_places(
    query: str, rest: str, places: list[str] | None
) -> None:
    understood = understand(query, date(2026, 11, 17), places=names_of_places(PLACES))
    assert (understood.rest, understood.text) == (rest, rest or query)
    assert understood.places == (tuple(places) if places else None)


def test_texts_inside_pictures_are_read_once_and_searched(library: Library, photos: Path) -> None:
    for name, colour in (("a", "red"), ("b", "green"), ("c", "blue")):
        write_image(photos / f"{name}.png", colour, (32, 32))
    library.add(photos)
    read: list[tuple[int, ...]] = []

    def reader(image: Image.Image) -> str:
        read.append(image.getpixel((5, 5)))  # type: ignore[arg-type]
        return "Invoice 4711\nThank you" if image.getpixel((5, 5)) == (0, 128, 0) else ""

    assert library.read_texts(reader=reader) == 1
    assert len(read) == 3
    assert library.reads_texts
    assert library.read_texts(reader=reader) == 0
    assert len(read) == 3
    [best, other] = library.search("invoice", k=2)
    assert best.path.stem == "b"
    assert reasons(best) == [("text", "invoice")]
    assert reasons(other) == []
    assert not any(map(reasons, library.search("invoice", off=["text"])))
    library.read_texts(False)
    assert not library.reads_texts
    assert library.search("4711", k=1)[0].path.stem == "b"  # what was read stays


def test_rapidocr_reads_text(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    from PIL import ImageDraw, ImageFont

    from polyglance.search.signals.ocr import open_text_reader

    image = Image.new("RGB", (400, 120), "white")
    ImageDraw.Draw(image).text((20, 30), "Invoice 4711", "black", ImageFont.load_default(40))
    assert open_text_reader()(image) == "Invoice 4711"


def test_a_bonus_is_that_of_each_item_by_table_and_by_search() -> None:
    bonus = Bonus(np.array([2, 5, 10**7]), np.array([1, 2, 3], np.float32))
    assert bonus.of(np.array([5, 1, 2, 2])).tolist() == [2, 0, 1, 1]
    assert bonus.of(np.array([5, 10**7, 3])).tolist() == [2, 3, 0]
    assert bonus.largest(2).tolist() == [5, 10**7]
