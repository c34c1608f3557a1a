"""Find items by the words of their names, of their places and inside their pictures.

An inverted index: for each word the items that have it. It is derived from the library alone and
kept beside it, as the graph of `polyglance.search.approximate` is: a SQLite file whose postings
are arrays, of which a search reads a few, however many items there are. On PostgreSQL a table with
a GIN index does the same. A word of a name begins with ``n:``, of a place with ``p:``, of a text
inside a picture with ``t:``. ``d:07``, ``d:07-31`` and ``d:2024-07-31`` are the month, the day of
any year and the day; ``g:Paris,_France`` is the place itself.

SQLite's own full-text index (FTS5) would take 35 ms of CPU for a word that 40,000 of 100,000 names
have, twice as long with its ranking, and an array takes less than 0.1 ms.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import zlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.search.signals.words import VERSION, index_words
from polyglance.search.sqlite_connection import connect
from polyglance.search.store import Ids

Row: TypeAlias = "tuple[int, str, str, int, str | None, str | None]"
"""Id, path, date, checksum, place and text of an item."""

log = logging.getLogger(__name__)

MAX_BEHIND = 10_000
"""New items whose words a search reads first; beyond that it goes without their names."""
_BEHIND = "the names of %s new files are searched after the next `polyglance index`"
_BLOCK = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    item INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, words TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS postings (
    word TEXT PRIMARY KEY, items BLOB NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID
"""
CHECKSUMS = "items.checksum + coalesce(details.checksum, 0)"
_ITEMS = "items LEFT JOIN details ON details.item = items.id"
COLUMNS = f"items.id, path, taken, {CHECKSUMS}, place, ocr_text"


class Source(Protocol):
    """The store of a library, as far as its words are concerned."""

    def fetch_all(self, statement: str, values: Any = ()) -> list[Any]:
        """Return all rows of a query."""

    def revision(self) -> Hashable:
        """Return a value that changes when anything may have been written, by anybody."""


class WordIndex(Protocol):
    """Finds the items that have a word."""

    def refresh(self, *, complete: bool = True) -> None:
        """Bring the index up to date with the library; for a search, only if that is quick."""

    def postings(self, words: Sequence[str]) -> dict[str, Ids]:
        """Return the rising ids of the items that have each of these words."""

    def count(self) -> int:
        """Return the number of items."""

    def close(self) -> None:
        """Close the file or connection."""


def items_with_all(index: WordIndex, words: Collection[str]) -> Ids:
    """Return the rising ids of the items that have all of some words of an index."""
    postings = index.postings(list(words))
    if not words or len(postings) < len(words):
        return np.zeros(0, np.int64)
    found, *others = sorted(postings.values(), key=len)
    for items in others:
        found = found[items[np.searchsorted(items, found).clip(max=len(items) - 1)] == found]
    return found


def document_words(path: str, taken: str, place: str | None, text: str | None) -> set[str]:
    """Return the words of an item, each with the letter of what has it.

    Args:
        path: Its file.
        taken: When it was taken, as it is stored.
        place: The name of its place.
        text: The text inside it.

    Returns:
        The words, as ``n:beach``.
    """
    whole = {f"d:{taken[:10]}", f"d:{taken[5:7]}", f"d:{taken[5:10]}"}
    if place:
        whole.add(place_word(place))
    name, _, suffix = path.rpartition(".")
    parts = (("n", name if suffix and "/" not in suffix else path), ("p", place), ("t", text))
    words = {f"{kind}:{word}" for kind, given in parts if given for word in index_words(given)}
    return words | whole


def place_word(place: str) -> str:
    """Return the word of a stored place."""
    return "g:" + "_".join(place.split())


class FileWordIndex:
    """The words of a library in a file; they are in a file beside it."""

    def __init__(self, store: Source, path: Path, library: str) -> None:
        """Open or create the index of a library with this id; in memory if nothing can be written.

        Args:
            store: The library.
            path: The file of the index.
            library: The library's id.
        """
        self._store, self._lock = store, threading.RLock()
        self._revision: Hashable = None
        self._state = {"library": library, "version": VERSION}
        self._count = 0
        self._has_warned = False
        self._connection = self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection:
        for place in (path, path, ":memory:"):
            connection = None
            try:
                connection = connect(place)
                connection.execute("PRAGMA synchronous = OFF")  # it can be built again
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                known = self._read_state(connection).get("library")
                if _schema(connection) == _expected_schema() and known in (
                    None,
                    self._state["library"],
                ):
                    return connection
                raise sqlite3.DatabaseError("is not the index of this library")
            except sqlite3.DatabaseError as error:
                if connection is not None:
                    connection.close()
                if not isinstance(error, sqlite3.OperationalError):
                    with suppress(OSError):
                        path.unlink()
        raise PolyglanceError(f"{path}: cannot be created")

    @staticmethod
    def _read_state(connection: sqlite3.Connection) -> dict[str, Any]:
        """Return what the index was made of; nothing if that cannot be told."""
        row = connection.execute("SELECT value FROM meta WHERE name = 'state'").fetchone()
        try:
            state = json.loads(row[0]) if row else {}
            totals = state.get("totals", [0] * 6)
            sound = len(totals) == 6 and all(isinstance(number, int) for number in totals)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}
        return state if sound else {}

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def count(self) -> int:
        """Return the number of items."""
        return self._count

    def refresh(self, *, complete: bool = True) -> None:
        """Bring the index up to date with the library; for a search, only if that is quick."""
        with self._lock:
            revision = self._store.revision()
            if revision == self._revision:
                return
            totals = self._totals()
            wanted: dict[str, Any] = self._state | {"totals": totals}
            self._count = totals[0]
            try:
                state = self._read_state(self._connection)
                behind = totals[2] - state.get("totals", [0, 0, 0])[2]
                if not complete and behind > MAX_BEHIND:
                    if not self._has_warned:
                        log.warning(_BEHIND, f"{behind:,}")
                    self._has_warned = True
                    return
                if state != wanted:
                    self._connection.execute("BEGIN IMMEDIATE")
                    try:
                        self._update(self._read_state(self._connection), wanted)
                        self._connection.execute("COMMIT")
                    except BaseException:
                        self._connection.execute("ROLLBACK")
                        raise
            except sqlite3.OperationalError:  # another process brings it up to date, or a full disk
                return
            self._revision = revision

    def postings(self, words: Sequence[str]) -> dict[str, Ids]:
        """Return the rising ids of the items that have each of these words."""
        marks = ", ".join("?" * len(words))
        with self._lock, suppress(sqlite3.DatabaseError):
            rows = self._connection.execute(
                f"SELECT word, items, checksum FROM postings WHERE word IN ({marks})", list(words)
            ).fetchall()
            return {
                word: np.frombuffer(items, np.int64)
                for word, items, checksum in rows
                if isinstance(items, bytes) and not len(items) % 8 and zlib.crc32(items) == checksum
            }
        return {}

    def _totals(self) -> list[int]:
        """Return count, sum of checksums and last id of items and details, which are kept."""
        rows = self._store.fetch_all(
            "SELECT count, sum, last FROM totals WHERE name IN ('items', 'details') ORDER BY"
            " name DESC"
        )
        return [number for row in rows for number in row]

    def _update(self, before: dict[str, Any], wanted: dict[str, Any]) -> None:
        totals = before.get("totals") if before.get("version") == VERSION else None
        if totals is None:
            for table in ("documents", "postings"):
                self._connection.execute(f"DELETE FROM {table}")
        last = totals[2] if totals else 0
        new = list(self._new_items(last))
        count, total = len(new), sum(row[3] for row in new)
        added, removed = self._documents(new, {})
        if totals is None or (totals[0] + count, totals[1] + totals[4] + total) != (
            wanted["totals"][0],
            wanted["totals"][1] + wanted["totals"][4],
        ):
            more, fewer = self._changed(last if totals else np.iinfo(np.int64).max)
            for word, items in more.items():
                added[word] += items
            removed = fewer
        self._write(added, removed)
        self._connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('state', ?)", (json.dumps(wanted),)
        )

    def _new_items(self, last: int) -> Iterator[Row]:
        while rows := self._store.fetch_all(
            f"SELECT {COLUMNS} FROM {_ITEMS} WHERE items.id > ? ORDER BY items.id LIMIT ?",
            (last, _BLOCK),
        ):
            yield from rows
            last = rows[-1][0]

    def _changed(self, last: int) -> tuple[_Postings, _Postings]:
        """Return what to add and remove for items up to an id that were moved, read or deleted."""
        known = dict(self._connection.execute("SELECT item, checksum FROM documents"))
        present = dict(self._store.fetch_all(f"SELECT items.id, {CHECKSUMS} FROM {_ITEMS}"))
        gone = [item for item in known if item not in present]
        changed = [
            item for item, checksum in known.items() if present.get(item, checksum) != checksum
        ]
        missing = [item for item in present if item not in known and item <= last]
        rows: list[Row] = []
        wanted = sorted({*changed, *missing})
        for start in range(0, len(wanted), 500):
            block = wanted[start : start + 500]
            marks = ", ".join("?" * len(block))
            rows += self._store.fetch_all(
                f"SELECT {COLUMNS} FROM {_ITEMS} WHERE items.id IN ({marks})", block
            )
        old: dict[int, str] = {}
        for item in (*gone, *changed):
            [words] = self._connection.execute(
                "SELECT words FROM documents WHERE item = ?", (item,)
            ).fetchone()
            old[item] = words
            self._connection.execute("DELETE FROM documents WHERE item = ?", (item,))
        return self._documents(rows, old)

    def _documents(self, rows: Sequence[Row], old: dict[int, str]) -> tuple[_Postings, _Postings]:
        """Write documents; return the words that items have now, and had before."""
        added: _Postings = defaultdict(list)
        removed: _Postings = defaultdict(list)
        for item, words in old.items():
            for word in words.split():
                removed[word].append(item)
        for item, path, taken, checksum, place, text in rows:
            found = document_words(path, taken, place, text)
            for word in found:
                added[word].append(item)
            self._connection.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                (item, checksum, " ".join(sorted(found))),
            )
        return added, removed

    def _write(self, added: _Postings, removed: _Postings) -> None:
        for word in {*added, *removed}:
            found = self._connection.execute(
                "SELECT items FROM postings WHERE word = ?", (word,)
            ).fetchone()
            items = np.frombuffer(found[0], np.int64) if found else np.zeros(0, np.int64)
            if removed.get(word):
                items = np.setdiff1d(items, removed[word])
            items = np.union1d(items, np.array(added.get(word, ()), np.int64))
            if len(items):
                content = items.astype(np.int64).tobytes()
                self._connection.execute(
                    "INSERT OR REPLACE INTO postings VALUES (?, ?, ?)",
                    (word, content, zlib.crc32(content)),
                )
            else:
                self._connection.execute("DELETE FROM postings WHERE word = ?", (word,))


_Postings: TypeAlias = "defaultdict[str, list[int]]"


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    return {(str(name), "".join(str(statement).split())) for name, statement in rows}


@cache
def _expected_schema() -> frozenset[tuple[str, str]]:
    """Return the tables of an index, which has no others: it may come from a stranger."""
    connection = sqlite3.connect(":memory:")
    try:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        return frozenset(_schema(connection))
    finally:
        connection.close()


def words_path(library: Path) -> Path:
    """Return the path of a library's index of words."""
    return library.with_name(library.name + ".words")
