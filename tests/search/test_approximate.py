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


def random_vectors(count: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a library of random vectors with its graph."""
    folder = tmp_path_factory.mktemp("graph")
    store = SqliteStore(folder / "s", ModelInfo("m", "m", "f", WIDTH, "l"))
    store.put(entries(random_vectors(COUNT, 0)))
    build_graph(store, folder / "s.hnsw")
    store.close()
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the library and its graph, which a test may change."""
    for name in ("s", "s.hnsw"):
        shutil.copyfile(built / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(folder / "s")
    yield store
    store.close()


def test_the_graph_returns_what_exact_search_returns(store: SqliteStore, folder: Path) -> None:
    graph, exact = ApproximateIndex(store, folder / "s.hnsw"), ExactIndex(store)
    right = 0
    for query in random_vectors(50, 1):
        near, all_ = graph.search(query, 10), exact.search(query, 10)
        right += len(set(near.ids.tolist()) & set(all_.ids.tolist()))
        assert near.scores[0] == pytest.approx(all_.scores[0], abs=1e-5)
    assert right / 500 > 0.98


def test_deleted_vectors_are_skipped_and_later_ones_are_found(
    store: SqliteStore, folder: Path
) -> None:
    graph, query = ApproximateIndex(store, folder / "s.hnsw"), random_vectors(1, 2)[0]
    first = graph.search(query, 3).ids.tolist()
    item, _ = store.lookup(first)[first[0]]
    store.delete([item.path])
    assert graph.search(query, 3).ids.tolist()[:2] == first[1:]
    store.put(entries(query[None], first=COUNT))
    assert graph.search(query, 3).ids.tolist() == [COUNT + 1, *first[1:]]


@pytest.mark.parametrize(
    "where", [Filter(folders=("/3",)), Filter(since="2019"), Filter(folders=("/3/13",))]
)
def test_filters_hold_however_few_items_match(
    store: SqliteStore, folder: Path, where: Filter
) -> None:
    graph, exact = ApproximateIndex(store, folder / "s.hnsw"), ExactIndex(store)
    for query in random_vectors(5, 3):
        expected = exact.search(query, 5, where)
        assert graph.search(query, 5, where).ids.tolist() == expected.ids.tolist()


def test_clips_with_many_spans_do_not_crowd_out_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s", ModelInfo("m", "m", "f", WIDTH, "l"))
    query = random_vectors(1, 4)[0]
    noise = query + 0.01 * random_vectors(900, 5)
    item = Item("/clip", "clip", FileSignature(1, 1), "c", "2024-01-01T00:00:00", 1, 1, 900.0)
    spans = tuple((float(i), i + 1.0) for i in range(900))
    store.put([Entry(item, noise / np.linalg.norm(noise, axis=1, keepdims=True), spans)])
    store.put(entries(random_vectors(300, 6)))
    build_graph(store, tmp_path / "s.hnsw")
    graph = ApproximateIndex(store, tmp_path / "s.hnsw")
    neighbors = graph.search(query, 5)
    assert len(set(neighbors.items.tolist())) == 5
    assert neighbors.ids.tolist() == ExactIndex(store).search(query, 5).ids.tolist()
    assert len(set(graph.search(query, 5, one_per_item=False).items.tolist())) == 1
    store.close()


def refuses(store: SqliteStore, path: Path, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        ApproximateIndex(store, path)


def test_a_graph_that_does_not_fit_the_library_is_refused(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "s.hnsw"
    refuses(store, folder / "none.hnsw", "does not exist")
    other = SqliteStore(folder / "other", ModelInfo("m", "m", "f", WIDTH, "another"))
    other.put(entries(random_vectors(COUNT, 0)))
    refuses(other, path, "another library")
    other.close()
    restored = SqliteStore(folder / "older", ModelInfo("m", "m", "f", WIDTH, "l"))
    restored.put(entries(random_vectors(COUNT, 9)))
    refuses(restored, path, "another state")
    restored.close()
    with monkeypatch.context() as patch:
        patch.setattr(approximate, "EXACT_LIMIT", 10)
        store.put(entries(random_vectors(11, 7), first=COUNT))
        refuses(store, path, "lacks 11 vectors")
    store.delete(f"/{number % 10}/{number}" for number in range(0, COUNT, 3))
    refuses(store, path, "of which the library has 2,000")


def test_a_damaged_file_is_refused_wherever_it_is_damaged(store: SqliteStore, folder: Path) -> None:
    path = folder / "s.hnsw"
    content = path.read_bytes()
    rng = np.random.default_rng(8)
    for cut in (0, 5, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        refuses(store, path, "damaged")
    for _ in range(60):
        spoiled = bytearray(content)
        at = int(rng.integers(len(content)))
        spoiled[at : at + 64] = rng.bytes(min(64, len(content) - at))
        path.write_bytes(spoiled)
        try:
            neighbors = ApproximateIndex(store, path).search(random_vectors(1, 1)[0], 5)
        except GraphError:
            continue
        expected = store.rows(np.sort(neighbors.ids))  # vectors and scores are the library's
        np.testing.assert_allclose(
            np.sort(expected.vectors @ random_vectors(1, 1)[0])[::-1], neighbors.scores, atol=1e-5
        )


def test_a_graph_is_used_only_for_many_vectors_and_a_log_says_why_not(
    store: SqliteStore, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, query = folder / "s.hnsw", random_vectors(1, 2)[0]
    expected = ExactIndex(store).search(query, 5).ids.tolist()
    path.write_bytes(b"broken")
    with caplog.at_level(logging.WARNING):
        few = VectorIndex(store, path, exact_limit=COUNT)
        assert few.search(query, 5).ids.tolist() == expected
        assert not few.build()
        assert caplog.messages == []
        many = VectorIndex(store, path, exact_limit=COUNT - 1)
        assert many.search(query, 5).ids.tolist() == expected
        assert many.search(query, 5).ids.tolist() == expected
        assert caplog.messages == [
            "s.hnsw is damaged: all vectors are compared until `polyglance index` builds it again"
        ]
    assert many.build()
    assert not many.build()
    assert many.search(query, 5).ids.tolist() == expected
    assert many._graph is not None
    assert not list(folder.glob(".s.hnsw*"))


def test_without_faiss_all_vectors_are_compared(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    index = VectorIndex(store, folder / "s.hnsw", exact_limit=10)
    with caplog.at_level(logging.WARNING):
        assert len(index.search(random_vectors(1, 2)[0], 5)) == 5
        assert not index.build()
    assert all("polyglance[index]" in message for message in caplog.messages)
    assert len(caplog.messages) == 2
