"""The signals of an open library: its words, its places, and the queries that use them."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from polyglance.search.signals.folding import fold
from polyglance.search.signals.ranking import MAX_FREQUENCY, SignalQuery, collect
from polyglance.search.signals.understanding import Periods, Understood, check_signals, understand
from polyglance.search.signals.word_index import (
    FileWordIndex,
    WordIndex,
    items_with_all,
    words_path,
)
from polyglance.search.signals.words import query_words, split_words
from polyglance.search.sql_store import SqlStore
from polyglance.search.store import Details, Ids, Store

if TYPE_CHECKING:
    from polyglance.search.postgres.store import PostgresStore
    from polyglance.search.query import QueryText


_BLOCK = 1000
_MAX_NAMED = 5000
"""Items whose whole names are compared with a query; of more, only words are."""
_SUFFIX = re.compile(r"[A-Za-z0-9]{2,5}")


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
        self._named: tuple[Hashable, str, Ids] | None = None
        """The last query that was compared with whole names, at a revision of the store."""

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
            is_name=lambda whole, periods: "names" not in off and self._is_name(whole, periods),
        )

    def _is_name(self, text: str, periods: Periods) -> bool:
        """Return whether files or folders are called so, or have all of its words in their names
        though their dates lie outside the periods: scans and received files have no date."""
        if len(self.named_items(text)):
            return True
        if not periods:
            return False
        dates = [taken[:10] for _, _, taken in self._with_words(query_words(text))]
        return any(all(not first <= day <= last for first, last in periods) for day in dates)

    def named_items(self, text: str) -> Ids:
        """Return the rising ids of the items whose file or folder is called exactly so.

        Names of a single word, such as ``beach``, are none: they may as well say what is to be
        seen, and count by the words of names. ``IMG_0003``, ``beach.jpg``, ``Summer 2023`` and
        ``2023/beach`` are. Nor are those of more than half of the items, or of very many.
        """
        known = self._named
        if known is None or known[:2] != (self._store.revision(), text):
            known = self._named = self._store.revision(), text, self._find_named(text)
        return known[2]

    def _find_named(self, text: str) -> Ids:
        stem, _, suffix = text.strip().rpartition(".")
        has_suffix = bool(stem) and _SUFFIX.fullmatch(suffix) is not None
        if not (has_suffix or _is_specific(text)):
            return np.zeros(0, np.int64)
        wanted = {_fold_name(text), _fold_name(stem)} if has_suffix else {_fold_name(text)}
        found = self._with_words(query_words(stem if has_suffix else text))
        named = [item for item, path, _ in found if not wanted.isdisjoint(_names_of(path))]
        if not named and "/" in _fold_name(text):
            ends = tuple(f"/{name.strip('/')}" for name in wanted)
            paths = [(item, f"/{_fold_name(path)}") for item, path, _ in found]
            named = [i for i, path in paths if path.endswith(ends) or _stem(path).endswith(ends)]
        return np.array(sorted(named), np.int64)

    def _with_words(self, words: Collection[str]) -> list[tuple[int, str, str]]:
        """Return id, path and date of the items whose names have all of some words, if few do."""
        index = self.words()
        if index is None or not words:
            return []
        index.refresh(complete=False)
        found = items_with_all(index, [f"n:{word}" for word in words])
        if len(found) > min(max(1.0, MAX_FREQUENCY * index.count()), _MAX_NAMED):
            return []
        rows, store = list[tuple[int, str, str]](), cast("SqlStore", self._store)
        for start in range(0, len(found), _BLOCK):
            block = found[start : start + _BLOCK].tolist()
            marks = ", ".join("?" * len(block))
            statement = f"SELECT id, path, taken FROM items WHERE id IN ({marks})"
            rows += [(item, path, str(taken)) for item, path, taken in
                     store.fetch_all(statement, block)]  # fmt: skip
        return rows

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
        named = None if understood.name is None else self.named_items(understood.name)
        words = words if understood.rest else ""
        return collect(understood, words, self.words(), check_signals(off), named)

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


def _is_specific(name: str) -> bool:
    """Return whether a name has several words or a number in it."""
    words = list(split_words(name))
    return len(words) > 1 or any(character.isdigit() for word in words for character in word)


def _fold_name(name: str) -> str:
    return " ".join(fold(name).replace("\\", "/").split())


def _stem(path: str) -> str:
    """Return a path without the suffix of its file."""
    folder, slash, file = path.rpartition("/")
    return folder + slash + (file.rpartition(".")[0] or file)


def _names_of(path: str) -> set[str]:
    """Return the folded names of a file, with and without its suffix, and of its folders."""
    whole = _fold_name(path)
    return {name for name in (*whole.split("/"), _stem(whole).rpartition("/")[2]) if name}


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
