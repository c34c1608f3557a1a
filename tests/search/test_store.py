"""Test what every store does, in a file or on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.store_entries import MODEL_INFO, SIGNATURE, entry
from polyglance.errors import PolyglanceError
from polyglance.search.exact import ExactIndex
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import (
    BadFile,
    Details,
    FileSignature,
    Filter,
    LibraryNotFoundError,
    ModelInfo,
    Store,
)

Opened: TypeAlias = Callable[..., Store]


@pytest.fixture(params=["a file", "PostgreSQL"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens the same store again; all are closed at the end."""
    make: Opened = partial(SqliteStore, tmp_path / "store.polyglance")
    if request.param == "PostgreSQL":
        make = partial(PostgresStore, request.getfixturevalue("postgres").database())
    stores: list[Store] = []

    def once_more(*manifest: ModelInfo) -> Store:
        stores.append(make(*manifest))
        return stores[-1]

    yield once_more
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Opened) -> Store:
    """Return an empty store of vectors of width 3."""
    return opened(MODEL_INFO)


def test_a_library_does_not_exist_until_it_is_created(opened: Opened) -> None:
    with pytest.raises(LibraryNotFoundError, match="polyglance index FOLDER --library"):
        opened()
    created = opened(MODEL_INFO)
    assert (
        opened(replace(MODEL_INFO, model="another")).model_info == created.model_info == MODEL_INFO
    )


def test_entries_round_trip(store: Store) -> None:
    spans = ((0.0, 1.5), (1.5, 4.0))
    clip = entry("/b.mp4", "d", (0, 1, 0), (0, 0.6, 0.8), kind="clip", seconds=4.0, spans=spans)
    store.put([clip, replace(entry("/a.jpg"), thumbnail=b"small")])
    first, second = store.entries()
    assert (first.item, first.thumbnail, first.spans) == (entry("/a.jpg").item, b"small", ())
    assert (second.item, second.spans) == (clip.item, spans)
    np.testing.assert_allclose(second.vectors, clip.vectors, atol=1e-3)
    assert store.thumbnail("/a.jpg") == b"small"
    assert store.thumbnail("/b.mp4") is None
    items = store.lookup(store.ids().tolist())
    assert [(item.path, span) for item, span in items.values()] == [
        ("/b.mp4", spans[0]), ("/b.mp4", spans[1]), ("/a.jpg", None),
    ]  # fmt: skip
    assert store.entry("/nothing") is None


def test_the_same_content_changes_nothing_and_new_content_gets_new_ids(
    store: Store,
) -> None:
    store.put([entry("/a"), entry("/b", "other")])
    store.put([entry("/a")])
    assert store.ids().tolist() == [1, 2]
    store.put([entry("/b", "changed", (0, 1, 0))])
    assert store.ids().tolist() == [1, 3]
    store.delete(["/b"])
    store.put([entry("/c", "x")])
    assert store.ids().tolist() == [1, 4]  # 3 is never used again


def test_items_are_listed_by_path_with_their_first_vectors(store: Store) -> None:
    spans = ((0.0, 1.0), (1.0, 2.0))
    store.put([entry("/b", "b"), entry("/c", "c", (1, 0, 0), (0, 1, 0), kind="clip", spans=spans)])
    store.put([entry("/a", "a")])
    store.put_bad_files([BadFile("/a-bad", "torn", SIGNATURE)])
    listed = store.items_after("", 9)
    assert [item.path for _, item in listed] == ["/a", "/b", "/c"]
    for number, item in listed:
        assert store.lookup([number])[number][0] == item
    assert store.lookup([listed[2][0]])[listed[2][0]][1] == spans[0]
    assert store.items_after("/a", 1) == listed[1:2]
    assert store.items_after("", 9, offset=2) == listed[2:]
    assert store.item_at("/b") == listed[1]
    assert store.item_at("/a-bad") is None


def test_a_move_keeps_the_vector_and_its_id(store: Store) -> None:
    store.put([entry("/a"), entry("/b", "other")])
    store.move("/a", "/b", FileSignature(1, 2))
    [kept] = store.entries()
    assert (kept.item.path, kept.item.content_hash, kept.item.signature) == (
        "/b",
        "c",
        FileSignature(1, 2),
    )
    assert store.ids().tolist() == [1]
    store.move("/gone", "/b", SIGNATURE)  # another process moved it already
    assert [one.item.path for one in store.entries()] == ["/b"]


def test_details_are_kept_with_their_item(store: Store) -> None:
    known = Details(None, 48.25, -16.5, "Canon EOS R5", "Wien", "EXIT", '{"lens": 1}')
    store.put([replace(entry("/a"), details=known), entry("/b", "b")])
    first = store.details(["/a", "/b", "/c"])
    assert replace(first["/a"], added=None) == known
    assert replace(first["/b"], added=None) == Details()
    assert first["/a"].added is not None
    assert first["/a"].added.endswith("+00:00")
    (hour, lowest), *_ = store.hours_added()[::-1]
    assert (hour, lowest) == (first["/a"].added[:13], store.item_paths()[0][0])
    store.put_details(
        {
            "/b": Details(latitude=1.0, camera="a\0b\ud800"),
            "/c": Details(),
            "/a": Details(place="x"),
        }
    )
    assert store.details(["/b"]) == {"/b": Details(added=first["/b"].added, camera="ab?")}
    store.move("/a", "/d", SIGNATURE)
    assert [(path, one.place) for _, path, one in store.all_details()] == [
        ("/d", "x"),
        ("/b", None),
    ]
    found = {one.item.path: one.details for one in store.entries()}
    assert found["/d"] == Details(added=first["/a"].added, place="x")
    store.put([entry("/d", "changed")])
    assert store.details(["/d"])["/d"].place is None
    store.delete(["/b"])
    assert [path for _, path, _ in store.all_details()] == ["/d"]
    assert list(store.find_damage()) == []


def test_filters_by_camera_and_place(store: Store) -> None:
    store.put(
        [
            replace(entry("/a"), details=Details(camera="A", place="Wien")),
            replace(entry("/b", "b"), details=Details(camera="B", place="Wien")),
            entry("/c", "c"),
        ]
    )

    def matching(**where: tuple[str, ...]) -> list[int]:
        return store.matching_ids(Filter(**where)).tolist()  # type: ignore[arg-type]

    assert matching(cameras=("A",)) == [1]
    assert matching(cameras=("A", "B"), places=("Wien",)) == [1, 2]
    assert matching(places=()) == matching(places=("Rom",)) == []
    among = np.array([2, 3], np.int64)
    assert store.matching_ids(Filter(places=("Wien",)), among).tolist() == [2]


def test_bad_files_and_items_replace_each_other(
    store: Store,
) -> None:
    store.put([entry("/a")])
    store.put_bad_files([BadFile("/a", "is broken", SIGNATURE), BadFile("/locked", "for now")])
    assert store.bad_files() == [BadFile("/a", "is broken", SIGNATURE)]
    assert store.records(["/a", "/locked"])["/a"].error == "is broken"
    assert len(store.ids()) == 0
    store.put([entry("/a")])
    assert store.bad_files() == []


def test_a_folder_does_not_match_others_with_the_same_prefix(store: Store) -> None:
    names = ["/p/a", "/p/b/c", "/p-q/d", "/p.x", "/pa/e", "/ü/f"]
    store.put(entry(path, path) for path in names)
    assert list(store.paths("/p")) == ["/p/a", "/p/b/c"]
    assert list(store.paths("/p/a")) == ["/p/a"]
    assert list(store.paths("/")) == sorted(names)
    assert list(store.paths()) == sorted(names)
    assert store.matching_ids(Filter(folders=("/p", "/ü"))).tolist() == [1, 2, 6]
    assert store.matching_ids(Filter(folders=())).tolist() == []


def test_filters_by_kind_and_by_dates_of_any_length(store: Store) -> None:
    dates = [
        "2023-12-31T23:59:59",
        "2024-01-01T00:00:00",
        "2024-07-31T20:00:00",
        "2025-01-01T00:00:00",
    ]
    store.put(entry(f"/{i}", str(i), taken=date) for i, date in enumerate(dates))
    store.put([entry("/clip", "k", kind="clip", taken="2024-02-01T00:00:00", spans=((0, 1),))])

    def matching(**where: object) -> list[int]:
        return store.matching_ids(Filter(**where)).tolist()  # type: ignore[arg-type]

    assert matching(since="2024") == [2, 3, 4, 5]
    assert matching(until="2024") == [1, 2, 3, 5]
    assert matching(since="2024-07", until="2024-07-31") == [3]
    assert matching(since="2024-07-31T20:00:01") == [4]
    assert matching(kind="clip") == [5]
    assert matching(kind="picture", until="2023") == [1]
    some = store.matching_ids(Filter(since="2024"), np.array([1, 3, 9]))
    assert some.tolist() == [3]


def test_other_connections_see_writes_and_the_new_revision(store: Store, opened: Opened) -> None:
    other = opened()
    before = other.revision(), store.revision()
    assert (other.revision(), store.revision()) == before
    store.put([entry("/a")])
    assert other.revision() != before[0]
    assert store.revision() != before[1]
    assert [one.item.path for one in other.entries()] == ["/a"]


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    def entries():  # type: ignore[no-untyped-def]
        yield entry("/a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(entries())
    assert list(store.entries()) == []
    store.put([entry("/b")])
    assert [one.item.path for one in store.entries()] == ["/b"]


def run_concurrently(*work: Callable[[], None]) -> None:
    """Run functions in threads, and raise the first error."""
    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(one) for one in work]:
            future.result()


def test_many_writers_at_once_lose_nothing(opened: Opened) -> None:
    def write(number: int) -> None:
        own = opened(MODEL_INFO)  # all of them create it, one is first
        for i in range(20):
            own.put([entry(f"/{number}/{i}", f"{number} {i}"), entry(f"/all/{i}", f"{i}")])

    run_concurrently(*(partial(write, number) for number in range(4)))
    store = opened()
    assert store.counts().pictures == 100
    assert len(store.ids()) == 100
    assert list(store.find_damage()) == []


def test_readers_see_ids_in_rising_order_during_writes(opened: Opened) -> None:
    opened(MODEL_INFO)
    writing = threading.Event()

    def write(number: int) -> None:
        own, rng = opened(), random.Random(number)
        for i in range(40):
            own.put(
                entry(f"/{number}/{i}/{j}", f"{number} {i} {j}") for j in range(rng.choice((1, 30)))
            )

    def write_all() -> None:
        run_concurrently(*(partial(write, number) for number in range(3)))
        writing.set()

    def read() -> None:
        own, seen = opened(), np.zeros(0, np.int64)
        while True:
            last_look = writing.is_set()
            now = own.ids()
            assert np.array_equal(now[: len(seen)], seen)
            seen = now
            if last_look:
                return

    run_concurrently(write_all, read)


def test_concurrent_writers_leave_one_record_per_file(opened: Opened) -> None:
    opened(MODEL_INFO)

    def write(number: int) -> None:
        own, rng = opened(), random.Random(number)
        for _ in range(25):
            names = [f"/{name}" for name in rng.sample("abcdefgh", 4)]
            match rng.randrange(4):
                case 0:
                    own.put(entry(name, rng.choice("xyz")) for name in names)
                case 1:
                    own.put_bad_files(BadFile(name, "why", SIGNATURE) for name in names)
                case 2:
                    own.move(names[0], names[1], SIGNATURE)
                case _:
                    own.delete(names)

    run_concurrently(*(partial(write, number) for number in range(4)))
    store = opened()
    items = {one.item.path for one in store.entries()}
    assert items.isdisjoint(file.path for file in store.bad_files())
    assert len(store.ids()) == len(items)
    assert list(store.find_damage()) == []


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    with pytest.raises(PolyglanceError, match="closed"):
        store.counts()


NAMES = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, NAMES),
        st.tuples(st.just("forget"), NAMES),
        st.tuples(st.just("move"), NAMES, NAMES),
        st.tuples(st.just("bad"), NAMES),
        st.tuples(st.just("look")),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_history_of_writes_equals_a_dictionary(
    store: Store, steps: list[tuple[str, ...]]
) -> None:
    store.delete(list(store.paths()))  # from the previous example
    held = dict[str, str]()
    index = ExactIndex(store)
    for step in steps:
        match step:
            case ("put", name, content):
                angle = ord(content)
                store.put([entry(name, content, (np.sin(angle), np.cos(angle), 0))])
                held[name] = content
            case ("forget", name):
                assert store.delete([name]) == (held.pop(name, None) is not None)
            case ("move", old, new):
                if old != new:
                    store.move(old, new, SIGNATURE)
                    if old in held:
                        held[new] = held.pop(old)
            case ("bad", name):
                store.put_bad_files([BadFile(name, "why", SIGNATURE)])
                held.pop(name, None)
            case _:
                index.refresh()
    assert {one.item.path: one.item.content_hash for one in store.entries()} == held
    fresh, kept = ExactIndex(store).refresh(), index.refresh()
    assert kept.ids.tolist() == fresh.ids.tolist() == store.ids().tolist()
    np.testing.assert_array_equal(kept.vectors, fresh.vectors)
    assert list(store.find_damage()) == []
