"""The signals of an open library: its words, its places, and the queries that use them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, cast

from polyglance.search.signals.ranking import SignalQuery, collect
from polyglance.search.signals.understanding import Understood, check_signals, understand
from polyglance.search.signals.word_index import FileWordIndex, WordIndex, words_path
from polyglance.search.signals.words import query_words
from polyglance.search.sql_store import SqlStore
from polyglance.search.store import Details, Store

if TYPE_CHECKING:
    from polyglance.search.postgres.store import PostgresStore
    from polyglance.search.query import QueryText


_BLOCK = 1000


def with_place(details: Details) -> Details:
    """Name the place of a coordinate, unless it has a name or is far from any city."""
    if details.place is not None or details.latitude is None or details.longitude is None:
        return details
    from polyglance.search.signals.gazetteer import gazetteer

    return replace(details, place=gazetteer().nearest(details.latitude, details.longitude))


class LibrarySignals:
    """What is known of a library beside its vectors. Threads may share it."""

    def __init__(self, store: Store, path: Path | None) -> None:
        """Prepare the signals of a store; nothing is read before it is needed.

        Args:
            store: The library.
            path: Its file, or None on a server.
        """
        self._store, self._path = store, path
        self._lock = threading.RLock()
        self._words: WordIndex | None = None
        self._revision: Hashable = None
        self._counts: dict[str, int] = {}
        self._names: Mapping[str, list[str]] = {}
        self._south = False

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            if self._words is not None:
                self._words.close()
                self._words = None

    def refresh(self) -> None:
        """Bring the index of words up to date, as after indexing."""
        if (words := self.words()) is not None:
            words.refresh()

    def name_places(self) -> int:
        """Name the places of items that have a coordinate and no name; return how many."""
        store, count = self._store, 0
        if not isinstance(store, SqlStore):
            return 0
        rows = store.fetch_all(
            "SELECT path FROM details JOIN items ON items.id = item"
            " WHERE latitude IS NOT NULL AND place IS NULL ORDER BY item"
        )
        paths = [path for (path,) in rows]
        for start in range(0, len(paths), _BLOCK):
            found = {
                path: named
                for path, details in store.details(paths[start : start + _BLOCK]).items()
                if (named := with_place(details)) != details
            }
            if found:
                store.put_details(found)
            count += len(found)
        return count

    def words(self) -> WordIndex | None:
        """Return the index of words, or None for a store that can have none."""
        with self._lock:
            if self._words is None and isinstance(self._store, SqlStore):
                if self._path is not None:
                    library = self._store.model_info.library
                    self._words = FileWordIndex(self._store, words_path(self._path), library)
                else:
                    from polyglance.search.postgres.word_index import PostgresWordIndex

                    self._words = PostgresWordIndex(cast("PostgresStore", self._store))
            return self._words

    def understand(
        self, text: str, language: str | None = None, off: Collection[str] = ()
    ) -> Understood:
        """Take the dates and places out of a query.

        Args:
            text: The query.
            language: Its language if it is known.
            off: Signals that are switched off.

        Returns:
            What is left, and the filters.
        """
        names, south = self._known_places()
        return understand(
            text,
            date.today(),
            places=names,
            language=language,
            south=south,
            off=off,
            in_names=lambda shown: "names" not in off and self._in_names(shown),
        )

    def _in_names(self, text: str) -> bool:
        """Return whether names of files have all words of a text."""
        index, words = self.words(), [f"n:{word}" for word in query_words(text)]
        if index is None or not words:
            return False
        index.refresh(complete=False)
        return len(index.postings(words)) == len(words)

    def ask(
        self, understood: Understood, text: QueryText, off: Collection[str] = ()
    ) -> SignalQuery:
        """Prepare a search.

        Args:
            understood: The query taken apart.
            text: What the model reads, perhaps in several languages: words that names may have.
            off: Signals that are switched off.

        Returns:
            The query with its filters and what items gain.
        """
        words = text if isinstance(text, str) else " ".join(text.values())
        parts = [
            words if understood.rest else "",
            *(shown for shown, _ in understood.ranked_places),
        ]
        return collect(understood, " ".join(parts), self.words(), check_signals(off))

    def _known_places(self) -> tuple[Mapping[str, list[str]], bool]:
        """Return the library's places by their names, and whether most are in the south."""
        store = self._store
        if not isinstance(store, SqlStore):
            return {}, False
        with self._lock:
            revision = store.revision()
            if revision != self._revision:
                counts = dict(
                    store.fetch_all(
                        "SELECT place, count(*) FROM details WHERE place IS NOT NULL GROUP BY place"
                    )
                )
                if counts.keys() != self._counts.keys():
                    from polyglance.search.signals.gazetteer import names_of_places

                    self._names = names_of_places(counts) if counts else {}
                self._counts, self._south = counts, _is_southern(counts)
                self._revision = revision
            return self._names, self._south


def _is_southern(counts: Mapping[str, int]) -> bool:
    """Return whether more pictures are from the southern hemisphere, whose summer is January."""
    if not counts:
        return False
    from polyglance.search.signals.gazetteer import gazetteer

    south = 0
    for name, count in counts.items():
        place = gazetteer().place(name)
        if place is not None and place.latitude is not None and place.latitude < 0:
            south += count
    return 2 * south > sum(counts.values())
