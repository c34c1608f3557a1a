"""Search the vectors of a library on PostgreSQL with pgvector; only hits leave the server.

While there are few vectors, all are compared; beyond that, pgvector's HNSW graph is searched.
Scores are computed here, from the vectors of the hits. A filter that matches few items is
answered by comparing those; otherwise the graph is searched until enough vectors match, and
if it runs out before that, all are compared.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import Any

import numpy as np

from polyglance.search.approximate import EF_CONSTRUCTION, HNSW_LINKS, MAX_GAINING
from polyglance.search.exact import Bonus, FloatArray, Neighbors, concat_rows, top_rows
from polyglance.search.postgres.database import (
    GRAPH_LOCK,
    LOCK_CLASS,
    Connection,
    to_placeholders,
)
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.postgres.tables import to_pgvector
from polyglance.search.sql_conditions import filter_condition
from polyglance.search.store import Filter, VectorRows

log = logging.getLogger(__name__)

EXACT_LIMIT = 50_000
"""Up to this many vectors, or items of a filter, are compared one by one.

A thousand take 0.7 ms (width 256, two busy cores), a search of the graph 20 ms.
"""
MAX_WIDTH = 2000
"""The widest vectors that pgvector's HNSW takes."""
MIN_FETCHED = 64
"""The fewest vectors fetched from the database."""

NUM_SAMPLES = 1000
"""Vectors by which the mean and deviation of cosines are estimated."""

_GRAPH = "vectors_near"


class PostgresIndex:
    """Searches the vectors of a store; sees every write at once, whoever made it."""

    def __init__(self, store: PostgresStore, *, exact_limit: int = EXACT_LIMIT) -> None:
        """Search ``store``, with a graph beyond ``exact_limit`` vectors."""
        self._store, self._exact_limit = store, exact_limit
        self._sample: FloatArray | None = None

    def search(
        self,
        query: FloatArray,
        k: int,
        where: Filter | None = None,
        *,
        one_per_item: bool = True,
        bonus: Bonus | None = None,
    ) -> Neighbors:
        """Return the ``k`` best vectors; see `polyglance.search.backends.Index.search`."""
        where = where or None
        fetched = depth = max(2 * k, MIN_FETCHED)
        gaining, cosine_stats = self._gaining(bonus, where), None
        if bonus is not None:
            cosine_stats = self._cosine_stats(query)

        def best(rows: VectorRows) -> Neighbors:
            if gaining is not None:
                new = ~np.isin(gaining.ids, rows.ids)
                rows = concat_rows(
                    rows, VectorRows(gaining.ids[new], gaining.items[new], gaining.vectors[new])
                )
            return top_rows(
                rows, query, k, one_per_item=one_per_item, bonus=bonus, cosine_stats=cosine_stats
            )

        if where is None or self._are_many(where):
            while True:
                rows = self._search_graph(query, depth, where)
                neighbors = best(rows)
                if len(neighbors) == k:
                    return neighbors
                if len(rows) < depth or not self._has_graph():
                    break  # the graph has no more, but the library may
                depth *= 4  # clips with many spans may fill the result
        return best(self._compare_all(query, fetched, where, one_per_item=one_per_item))

    def build(self, *, quiet: bool = True) -> bool:
        """Build the graph if there are many vectors and it is missing; return whether it was."""
        if not self._are_many() or self._has_graph():
            return False
        if self._store.model_info.width > MAX_WIDTH:
            log.warning(
                "pgvector's HNSW takes vectors of up to %d numbers: all are compared", MAX_WIDTH
            )
            return False
        return self._store.run_outside_transaction(self._build_graph)

    def _gaining(self, bonus: Bonus | None, where: Filter | None) -> VectorRows | None:
        """Return the vectors of the items that gain most."""
        if bonus is None or not len(bonus.items):
            return None
        ids = self._store.ids_of_items(bonus.largest(MAX_GAINING))
        return self._store.rows(self._store.matching_ids(where, ids) if where else ids)

    def _cosine_stats(self, query: FloatArray) -> tuple[float, float]:
        """Return mean and standard deviation of a query's cosines, by the first vectors."""
        if self._sample is None or not len(self._sample):
            rows = self._store.fetch_all(
                f"SELECT {self._store.vector_columns} FROM numbers JOIN vectors USING (item, part)"
                " ORDER BY id LIMIT ?",
                (NUM_SAMPLES,),
            )
            if not rows:
                return 0.0, 1.0
            self._sample = self._store.vector_rows(rows).vectors
        cosines = self._sample @ query
        return float(cosines.mean()), float(cosines.std())

    def _search_graph(self, query: FloatArray, depth: int, where: Filter | None) -> VectorRows:
        """Return the ``depth`` nearest vectors, by the graph if there is one."""
        condition, values = filter_condition(where)

        def read(connection: Connection) -> list[Any]:
            # The graph is the only plan without a sort, so this makes PostgreSQL use it.
            connection.execute("SET LOCAL enable_sort = off")
            return connection.execute(
                to_placeholders(
                    "WITH near AS MATERIALIZED (SELECT item, part, start, stop, vector"
                    f" FROM {_source(where)} WHERE {condition} ORDER BY vector <#> ? LIMIT ?)"
                    " SELECT id, item, start, stop, vector, checksum FROM near"  # of numbers
                    " JOIN numbers USING (item, part)"
                ),
                (*values, to_pgvector(query), depth),
                binary=True,
            ).fetchall()

        return self._store.vector_rows(sorted(self._store.transaction(read), key=itemgetter(0)))

    def _compare_all(
        self, query: FloatArray, count: int, where: Filter | None, *, one_per_item: bool
    ) -> VectorRows:
        """Return the ``count`` nearest vectors by comparing all."""
        condition, values = filter_condition(where)
        distinct, order = (
            ("DISTINCT ON (item)", "ORDER BY item, distance, part") if one_per_item else ("", "")
        )
        rows = self._store.fetch_all(  # "0 +" keeps the graph, which is approximate, out of it
            f"WITH compared AS (SELECT {distinct} item, part, 0 + (vector <#> ?) AS distance"
            f" FROM {_source(where)} WHERE {condition} {order}),"
            " near AS MATERIALIZED (SELECT item, part FROM compared ORDER BY distance LIMIT ?)"
            f" SELECT {self._store.vector_columns} FROM near JOIN numbers USING (item, part)"
            " JOIN vectors USING (item, part) ORDER BY id",
            (to_pgvector(query), *values, count),
        )
        return self._store.vector_rows(rows)

    def _are_many(self, where: Filter | None = None) -> bool:
        condition, values = filter_condition(where)
        source = "items" if where else "numbers"
        [[count]] = self._store.fetch_all(
            f"SELECT count(*) FROM (SELECT FROM {source} WHERE {condition} LIMIT ?) AS few",
            (*values, self._exact_limit + 1),
        )
        return bool(count > self._exact_limit)

    def _has_graph(self) -> bool:
        return bool(
            self._store.fetch_all(
                "SELECT FROM pg_index WHERE indexrelid = to_regclass(?) AND indisvalid", (_GRAPH,)
            )
        )

    def _build_graph(self, connection: Connection) -> bool:
        """Build the graph while others write and search; one process at a time."""
        execute, lock = connection.execute, (LOCK_CLASS, GRAPH_LOCK)
        [free] = execute("SELECT pg_try_advisory_lock(%s, %s)", lock).fetchone() or [False]
        if not free:
            return False
        try:
            if self._has_graph():
                return False  # another process built it meanwhile
            execute(f"DROP INDEX CONCURRENTLY IF EXISTS {_GRAPH}")  # left by a killed server
            execute(
                f"CREATE INDEX CONCURRENTLY {_GRAPH} ON vectors USING hnsw (vector vector_ip_ops)"
                f" WITH (m = {HNSW_LINKS}, ef_construction = {EF_CONSTRUCTION})"
            )
            execute("ANALYZE items, vectors, numbers")  # the planner weighs filters by these
        finally:
            if not connection.closed:
                execute("SELECT pg_advisory_unlock(%s, %s)", lock)
        return True


def _source(where: Filter | None) -> str:
    return "vectors JOIN items ON items.id = vectors.item" if where else "vectors"
