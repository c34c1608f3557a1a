"""The words of a library on PostgreSQL, in a table with a GIN index.

The table is derived from the library alone and is made by the first that indexes: dropped, it is
made again. `polyglance.search.signals.word_index` says what its words are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.search.postgres.database import Connection
from polyglance.search.postgres.store import PostgresStore
from polyglance.search.signals.word_index import CHECKSUMS, COLUMNS, document_words
from polyglance.search.signals.words import VERSION
from polyglance.search.store import Ids

_BLOCK = 1000
_TABLE = f"words_{VERSION}"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (
    item bigint PRIMARY KEY REFERENCES items ON DELETE CASCADE,
    checksum bigint NOT NULL,
    words text[] NOT NULL
);
CREATE INDEX IF NOT EXISTS {_TABLE}_by_word ON {_TABLE} USING gin (words)
"""


class PostgresWordIndex:
    """Finds the items that have a word; `refresh` is for whoever may write."""

    def __init__(self, store: PostgresStore) -> None:
        """Use the table of a store, if there is one."""
        self._store = store
        self._counted: Hashable = None
        self._updated: Hashable = None
        """The revisions of the last count and of the last update."""
        self._count = 0

    def close(self) -> None:
        """Do nothing: the connection is the store's."""

    def count(self) -> int:
        """Return the number of items."""
        return self._count

    def refresh(self, *, complete: bool = True) -> None:
        """Bring the table up to date, if this user may write; a search takes it as it is."""
        revision = self._store.revision()
        if revision != self._counted:
            [[self._count]] = self._store.fetch_all("SELECT count(*) FROM items")
            self._counted = revision
        if complete and revision != self._updated:
            try:
                while self._store.transaction(_update):
                    pass
            except PolyglanceError:  # a user who may only read
                if not self._exists():
                    self._count = 0
            self._updated = revision

    def postings(self, words: Sequence[str]) -> dict[str, Ids]:
        """Return the rising ids of the items that have each of these words."""
        if not self._exists():
            return {}
        rows = self._store.fetch_all(
            f"SELECT given.word, array_agg(item ORDER BY item) FROM unnest(?::text[]) AS given"
            f" (word) JOIN {_TABLE} ON words @> ARRAY[given.word] GROUP BY given.word",
            (list(words),),
        )
        return {word: np.array(items, np.int64) for word, items in rows}

    def _exists(self) -> bool:
        [[name]] = self._store.fetch_all("SELECT to_regclass(?)", (f"polyglance.{_TABLE}",))
        return name is not None


def _update(connection: Connection) -> bool:
    """Write the words of some items that are new or changed; return whether there were any."""
    found = connection.execute("SELECT to_regclass(%s)", (f"polyglance.{_TABLE}",)).fetchone() or [
        None
    ]
    if found[0] is None:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM items LEFT JOIN details ON details.item = items.id"
        f" LEFT JOIN {_TABLE} AS known ON known.item = items.id"
        f" WHERE known.item IS NULL OR known.checksum != {CHECKSUMS} LIMIT %s",
        (_BLOCK,),
    ).fetchall()
    for item, path, taken, checksum, place, text in rows:
        connection.execute(
            f"INSERT INTO {_TABLE} VALUES (%s, %s, %s) ON CONFLICT (item) DO UPDATE"
            " SET checksum = excluded.checksum, words = excluded.words",
            (item, checksum, sorted(document_words(path, taken, place, text))),
        )
    return bool(rows)
