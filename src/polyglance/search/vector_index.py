"""Search the vectors of a library in a file: exactly while they are few, else with a graph."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from pathlib import Path

from polyglance.errors import MissingExtraError
from polyglance.search.approximate import EXACT_LIMIT, ApproximateIndex, GraphError, build_graph
from polyglance.search.exact import Bonus, ExactIndex, FloatArray, Neighbors
from polyglance.search.store import Filter, Store, VectorRows

log = logging.getLogger(__name__)


class VectorIndex:
    """Searches the vectors of a store; sees every write at once, whoever made it."""

    def __init__(self, store: Store, graph: Path, *, exact_limit: int = EXACT_LIMIT) -> None:
        """Search ``store``, with the graph in a file beyond ``exact_limit`` vectors."""
        self._store, self._path, self._exact_limit = store, graph, exact_limit
        self._exact = ExactIndex(store)
        self._graph: ApproximateIndex | None = None
        self._revision: Hashable = None

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
        revision = self._store.revision()
        if revision != self._revision:
            self._graph = self._usable_graph() if self._are_many() else None
            self._revision = revision
        index = self._graph or self._exact
        return index.search(query, k, where, one_per_item=one_per_item, bonus=bonus)

    def rows(self) -> VectorRows:
        """Return all vectors, which a search without a graph has in memory anyway."""
        return (ExactIndex(self._store) if self._are_many() else self._exact).refresh()

    def build(self, *, quiet: bool = True) -> bool:
        """Build the graph if there are many vectors and no usable one; return whether it was."""
        if not self._are_many() or self._usable_graph(quiet=True):
            return False
        try:
            build_graph(self._store, self._path, quiet=quiet)
        except MissingExtraError as missing:
            log.warning("%s", missing)
            return False
        self._revision = None
        return True

    def _are_many(self) -> bool:
        return sum(self._store.vector_counts(0)) > self._exact_limit

    def _usable_graph(self, *, quiet: bool = False) -> ApproximateIndex | None:
        """Return the graph if it exists and fits what the library holds now."""
        try:
            if self._graph is None:
                return ApproximateIndex(self._store, self._path)
            self._graph.refresh()
            return self._graph
        except (GraphError, MissingExtraError) as error:
            if not quiet:
                log.warning(
                    "%s: all vectors are compared until `polyglance index` builds it again", error
                )
            return None
