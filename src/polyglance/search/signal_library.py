"""The part of `Library` that knows more than pixels: names, dates, places, texts, duplicates."""

from __future__ import annotations

from collections.abc import Collection

from polyglance.search.duplicates import Stack
from polyglance.search.exact import ExactIndex
from polyglance.search.library_contents import LibraryContents
from polyglance.search.library_stacks import LibraryStacks
from polyglance.search.query import MediaRef, QueryText
from polyglance.search.signals.library_signals import LibrarySignals
from polyglance.search.signals.ranking import SignalQuery
from polyglance.search.signals.understanding import Understood, check_signals
from polyglance.search.store import VectorRows
from polyglance.search.vector_index import VectorIndex


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
        return self._signals().understand(text, language, check_signals(off))

    def refresh_signals(self) -> None:
        """Bring the index of words up to date with the library, as indexing does at its end."""
        signals = self._signals()
        signals.name_places()
        signals.refresh()

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

    def _ask(
        self, text: QueryText | None, language: str | None, off: Collection[str]
    ) -> SignalQuery | None:
        """Prepare the signals of a query, or None if it has no words."""
        return None if text is None else self._signals().ask(text, language, off)
