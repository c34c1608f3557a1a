"""The vectors of a library at hand: compared one by one while they are few, else by a graph."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from pathlib import Path

from polyglance.errors import MissingExtra
from polyglance.search.approximate import EXACT, ApproximateIndex, GraphError, build
from polyglance.search.exact import ExactIndex, Nearest, Scores
from polyglance.search.store import Filter, Store

log = logging.getLogger(__name__)


class VectorIndex:
    """Finds the vectors of a store; what was written since, by anybody, is seen at once."""

    def __init__(self, store: Store, graph: Path, *, exact: int = EXACT) -> None:
        """``graph`` is its file; up to ``exact`` vectors are compared one by one."""
        self._store, self._path, self._limit = store, graph, exact
        self._exact = ExactIndex(store)
        self._graph: ApproximateIndex | None = None
        self._revision: Hashable = None

    def nearest(
        self, query: Scores, count: int, wanted: Filter | None = None, *, once: bool = True
    ) -> Nearest:
        """The vectors that fit best among those ``wanted``, ``once`` of each item."""
        revision = self._store.revision()
        if revision != self._revision:
            self._graph = self._usable() if self._are_many() else None
            self._revision = revision
        index = self._graph or self._exact
        return index.nearest(query, count, wanted, once=once)

    def build(self, *, quiet: bool = True) -> bool:
        """Make the graph if there are many vectors and it is not of use; whether it was made."""
        if not self._are_many() or self._usable(quiet=True):
            return False
        try:
            build(self._store, self._path, quiet=quiet)
        except MissingExtra as missing:
            log.warning("%s", missing)
            return False
        self._revision = None
        return True

    def _are_many(self) -> bool:
        return sum(self._store.vector_counts(0)) > self._limit

    def _usable(self, *, quiet: bool = False) -> ApproximateIndex | None:
        """The graph, if it is there and fits what the library holds now."""
        try:
            if self._graph is None:
                return ApproximateIndex(self._store, self._path)
            self._graph.refresh()
            return self._graph
        except (GraphError, MissingExtra) as error:
            if not quiet:
                log.warning(
                    "%s: vectors are compared one by one until `polyglance index` makes it anew",
                    error,
                )
            return None
