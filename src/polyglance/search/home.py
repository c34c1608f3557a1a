"""Where a library lives: in a file, or on PostgreSQL."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from polyglance.errors import PolyglanceError, printable
from polyglance.search.approximate import graph_path
from polyglance.search.exact import Nearest, Scores
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import Filter, Manifest, Store
from polyglance.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from polyglance.search.postgres.store import PostgresStore

SCHEMES = ("postgresql", "postgres")


class Index(Protocol):
    """Finds the vectors of a store; what was written since, by anybody, is seen at once."""

    def nearest(
        self, query: Scores, count: int, wanted: Filter | None = None, *, once: bool = True
    ) -> Nearest:
        """The vectors that fit best among those ``wanted``, ``once`` of each item."""

    def build(self, *, quiet: bool = True) -> bool:
        """Make what many vectors need to be found quickly; whether that was to be done."""


class Home(Protocol):
    """The place of a library, which may not be there yet."""

    @property
    def name(self) -> str:
        """As it is shown, without a password."""

    def open(self, manifest: Manifest | None = None) -> tuple[Store, Index]:
        """The library; with a ``manifest``, it is made where there is none."""

    def size(self) -> int:
        """Bytes on disk."""


class FileHome:
    """A library in a file, with a file of its graph beside it."""

    def __init__(self, path: Path) -> None:
        """The file, or where it is going to be."""
        self.path = path

    @property
    def name(self) -> str:
        """As it is shown."""
        return printable(str(self.path))

    def open(self, manifest: Manifest | None = None) -> tuple[Store, Index]:
        """The library; with a ``manifest``, it is made where there is none."""
        if manifest is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(self.path, manifest)
        return store, VectorIndex(store, graph_path(self.path))

    def size(self) -> int:
        """Bytes on disk."""
        size = 0
        for path in (self.path, f"{self.path}-wal", graph_path(self.path)):
            with suppress(OSError):
                size += os.stat(path).st_size
        return size


class PostgresHome:
    """A library in the schema ``polyglance`` of a database."""

    def __init__(self, url: str) -> None:
        """The address of the database."""
        from polyglance.search.postgres.address import Address

        self._url, self.name = url, Address.of(url).name
        self._opened: PostgresStore | None = None

    def open(self, manifest: Manifest | None = None) -> tuple[Store, Index]:
        """The library; with a ``manifest``, it is made where there is none."""
        from polyglance.search.postgres.index import PostgresIndex
        from polyglance.search.postgres.store import PostgresStore

        self._opened = PostgresStore(self._url, manifest)
        return self._opened, PostgresIndex(self._opened)

    def size(self) -> int:
        """Bytes on the server's disk, once it is open."""
        return self._opened.size() if self._opened else 0


def home_of(place: str | Path) -> Home:
    """A file, or what an address leads to."""
    scheme, mark, _ = str(place).partition("://")
    if not mark or "/" in scheme:
        return FileHome(Path(place).expanduser())
    if scheme not in SCHEMES:
        raise PolyglanceError(
            f"{printable(scheme)}:// is not where a library can be: give a file, or"
            " postgresql://user@host/database"
        )
    return PostgresHome(str(place))
