from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyglance.errors import DataError, PolyglanceError
from polyglance.search.exact import ExactIndex
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import BadFile, Entry, Filter, Item, Manifest, NoLibrary, Stamp

MANIFEST = Manifest("m", "m", "f", 3, "l")
STAMP = Stamp(10, 20)


def entry(path: str, content: str = "c", *vectors: tuple[float, ...], **known: object) -> Entry:
    item = Item(path, "picture", STAMP, content, "2024-05-06T07:08:09", 4, 3)
    spans = known.pop("spans", ())
    return Entry(
        replace(item, **known),  # type: ignore[arg-type]
        np.array(vectors or [(1, 0, 0)], np.float32),
        spans,  # type: ignore[arg-type]
    )


def test_what_was_put_in_comes_out(store: SqliteStore) -> None:
    spans = ((0.0, 1.5), (1.5, 4.0))
    clip = entry("/b.mp4", "d", (0, 1, 0), (0, 0.6, 0.8), kind="clip", seconds=4.0, spans=spans)
    store.put([clip, replace(entry("/a.jpg"), thumbnail=b"small")])
    first, second = store.entries()
    assert (first.item, first.thumbnail, first.spans) == (entry("/a.jpg").item, b"small", ())
    assert (second.item, second.spans) == (clip.item, spans)
    np.testing.assert_allclose(second.vectors, clip.vectors, atol=1e-3)
    assert store.thumbnail("/a.jpg") == b"small"
    assert store.thumbnail("/b.mp4") is None
    found = store.found(store.ids().tolist())
    assert [(item.path, span) for item, span in found.values()] == [
        ("/b.mp4", spans[0]), ("/b.mp4", spans[1]), ("/a.jpg", None),
    ]  # fmt: skip
    assert store.entry("/nothing") is None


def test_the_same_again_changes_nothing_and_another_content_gets_new_numbers(
    store: SqliteStore,
) -> None:
    store.put([entry("/a"), entry("/b", "other")])
    store.put([entry("/a")])
    assert store.ids().tolist() == [1, 2]
    store.put([entry("/b", "changed", (0, 1, 0))])
    assert store.ids().tolist() == [1, 3]
    store.forget(["/b"])
    store.put([entry("/c", "x")])
    assert store.ids().tolist() == [1, 4]  # 3 is never used again


def test_a_move_keeps_the_vector_and_its_number(store: SqliteStore) -> None:
    store.put([entry("/a"), entry("/b", "other")])
    store.move("/a", "/b", Stamp(1, 2))
    [kept] = store.entries()
    assert (kept.item.path, kept.item.content, kept.item.stamp) == ("/b", "c", Stamp(1, 2))
    assert store.ids().tolist() == [1]
    store.move("/gone", "/b", STAMP)  # somebody else moved it already
    assert [one.item.path for one in store.entries()] == ["/b"]


def test_a_bad_file_takes_the_place_of_what_was_known_and_the_other_way_round(
    store: SqliteStore,
) -> None:
    store.put([entry("/a")])
    store.put_bad([BadFile("/a", "is broken", STAMP), BadFile("/locked", "for now")])
    assert store.bad() == [BadFile("/a", "is broken", STAMP)]
    assert store.known(["/a", "/locked"])["/a"].bad == "is broken"
    assert len(store.ids()) == 0
    store.put([entry("/a")])
    assert store.bad() == []


def test_folders_are_told_apart_from_those_whose_names_begin_alike(store: SqliteStore) -> None:
    names = ["/p/a", "/p/b/c", "/p-q/d", "/p.x", "/pa/e", "/ü/f"]
    store.put(entry(path, path) for path in names)
    assert list(store.paths("/p")) == ["/p/a", "/p/b/c"]
    assert list(store.paths("/p/a")) == ["/p/a"]
    assert list(store.paths("/")) == sorted(names)
    assert list(store.paths()) == sorted(names)
    assert store.matching(Filter(folders=("/p", "/ü"))).tolist() == [1, 2, 6]
    assert store.matching(Filter(folders=())).tolist() == []


def test_filters_by_kind_and_by_dates_of_any_length(store: SqliteStore) -> None:
    dates = [
        "2023-12-31T23:59:59",
        "2024-01-01T00:00:00",
        "2024-07-31T20:00:00",
        "2025-01-01T00:00:00",
    ]
    store.put(entry(f"/{i}", str(i), taken=date) for i, date in enumerate(dates))
    store.put([entry("/clip", "k", kind="clip", taken="2024-02-01T00:00:00", spans=((0, 1),))])

    def asked(**wanted: object) -> list[int]:
        return store.matching(Filter(**wanted)).tolist()  # type: ignore[arg-type]

    assert asked(since="2024") == [2, 3, 4, 5]
    assert asked(until="2024") == [1, 2, 3, 5]
    assert asked(since="2024-07", until="2024-07-31") == [3]
    assert asked(since="2024-07-31T20:00:01") == [4]
    assert asked(kind="clip") == [5]
    assert asked(kind="picture", until="2023") == [1]
    some = store.matching(Filter(since="2024"), np.array([1, 3, 9]))
    assert some.tolist() == [3]


def test_another_connection_sees_what_was_written_and_that_it_was(store: SqliteStore) -> None:
    other = SqliteStore(store.path)
    before = other.revision(), store.revision()
    assert (other.revision(), store.revision()) == before
    store.put([entry("/a")])
    assert other.revision() != before[0]
    assert store.revision() != before[1]
    assert [one.item.path for one in other.entries()] == ["/a"]
    other.close()


def test_a_write_that_fails_leaves_nothing_of_itself(store: SqliteStore) -> None:
    def entries():  # type: ignore[no-untyped-def]
        yield entry("/a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put(entries())
    assert list(store.entries()) == []
    store.put([entry("/b")])
    assert [one.item.path for one in store.entries()] == ["/b"]


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.polyglance"

    def write(number: int) -> None:
        own = SqliteStore(path, MANIFEST)  # all of them make it, one is first
        for i in range(20):
            own.put([entry(f"/{number}/{i}", f"{number} {i}"), entry(f"/all/{i}", f"{i}")])
        own.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = SqliteStore(path)
    assert store.counts().pictures == 100
    assert len(store.ids()) == 100
    assert list(store.damage()) == []
    store.close()


def test_damage_is_found(store: SqliteStore) -> None:
    store.put(entry(f"/{name}", name) for name in "abcdef")
    assert list(store.damage()) == []
    raw = sqlite3.connect(store.path)
    blob = bytearray(raw.execute("SELECT vector FROM vectors WHERE id = 1").fetchone()[0])
    blob[0] ^= 1
    raw.execute("UPDATE vectors SET vector = ? WHERE id = 1", (bytes(blob),))
    raw.execute("UPDATE vectors SET vector = x'00' WHERE id = 2")
    raw.execute("DELETE FROM vectors WHERE id = 3")
    raw.execute("DELETE FROM items WHERE id = 4")
    raw.commit()
    found = "\n".join(store.damage())
    for expected in (
        "/a: a vector is not as it was written", "/b: a vector is not as", "/c: has no vector",
        "row 4 of vectors belongs to nothing in items",
    ):  # fmt: skip
        assert expected in found
    assert "/e" not in found
    assert len(store.rows(store.ids())) == 5  # the others can still be searched
    raw.close()


def test_a_file_with_a_hole_in_it_is_found_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s.polyglance"
    store = SqliteStore(path, MANIFEST)
    store.put(entry(f"/{number}", str(number)) for number in range(300))
    store.close()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    opened = SqliteStore(path)
    try:
        found = list(opened.damage())
    except DataError as error:  # where it cannot even be read on
        found = [str(error)]
    assert any("damaged" in sentence for sentence in found)
    opened.close()


def test_what_is_no_library_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoLibrary, match="polyglance index FOLDER --library"):
        SqliteStore(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(DataError, match="no library"):
        SqliteStore(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(DataError, match="not a library of Polyglance"):
        SqliteStore(tmp_path / "other.db", MANIFEST)
    with pytest.raises(PolyglanceError):
        SqliteStore(tmp_path, MANIFEST)


def test_a_newer_library_asks_for_a_newer_polyglance(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s", MANIFEST).close()
    raw = sqlite3.connect(tmp_path / "s")
    raw.execute("UPDATE manifest SET value = '99' WHERE name = 'format'")
    raw.commit()
    raw.close()
    with pytest.raises(DataError, match="newer Polyglance"):
        SqliteStore(tmp_path / "s")


def test_a_closed_store_says_so(store: SqliteStore) -> None:
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


@given(STEPS)
def test_any_history_leaves_what_a_dictionary_would_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]]
) -> None:
    path = tmp_path_factory.mktemp("s") / "s.polyglance"
    store, held = SqliteStore(path, MANIFEST), dict[str, str]()
    index = ExactIndex(store)
    for step in steps:
        match step:
            case ("put", name, content):
                angle = ord(content)
                store.put([entry(name, content, (np.sin(angle), np.cos(angle), 0))])
                held[name] = content
            case ("forget", name):
                assert store.forget([name]) == (held.pop(name, None) is not None)
            case ("move", old, new):
                if old != new:
                    store.move(old, new, STAMP)
                    if old in held:
                        held[new] = held.pop(old)
            case ("bad", name):
                store.put_bad([BadFile(name, "why", STAMP)])
                held.pop(name, None)
            case _:
                index.refresh()
    assert {one.item.path: one.item.content for one in store.entries()} == held
    fresh, kept = ExactIndex(store).refresh(), index.refresh()
    assert kept.ids.tolist() == fresh.ids.tolist() == store.ids().tolist()
    np.testing.assert_array_equal(kept.vectors, fresh.vectors)
    assert list(store.damage()) == []
    store.close()
