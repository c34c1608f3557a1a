"""The part of `Library` that knows more than pixels: names, dates, places, texts, duplicates."""

from __future__ import annotations

import logging
from collections.abc import Collection

from polyglance.encoders.protocol import Vectors
from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.languages import check_language
from polyglance.search.approximate import EXACT_LIMIT
from polyglance.search.duplicates import Stack
from polyglance.search.exact import ExactIndex
from polyglance.search.library_contents import LibraryContents
from polyglance.search.library_stacks import LibraryStacks
from polyglance.search.query import Hit, MediaRef, QueryText
from polyglance.search.signals.library_signals import LibrarySignals
from polyglance.search.signals.ocr import TextReader, open_text_reader, read_texts
from polyglance.search.signals.ranking import SignalQuery, rank_hits
from polyglance.search.signals.understanding import Understood, check_signals
from polyglance.search.sql_store import SqlStore
from polyglance.search.store import (
    READ_TEXTS,
    SETTING,
    Filter,
    LibraryDamagedError,
    VectorRows,
)
from polyglance.search.vector_index import VectorIndex
from polyglance.vision.limited_decoding import DecodeLimits

log = logging.getLogger(__name__)


class SignalLibrary(LibraryContents):
    """Takes queries apart, and keeps what they are compared with beside vectors."""

    _open_signals: LibrarySignals | None = None
    _open_stacks: LibraryStacks | None = None

    def close(self) -> None:
        """Close the file or the connection to the database."""
        with self._lock:
            if self._open_signals is not None:
                self._open_signals.close()
            self._open_signals = self._open_stacks = None
        super().close()

    def understand(
        self, text: str, language: str | None = None, off: Collection[str] = ()
    ) -> Understood:
        """Return how `search` takes a text apart: dates and places, and what the model reads.

        Args:
            text: The query.
            language: Its language if it is known.
            off: Signals that are switched off.

        Returns:
            The parts that become filters, and the rest.
        """
        language = None if language is None else check_language(language)
        return self._signals().understand(text, language, check_signals(off))

    def refresh_signals(self) -> None:
        """Bring the index of words up to date with the library, as indexing does at its end."""
        signals = self._signals()
        signals.name_places()
        signals.refresh()

    @property
    def reads_texts(self) -> bool:
        """Whether indexing also reads the text inside pictures, which `read_texts` switches on."""
        return READ_TEXTS in self._store().places(SETTING)

    def read_texts(
        self, on: bool = True, *, reader: TextReader | None = None, quiet: bool = True
    ) -> int:
        """Read the text inside pictures from now on, and of those that are in the library.

        Args:
            on: Or no longer; what was read stays.
            reader: Returns the text of an image; by default RapidOCR, of the extra ``ocr``.
            quiet: Show no progress bar.

        Returns:
            How many pictures had text that was not read before.
        """
        store = self._store()
        if not on:
            store.drop_places(SETTING, [READ_TEXTS])
            return 0
        if not isinstance(store, SqlStore):
            raise PolyglanceError(f"{self.name} cannot keep texts: use a file, or PostgreSQL")
        reader = reader or open_text_reader()
        if not self.reads_texts:
            store.add_place(SETTING, READ_TEXTS)
        count = read_texts(store, reader, self._limits or DecodeLimits(), quiet=quiet)
        self._signals().refresh()
        return count

    def _after_indexing(self, *, quiet: bool = True) -> None:
        """Bring up to date what is derived from the items."""
        self._index().build(quiet=quiet)
        if self.reads_texts:
            try:
                self.read_texts(quiet=quiet)
            except MissingExtraError as missing:
                log.warning("%s", missing)
        self.refresh_signals()
        if self.path is not None and sum(self._store().vector_counts(0)) <= EXACT_LIMIT:
            self._stacks().refresh()

    def duplicates(self) -> list[Stack]:
        """Return copies, near-duplicates and bursts; only what is new is compared.

        Nothing is deleted: that is for the owner to decide.
        """
        return self._stacks().all()

    def stack_of(self, media: MediaRef) -> list[MediaRef]:
        """Return what is stacked with a picture (see `duplicates`), itself first."""
        return self._stacks().of(media)

    def _stacks(self) -> LibraryStacks:
        with self._lock:
            if self._open_stacks is None:
                self._open_stacks = LibraryStacks(self._store(), self._all_rows, self.path)
            return self._open_stacks

    def _all_rows(self) -> VectorRows:
        index = self._index()
        with self._lock:
            return (
                index.rows()
                if isinstance(index, VectorIndex)
                else ExactIndex(self._store()).refresh()
            )

    def _signals(self) -> LibrarySignals:
        with self._lock:
            if self._open_signals is None:
                self._open_signals = LibrarySignals(self._store(), self.path)
            return self._open_signals

    def _take_apart(
        self, text: QueryText | None, language: str | None, off: Collection[str]
    ) -> Understood:
        """Take a query apart; one in several languages, or without words, stays as it is."""
        switched_off = check_signals(off)
        if isinstance(text, str):
            return self._signals().understand(text, language, switched_off)
        words = " ".join(text.values()) if text else ""
        return Understood(words, rest=words)

    def _find(
        self,
        vector: Vectors,
        count: int,
        where: Filter,
        asked: SignalQuery | None,
        *,
        one_per_item: bool = True,
        stack: bool = False,
    ) -> list[Hit]:
        """Return the best hits of a query.

        Args:
            vector: The query, ``[width]``.
            count: How many to return at most.
            where: Only items that match.
            asked: The query's signals, or None without words.
            one_per_item: Return only the best span of a clip.
            stack: Return only the best of each stack.

        Returns:
            The hits, best first.
        """
        store, wanted = self._store(), count * (2 if stack else 1)
        while True:
            revision = store.revision()
            with self._lock:
                bonus = asked.bonus if asked else None
                neighbors = self._index().search(
                    vector, wanted, where, one_per_item=one_per_item, bonus=bonus
                )
            items = store.lookup(neighbors.ids.tolist())
            if len(items) < len(neighbors) and store.revision() == revision:
                # Nobody deleted them.
                raise LibraryDamagedError(self.name, "vectors belong to no item")
            hits = rank_hits(neighbors, items, asked)
            if not stack:
                return hits
            folded = self._stacks().fold(hits)
            if len(folded) >= count or len(neighbors) < wanted:
                return folded[:count]
            wanted *= 4
