from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from polyglance.search import approximate
from polyglance.search.approximate import ApproximateIndex, GraphError, build_graph
from polyglance.search.exact import ExactIndex
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Entry, FileSignature, Filter, Item, ModelInfo
from polyglance.search.vector_index import VectorIndex

WIDTH, COUNT = 16, 3000


def entries(vectors: NDArray[np.float32], first: int = 0) -> Iterator[Entry]:
    for number, vector in enumerate(vectors, first):
        item = Item(f"/{number % 10}/{number}", "picture", FileSignature(1, 1), str(number),
                    f"{2000 + number % 20}-01-01T00:00:00", 1, 1)  # fmt: skip
        yield Entry(item, vector[None])


def some(count: int, seed: int) -> NDArray[np.float32]:
    made = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    unit: NDArray[np.float32] = made / np.linalg.norm(made, axis=1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of random vectors with its graph."""
    folder = tmp_path_factory.mktemp("graph")
    store = SqliteStore(folder / "s", ModelInfo("m", "m", "f", WIDTH, "l"))
    store.put(entries(some(COUNT, 0)))
    build_graph(store, folder / "s.hnsw")
    store.close()
    return folder


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """A library and a graph to be changed."""
    for name in ("s", "s.hnsw"):
        shutil.copyfile(made / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def opened(copied: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(copied / "s")
    yield store
    store.close()


def test_it_finds_what_comparing_all_finds(opened: SqliteStore, copied: Path) -> None:
    graph, exact = ApproximateIndex(opened, copied / "s.hnsw"), ExactIndex(opened)
    right = 0
    for query in some(50, 1):
        near, all_ = graph.search(query, 10), exact.search(query, 10)
        right += len(set(near.ids.tolist()) & set(all_.ids.tolist()))
        assert near.scores[0] == pytest.approx(all_.scores[0], abs=1e-5)
    assert right / 500 > 0.98


def test_what_is_gone_is_not_found_and_what_came_later_is(
    opened: SqliteStore, copied: Path
) -> None:
    graph, query = ApproximateIndex(opened, copied / "s.hnsw"), some(1, 2)[0]
    first = graph.search(query, 3).ids.tolist()
    item, _ = opened.lookup(first)[first[0]]
    opened.delete([item.path])
    assert graph.search(query, 3).ids.tolist()[:2] == first[1:]
    opened.put(entries(query[None], first=COUNT))
    assert graph.search(query, 3).ids.tolist() == [COUNT + 1, *first[1:]]


@pytest.mark.parametrize(
    "wanted", [Filter(folders=("/3",)), Filter(since="2019"), Filter(folders=("/3/13",))]
)
def test_filters_hold_however_few_they_leave(
    opened: SqliteStore, copied: Path, wanted: Filter
) -> None:
    graph, exact = ApproximateIndex(opened, copied / "s.hnsw"), ExactIndex(opened)
    for query in some(5, 3):
        expected = exact.search(query, 5, wanted)
        assert graph.search(query, 5, wanted).ids.tolist() == expected.ids.tolist()


def test_clips_of_many_spans_do_not_crowd_out_the_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s", ModelInfo("m", "m", "f", WIDTH, "l"))
    query = some(1, 4)[0]
    noise = query + 0.01 * some(900, 5)
    item = Item("/clip", "clip", FileSignature(1, 1), "c", "2024-01-01T00:00:00", 1, 1, 900.0)
    spans = tuple((float(i), i + 1.0) for i in range(900))
    store.put([Entry(item, noise / np.linalg.norm(noise, axis=1, keepdims=True), spans)])
    store.put(entries(some(300, 6)))
    build_graph(store, tmp_path / "s.hnsw")
    graph = ApproximateIndex(store, tmp_path / "s.hnsw")
    found = graph.search(query, 5)
    assert len(set(found.items.tolist())) == 5
    assert found.ids.tolist() == ExactIndex(store).search(query, 5).ids.tolist()
    assert len(set(graph.search(query, 5, one_per_item=False).items.tolist())) == 1
    store.close()


def refuses(store: SqliteStore, path: Path, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        ApproximateIndex(store, path)


def test_a_graph_is_not_trusted_over_the_library(
    opened: SqliteStore, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied / "s.hnsw"
    refuses(opened, copied / "none.hnsw", "does not exist")
    other = SqliteStore(copied / "other", ModelInfo("m", "m", "f", WIDTH, "another"))
    other.put(entries(some(COUNT, 0)))
    refuses(other, path, "another library")
    other.close()
    restored = SqliteStore(copied / "older", ModelInfo("m", "m", "f", WIDTH, "l"))
    restored.put(entries(some(COUNT, 9)))
    refuses(restored, path, "another state")
    restored.close()
    with monkeypatch.context() as patch:
        patch.setattr(approximate, "EXACT", 10)
        opened.put(entries(some(11, 7), first=COUNT))
        refuses(opened, path, "lacks 11 vectors")
    opened.delete(f"/{number % 10}/{number}" for number in range(0, COUNT, 3))
    refuses(opened, path, "of which the library has 2,000")


def test_a_damaged_file_is_refused_wherever_it_is_damaged(
    opened: SqliteStore, copied: Path
) -> None:
    path = copied / "s.hnsw"
    whole = path.read_bytes()
    rng = np.random.default_rng(8)
    for cut in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refuses(opened, path, "damaged")
    for _ in range(60):
        spoiled = bytearray(whole)
        at = int(rng.integers(len(whole)))
        spoiled[at : at + 64] = rng.bytes(min(64, len(whole) - at))
        path.write_bytes(spoiled)
        try:
            found = ApproximateIndex(opened, path).search(some(1, 1)[0], 5)
        except GraphError:
            continue
        expected = opened.rows(np.sort(found.ids))  # vectors and scores are the library's
        np.testing.assert_allclose(
            np.sort(expected.vectors @ some(1, 1)[0])[::-1], found.scores, atol=1e-5
        )


def test_the_library_uses_a_graph_only_for_many_and_says_why_it_does_not(
    opened: SqliteStore, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, query = copied / "s.hnsw", some(1, 2)[0]
    expected = ExactIndex(opened).search(query, 5).ids.tolist()
    path.write_bytes(b"broken")
    with caplog.at_level(logging.WARNING):
        few = VectorIndex(opened, path, exact_limit=COUNT)
        assert few.search(query, 5).ids.tolist() == expected
        assert not few.build()
        assert caplog.messages == []
        many = VectorIndex(opened, path, exact_limit=COUNT - 1)
        assert many.search(query, 5).ids.tolist() == expected
        assert many.search(query, 5).ids.tolist() == expected
        assert caplog.messages == [
            "s.hnsw is damaged: vectors are compared one by one until `polyglance index` makes it"
            " anew"
        ]
    assert many.build()
    assert not many.build()
    assert many.search(query, 5).ids.tolist() == expected
    assert many._graph is not None
    assert not list(copied.glob(".s.hnsw*"))


def test_without_faiss_all_are_compared(
    opened: SqliteStore, copied: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    index = VectorIndex(opened, copied / "s.hnsw", exact_limit=10)
    with caplog.at_level(logging.WARNING):
        assert len(index.search(some(1, 2)[0], 5)) == 5
        assert not index.build()
    assert all("polyglance[index]" in message for message in caplog.messages)
    assert len(caplog.messages) == 2
