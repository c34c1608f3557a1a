"""Where a library is kept: in a file, or on PostgreSQL."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from polyglance.errors import PolyglanceError, printable
from polyglance.search.approximate import graph_path
from polyglance.search.default_place import default_library as default_library
from polyglance.search.exact import Bonus, FloatArray, Neighbors
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Filter, ModelInfo, Store
from polyglance.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from polyglance.search.postgres.store import PostgresStore

SCHEMES = ("postgresql", "postgres")


class Index(Protocol):
    """Searches the vectors of a store; sees every write at once, whoever made it."""

    def search(
        self,
        query: FloatArray,
        k: int,
        where: Filter | None = None,
        *,
        one_per_item: bool = True,
        bonus: Bonus | None = None,
    ) -> Neighbors:
        """Return the vectors with the highest inner product with a query.

        Args:
            query: A unit vector, ``[width]``.
            k: How many to return at most.
            where: Consider only the vectors of items that match.
            one_per_item: Return only the best vector of each item.
            bonus: What some items gain by signals other than their vectors; an index that is
                not exact may consider only those that gain most.

        Returns:
            The vectors' ids, items and scores, best first.
        """

    def build(self, *, quiet: bool = True) -> bool:
        """Build what fast search among many vectors needs; return whether that was necessary."""


class Backend(Protocol):
    """The place of a library, which may not exist yet."""

    @property
    def name(self) -> str:
        """The place for display, without a password."""

    def open(self, model_info: ModelInfo | None = None) -> tuple[Store, Index]:
        """Open the library; with a ``model_info``, create it if it does not exist."""

    def size(self) -> int:
        """Return the bytes on disk."""


class FileBackend:
    """A library in a SQLite file, with its graph in a file beside it."""

    def __init__(self, path: Path) -> None:
        """Name the file, which may not exist yet."""
        self.path = path

    @property
    def name(self) -> str:
        """The path for display."""
        return printable(str(self.path))

    def open(self, model_info: ModelInfo | None = None) -> tuple[Store, Index]:
        """Open the library; with a ``model_info``, create it if it does not exist."""
        if model_info is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(self.path, model_info)
        return store, VectorIndex(store, graph_path(self.path))

    def size(self) -> int:
        """Return the bytes on disk."""
        size = 0
        endings = ("", "-wal", ".words", ".stacks")
        for path in (str(graph_path(self.path)), *(f"{self.path}{ending}" for ending in endings)):
            with suppress(OSError):
                size += os.stat(path).st_size
        return size


class PostgresBackend:
    """A library in the schema ``polyglance`` of a database."""

    def __init__(self, url: str) -> None:
        """Name the database by its address."""
        from polyglance.search.postgres.address import Address

        self._url, self.name = url, Address.parse(url).name
        self._store: PostgresStore | None = None

    def open(self, model_info: ModelInfo | None = None) -> tuple[Store, Index]:
        """Open the library; with a ``model_info``, create it if it does not exist."""
        from polyglance.search.postgres.index import PostgresIndex
        from polyglance.search.postgres.store import PostgresStore

        self._store = PostgresStore(self._url, model_info)
        return self._store, PostgresIndex(self._store)

    def size(self) -> int:
        """Return the bytes on the server's disk, or 0 before the library is open."""
        return self._store.size() if self._store else 0


def backend_for(place: str | Path) -> Backend:
    """Return the backend of a file or of a ``postgresql://`` address."""
    scheme, separator, _ = str(place).partition("://")
    if not separator or "/" in scheme:
        return FileBackend(Path(place).expanduser())
    if scheme not in SCHEMES:
        raise PolyglanceError(
            f"a library cannot be kept at {printable(scheme)}://: give a file, or"
            " postgresql://user@host/database"
        )
    return PostgresBackend(str(place))
