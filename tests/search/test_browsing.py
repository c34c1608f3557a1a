"""Test looking through a library by date, by folder and by what was added, in both stores."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.store_entries import MODEL_INFO, entry
from polyglance.search.browsing import REUSE_SECONDS, SHAPES, STEPS, Browser, Order
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Details, Entry, Filter, Store

DATES = ("2023-12-31T23:59:59", "2024-01-01T00:00:00", "2024-01-15T10:00:00", "2024-03-01T08:00:00")


def made(number: int) -> Entry:
    """Return one of sixty entries: dates repeat, folders nest, some are clips."""
    chance = random.Random(number)
    base = entry(f"/p/{chance.choice(['', 'a/', 'a/b/', 'ab/'])}{number}.jpg", f"content {number}")
    kind = "clip" if number % 5 == 0 else "picture"
    shape = {"width": chance.choice([0, 30, 4000, 30_000]), "height": chance.choice([20, 3000])}
    item = replace(base.item, taken=chance.choice(DATES), kind=kind, seconds=None, **shape)
    details = Details(camera=chance.choice(["A", "B", None]), place=chance.choice(["Wien", None]))
    if kind == "clip":
        vectors = np.concatenate([base.vectors, base.vectors])
        return replace(base, item=item, vectors=vectors, spans=((0.0, 1.0), (1.0, 2.0)))
    return replace(base, item=item, details=details)


ENTRIES = [made(number) for number in range(60)]


@pytest.fixture(scope="module", params=["a file", "PostgreSQL"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """Return a store of sixty items."""
    opened: Store
    if request.param == "PostgreSQL":
        opened = PostgresStore(request.getfixturevalue("postgres").database(), MODEL_INFO)
    else:
        opened = SqliteStore(tmp_path_factory.mktemp("browsing") / "a.polyglance", MODEL_INFO)
    opened.put(ENTRIES)
    yield opened
    opened.close()


def expected_paths(where: Filter) -> list[str]:
    """Return what matches, the newest first and of one moment the last added, by a loop."""

    def matches(one: Entry) -> bool:
        item, details = one.item, one.details or Details()
        return (
            (where.kind is None or item.kind == where.kind)
            and (where.since is None or item.taken >= where.since)
            and (where.until is None or item.taken[: len(where.until)] <= where.until)
            and (where.cameras is None or details.camera in where.cameras)
            and (where.places is None or details.place in where.places)
            and (
                where.folders is None
                or any(item.path.startswith(f"{folder}/") for folder in where.folders)
            )
        )

    found = [
        (one.item.taken, number, one.item.path)
        for number, one in enumerate(ENTRIES)
        if matches(one)
    ]
    return [path for _, _, path in sorted(found, reverse=True)]


FILTERS = [
    Filter(),
    Filter(kind="clip"),
    Filter(folders=("/p/a",)),
    Filter(folders=("/p/a/b", "/p/ab"), kind="picture"),
    Filter(since="2024"),
    Filter(since="2024-01-01", until="2024-01"),
    Filter(cameras=("A",)),
    Filter(cameras=("A", "B"), places=("Wien",), folders=("/p",), until="2023"),
    Filter(places=()),
    Filter(folders=("/elsewhere",)),
]


@pytest.mark.parametrize("where", FILTERS)
def test_pages_and_buckets_are_those_of_a_slow_loop(store: Store, where: Filter) -> None:
    browser = Browser(lambda: store)
    expected = expected_paths(where)
    view, buckets = browser.timeline(where, "day")
    paths = [
        str(media.path) for offset in range(0, 70, 7) for _, media in browser.page(view, offset, 7)
    ]
    assert paths == expected
    dates = {one.item.path: one.item.taken for one in ENTRIES}
    for unit, length in (("year", 4), ("month", 7), ("day", 10)):
        _, buckets = browser.timeline(where, unit)  # type: ignore[arg-type]
        counted = [dates[path][:length] for path in expected]
        assert [(one.date, one.count, one.offset) for one in buckets] == [
            (date, counted.count(date), counted.index(date)) for date in dict.fromkeys(counted)
        ]
    for rank in {0, len(expected) // 2, len(expected) - 1} & set(range(len(expected))):
        [(at, media)] = browser.page(view, rank, 1)
        assert at == rank == browser.rank(view, media.id)
        assert media.span is None or media.span[0] == 0.0  # the first of a clip


@pytest.mark.parametrize("order", ["taken", "added"])
def test_shapes_are_aspect_ratios_in_the_order_of_items(store: Store, order: Order) -> None:
    browser = Browser(lambda: store)
    view = browser.view(Filter(kind="picture"), order)
    shapes = browser.shapes(view)
    assert len(shapes) == len(view) > 40
    for (_, media), code in zip(browser.page(view, 0, 60), shapes, strict=True):
        ratio = max(1, media.width) / media.height
        read = 2 ** ((SHAPES.index(code) - 32) / STEPS)
        assert read == pytest.approx(min(3.84, max(0.25, ratio)), rel=0.03)


def test_what_was_added_last_comes_first(store: Store) -> None:
    browser = Browser(lambda: store)
    view = browser.view(Filter(kind="picture"), "added")
    pictures = [one.item.path for one in ENTRIES if one.item.kind == "picture"]
    shown = [str(media.path) for _, media in browser.page(view, 0, 100)]
    assert shown == pictures[::-1]


def test_cameras_and_places_are_counted(store: Store) -> None:
    browser = Browser(lambda: store)
    cameras = [one.details.camera for one in ENTRIES if one.details and one.details.camera]
    assert dict(browser.facets("camera")) == {name: cameras.count(name) for name in "AB"}
    assert [name for name, _ in browser.facets("place")] == ["Wien"]


def test_a_view_stays_while_the_library_changes(tmp_path: Path) -> None:
    now = 0.0
    store = SqliteStore(tmp_path / "a.polyglance", MODEL_INFO)
    store.put(ENTRIES[:10])
    browser = Browser(lambda: store, clock=lambda: now)
    before = browser.view()
    shown = [str(media.path) for _, media in browser.page(before, 0, 20)]
    assert browser.view() is before
    newest = replace(ENTRIES[20], item=replace(ENTRIES[20].item, taken="2025-01-01T00:00:00"))
    store.put([newest])
    assert browser.view() is before  # not counted again with every file that is indexed
    now += REUSE_SECONDS
    after = browser.view()
    assert (len(before), len(after)) == (10, 11)
    assert after.token != before.token
    [(_, first)] = browser.page(after, 0, 1)
    assert str(first.path) == newest.item.path
    again = browser.view(token=before.token)
    assert [str(media.path) for _, media in browser.page(again, 0, 20)] == shown
    store.delete([shown[3]])
    ranks = [rank for rank, _ in browser.page(again, 0, 20)]
    assert ranks == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    _, buckets = browser.timeline()
    assert sum(bucket.count for bucket in buckets) == 10
    store.delete([newest.item.path])
    store.put([ENTRIES[30]])
    now += REUSE_SECONDS
    _, buckets = browser.timeline()
    assert (buckets[0].date, sum(bucket.count for bucket in buckets)) == (buckets[0].date, 10)
    assert buckets[0].date < "2025"
    store.close()


def test_what_was_added_last_comes_by_day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.polyglance", MODEL_INFO)
    store.put(ENTRIES[:7])
    ids = sorted(store.timeline().tolist())
    # Items 3 and 4 were added on the next day, 5 and 6 a month later, 0 nobody knows when.
    hours = [("2024-05-01T12", ids[5]), ("2024-04-02T12", ids[3]), ("2024-04-01T12", ids[1])]
    monkeypatch.setattr(store, "hours_added", lambda: hours)
    view, buckets = Browser(lambda: store).added_timeline()
    assert view.items.tolist() == ids[::-1]
    assert [(one.date, one.count, one.offset) for one in buckets] == [
        ("2024-05-01", 2, 0), ("2024-04-02", 2, 2), ("2024-04-01", 2, 4), ("", 1, 6)
    ]  # fmt: skip
    clips = Browser(lambda: store).added_timeline(Filter(kind="clip"))[1]
    assert [(one.date, one.count) for one in clips] == [("2024-05-01", 1), ("", 1)]
    store.close()
