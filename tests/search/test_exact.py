from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from polyglance.search.exact import ExactIndex, top_k_per_group
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Entry, FileSignature, Filter, Item

SCORED = st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 6)), max_size=60)


@given(SCORED, st.integers(1, 12))
def test_top_k_returns_the_best_of_each_group_in_order(
    scored: list[tuple[int, int]], count: int
) -> None:
    scores = np.array([score for score, _ in scored], np.float32)
    groups = np.array([group for _, group in scored], np.int64)
    chosen = top_k_per_group(scores, groups, count)
    best: dict[int, float] = {}
    for score, group in scored:
        best[group] = max(score, best.get(group, -99))
    assert scores[chosen].tolist() == sorted(best.values(), reverse=True)[:count]
    assert len(set(groups[chosen].tolist())) == len(chosen)
    assert [scores[i] == best[groups[i]] for i in chosen] == [True] * len(chosen)


def put(store: SqliteStore, name: str, *vectors: tuple[float, float, float]) -> None:
    spans = tuple((float(i), i + 1.0) for i in range(len(vectors))) if len(vectors) > 1 else ()
    kind = "clip" if spans else "picture"
    item = Item(f"/{name}", kind, FileSignature(1, 1), name, "2024-01-01T00:00:00", 1, 1)  # type: ignore[arg-type]
    store.put([Entry(item, np.array(vectors, np.float32), spans)])


def vector(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_only_the_best_span_of_a_clip_is_returned_unless_all_are_requested(
    store: SqliteStore,
) -> None:
    put(store, "clip", (0.6, 0.8, 0), (1, 0, 0), (0.8, 0.6, 0))
    put(store, "picture", (0.9, 0.4358, 0))
    index = ExactIndex(store)
    neighbors = index.search(vector(1, 0, 0), 10)
    assert neighbors.ids.tolist() == [2, 4]
    np.testing.assert_allclose(neighbors.scores, [1, 0.9], atol=1e-3)
    assert index.search(vector(1, 0, 0), 10, one_per_item=False).ids.tolist() == [2, 4, 3, 1]
    assert index.search(vector(1, 0, 0), 1).ids.tolist() == [2]


def test_later_writes_and_deletions_are_seen(store: SqliteStore) -> None:
    index, other = ExactIndex(store), SqliteStore(store.path)
    query = vector(1, 0, 0)
    assert len(index.search(query, 5)) == 0
    put(other, "a", (1, 0, 0))
    put(other, "b", (0, 1, 0))
    assert index.search(query, 5).ids.tolist() == [1, 2]
    other.delete(["/a"])
    put(other, "c", (0.6, 0.8, 0))
    put(store, "b", (0, 1, 0))
    assert index.search(query, 5).ids.tolist() == [3, 2]
    assert index.search(query, 5, Filter(folders=("/b",))).ids.tolist() == [2]
    assert ExactIndex(store, after=2).search(query, 5).ids.tolist() == [3]
    other.close()


def test_rows_in_memory_are_not_read_again(store: SqliteStore) -> None:
    for name in "abc":
        put(store, name, (1, 0, 0))
    index, calls = ExactIndex(store), list[int]()
    index.refresh()
    read = store.rows_after
    store.rows_after = lambda number: calls.append(number) or read(number)  # type: ignore[method-assign, func-returns-value]
    index.refresh()
    put(store, "d", (0, 1, 0))
    index.refresh()
    assert calls == [3]
