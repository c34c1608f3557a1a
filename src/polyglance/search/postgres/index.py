"""The nearest vectors of a library on PostgreSQL, found by pgvector where they are.

Only hits travel. All vectors are compared while they are few, and pgvector's HNSW graph is
searched once there is one; scores are computed here from the vectors of the
hits. A filter that lets few items pass is answered by comparing those; with others the
graph is searched on until enough are found, and if it ends before, all are compared.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import Any

from polyglance.search.approximate import BUILDING, LINKS
from polyglance.search.exact import Nearest, Scores, best
from polyglance.search.postgres.database import LINKING, LOCKS, Connection
from polyglance.search.postgres.store import PostgresStore, condition
from polyglance.search.postgres.tables import filled
from polyglance.search.store import Filter, Rows

log = logging.getLogger(__name__)

MANY = 50_000
"""So many vectors are compared one by one, and so many items of a filter.

A thousand take 0.7 ms (256 numbers, two busy cores), a search of the graph 20 ms.
"""
WIDEST = 2000
"""Numbers in a vector that pgvector can link."""
LEAST = 64
"""Vectors that are taken from the database at least."""

_GRAPH = "vectors_near"


class PostgresIndex:
    """Finds the vectors of a store; what was written since, by anybody, is seen at once."""

    def __init__(self, store: PostgresStore, *, many: int = MANY) -> None:
        """More than ``many`` vectors are linked into a graph."""
        self._store, self._many = store, many

    def nearest(
        self, query: Scores, count: int, wanted: Filter | None = None, *, once: bool = True
    ) -> Nearest:
        """The vectors that fit best among those ``wanted``, ``once`` of each item."""
        wanted = wanted or None
        enough = depth = max(2 * count, LEAST)
        if wanted is None or self._are_many(wanted):
            while True:
                rows = self._near(query, depth, wanted)
                found = best(rows, query, count, once=once)
                if len(found) == count:
                    return found
                if len(rows) < depth or not self._has_graph():
                    break  # the graph has no more, the library may have
                depth *= 4  # clips of many spans crowd it
        return best(self._compared(query, enough, wanted, once=once), query, count, once=once)

    def build(self, *, quiet: bool = True) -> bool:
        """Make the graph if there are many vectors and it is not there; whether it was made."""
        if not self._are_many() or self._has_graph():
            return False
        if self._store.manifest.width > WIDEST:
            log.warning("pgvector links vectors of up to %d numbers: all are compared", WIDEST)
            return False
        return self._store.apart(self._link)

    def _near(self, query: Scores, depth: int, wanted: Filter | None) -> Rows:
        """The vectors that are nearest, by the graph where there is one."""
        clause, values = condition(wanted)

        def read(connection: Connection) -> list[Any]:
            # Only the graph need not be sorted: so it is taken.
            connection.execute("SET LOCAL enable_sort = off")
            return connection.execute(
                f"WITH near AS MATERIALIZED (SELECT item, part, vector FROM {_source(wanted)}"
                f" WHERE {clause} ORDER BY vector <#> %s LIMIT %s)"
                " SELECT id, item, vector FROM near JOIN numbers USING (item, part)",
                (*values, filled(query), depth),
                binary=True,
            ).fetchall()

        return self._store.rows_of(sorted(self._store.transaction(read), key=itemgetter(0)))

    def _compared(self, query: Scores, count: int, wanted: Filter | None, *, once: bool) -> Rows:
        """The vectors that are nearest, ``once`` of each item, when all are compared."""
        clause, values = condition(wanted)
        chosen, order = ("DISTINCT ON (item)", "ORDER BY item, far, part") if once else ("", "")
        rows = self._store.ask(  # "0 +" because no index has that
            f"WITH compared AS (SELECT {chosen} item, part, 0 + (vector <#> %s) AS far"
            f" FROM {_source(wanted)} WHERE {clause} {order}),"
            " near AS MATERIALIZED (SELECT item, part FROM compared ORDER BY far LIMIT %s)"
            " SELECT id, item, vector FROM near JOIN numbers USING (item, part)"
            " JOIN vectors USING (item, part) ORDER BY id",
            (filled(query), *values, count),
        )
        return self._store.rows_of(rows)

    def _are_many(self, wanted: Filter | None = None) -> bool:
        clause, values = condition(wanted)
        source = "items" if wanted else "numbers"
        [[count]] = self._store.ask(
            f"SELECT count(*) FROM (SELECT FROM {source} WHERE {clause} LIMIT %s) AS few",
            (*values, self._many + 1),
        )
        return bool(count > self._many)

    def _has_graph(self) -> bool:
        return bool(
            self._store.ask(
                "SELECT FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid", (_GRAPH,)
            )
        )

    def _link(self, connection: Connection) -> bool:
        """Make the graph, while others write and search; only one does that at a time."""
        run, lock = connection.execute, (LOCKS, LINKING)
        [free] = run("SELECT pg_try_advisory_lock(%s, %s)", lock).fetchone() or [False]
        if not free:
            return False
        try:
            if self._has_graph():
                return False  # somebody was quicker
            run(f"DROP INDEX CONCURRENTLY IF EXISTS {_GRAPH}")  # of a killed server
            run(
                f"CREATE INDEX CONCURRENTLY {_GRAPH} ON vectors USING hnsw (vector vector_ip_ops)"
                f" WITH (m = {LINKS}, ef_construction = {BUILDING})"
            )
            run("ANALYZE items, vectors, numbers")  # filters are weighed by what is known of both
        finally:
            if not connection.closed:
                run("SELECT pg_advisory_unlock(%s, %s)", lock)
        return True


def _source(wanted: Filter | None) -> str:
    return "vectors JOIN items ON items.id = vectors.item" if wanted else "vectors"
