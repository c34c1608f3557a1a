from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from benchmarks.postgres_server import Server
from polyglance.search.exact import ExactIndex
from polyglance.search.postgres.index import PostgresIndex
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.store import Entry, FileSignature, Filter, Item, ModelInfo, VectorRows

WIDTH, COUNT = 24, 1500
FILTERS = [
    Filter(folders=("/3",)),
    Filter(since="2019"),
    Filter(folders=("/3/13",)),
    Filter(kind="clip"),
    Filter(folders=("/3", "/4", "/5"), since="2003", until="2018"),
]


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
def url(postgres: Server) -> str:
    """Create a library of random vectors with a graph; return its address."""
    address = postgres.database("random")
    store = PostgresStore(address, ModelInfo("m", "m", "f", WIDTH, "l"))
    store.put(entries(random_vectors(COUNT, 0)))
    assert not PostgresIndex(store, exact_limit=COUNT).build()
    assert PostgresIndex(store, exact_limit=100).build()
    store.close()
    return address


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(url)
    yield opened
    opened.close()


def scans(store: PostgresStore) -> int:
    """Return how often the graph was searched."""
    store.fetch_all("SELECT pg_stat_force_next_flush()")
    [[count]] = store.fetch_all(
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'vectors_near'"
    )
    return int(count)


def test_the_graph_is_used_and_returns_what_exact_search_returns(store: PostgresStore) -> None:
    graph, exact = PostgresIndex(store, exact_limit=100), ExactIndex(store)
    right = 0
    for query in random_vectors(50, 1):
        near, all_ = graph.search(query, 10), exact.search(query, 10)
        right += len(set(near.ids.tolist()) & set(all_.ids.tolist()))
        np.testing.assert_allclose(near.scores[0], all_.scores[0], atol=1e-6)
    assert right / 500 > 0.98
    for where in (None, Filter(since="2005")):
        before = scans(store)
        graph.search(random_vectors(1, 1)[0], 10, where)
        assert scans(store) == before + 1


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("many", [10, COUNT])
def test_filters_hold_however_few_items_match(
    store: PostgresStore, where: Filter, many: int
) -> None:
    index, exact = PostgresIndex(store, exact_limit=many), ExactIndex(store)
    for query in random_vectors(5, 3):
        expected, neighbors = exact.search(query, 5, where), index.search(query, 5, where)
        assert neighbors.ids.tolist() == expected.ids.tolist()
        np.testing.assert_allclose(neighbors.scores, expected.scores, atol=1e-6)


def test_few_vectors_are_compared_exactly_and_k_may_exceed_their_number(
    postgres: Server,
) -> None:
    store = PostgresStore(postgres.database(), ModelInfo("m", "m", "f", WIDTH, "l"))
    index = PostgresIndex(store)
    assert len(index.search(random_vectors(1, 2)[0], 5)) == 0
    store.put(entries(random_vectors(40, 0)))
    for query in random_vectors(5, 2):
        expected = ExactIndex(store).search(query, 100)
        assert index.search(query, 100).ids.tolist() == expected.ids.tolist()
    store.close()


def test_deleted_vectors_are_skipped_and_later_ones_are_found(postgres: Server) -> None:
    url = postgres.database()
    store, writer = PostgresStore(url, ModelInfo("m", "m", "f", WIDTH, "l")), PostgresStore(url)
    store.put(entries(random_vectors(300, 0)))
    index, query = PostgresIndex(store, exact_limit=100), random_vectors(1, 2)[0]
    assert index.build()
    first = index.search(query, 3).ids.tolist()
    item, _ = store.lookup(first)[first[0]]
    writer.delete([item.path])
    assert index.search(query, 3).ids.tolist()[:2] == first[1:]
    writer.put(entries(query[None], first=300))
    assert index.search(query, 3).ids.tolist() == [301, *first[1:]]
    store.close()
    writer.close()


def test_clips_with_many_spans_do_not_crowd_out_others(postgres: Server) -> None:
    store = PostgresStore(postgres.database(), ModelInfo("m", "m", "f", WIDTH, "l"))
    query = random_vectors(1, 4)[0]
    noise = query + 0.01 * random_vectors(900, 5)
    item = Item("/clip", "clip", FileSignature(1, 1), "c", "2024-01-01T00:00:00", 1, 1, 900.0)
    spans = tuple((float(i), i + 1.0) for i in range(900))
    store.put([Entry(item, noise / np.linalg.norm(noise, axis=1, keepdims=True), spans)])
    store.put(entries(random_vectors(300, 6)))
    index = PostgresIndex(store, exact_limit=100)
    for linked in (False, True):
        assert not linked or index.build()
        neighbors = index.search(query, 5)
        assert neighbors.ids.tolist() == ExactIndex(store).search(query, 5).ids.tolist()
        assert len(set(index.search(query, 5, one_per_item=False).items.tolist())) == 1
    store.close()


@pytest.mark.parametrize("where", [None, Filter(since="2000")])
def test_k_above_the_number_of_items_does_not_fetch_all_spans(
    postgres: Server, where: Filter | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.database(), ModelInfo("m", "m", "f", WIDTH, "l"))
    spans = tuple((float(i), i + 1.0) for i in range(900))
    for name, seed in (("a", 8), ("b", 9)):
        item = Item(
            f"/{name}", "clip", FileSignature(1, 1), name, "2024-01-01T00:00:00", 1, 1, 900.0
        )
        store.put([Entry(item, random_vectors(900, seed), spans)])
    store.put(entries(random_vectors(3, 6)))
    num_fetched: list[int] = []
    vector_rows = PostgresStore.vector_rows

    def counted(store: PostgresStore, rows: Sequence[object]) -> VectorRows:
        num_fetched.append(len(rows))
        return vector_rows(store, rows)

    monkeypatch.setattr(PostgresStore, "vector_rows", counted)
    query = random_vectors(1, 4)[0]
    neighbors = PostgresIndex(store).search(query, 20, where)
    assert sum(num_fetched) < 100
    expected = ExactIndex(store).search(query, 20, where)
    assert len(expected) == 5
    assert neighbors.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(neighbors.scores, expected.scores, atol=1e-6)
    store.close()


def test_vectors_written_while_the_graph_is_built_are_in_it(postgres: Server) -> None:
    url, vectors = postgres.database(), random_vectors(600, 7)
    store, writer = PostgresStore(url, ModelInfo("m", "m", "f", WIDTH, "l")), PostgresStore(url)
    store.put(entries(vectors[:400]))
    index = PostgresIndex(store, exact_limit=100)
    with ThreadPoolExecutor() as pool:
        built = pool.submit(index.build)
        for first in range(400, 600, 10):
            writer.put(entries(vectors[first : first + 10], first))
        assert built.result()
    for number in range(0, 600, 23):
        assert index.search(vectors[number], 1).ids.tolist() == [number + 1]
    assert scans(store) >= 27
    store.close()
    writer.close()


def test_a_graph_is_built_by_one_process_and_again_if_unfinished(url: str) -> None:
    store = PostgresStore(url)
    index = PostgresIndex(store, exact_limit=100)
    assert not index.build()
    with psycopg.connect(url, autocommit=True) as other:
        # What a server leaves that is killed while it builds one.
        other.execute(
            "UPDATE pg_index SET indisvalid = false"
            " WHERE indexrelid = 'polyglance.vectors_near'::regclass"
        )
        [[held]] = other.execute("SELECT pg_try_advisory_lock(1346849858, 2)").fetchall()
        assert held
        assert not index.build()  # another process is building it
        other.execute("SELECT pg_advisory_unlock_all()")
    assert index.build()
    assert not index.build()
    store.close()
