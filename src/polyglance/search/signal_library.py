"""The part of `Library` that knows more than pixels: names, dates, places, texts, duplicates."""

from __future__ import annotations

from collections.abc import Collection

from polyglance.search.library_contents import LibraryContents
from polyglance.search.query import QueryText
from polyglance.search.signals.library_signals import LibrarySignals
from polyglance.search.signals.ranking import SignalQuery
from polyglance.search.signals.understanding import Understood, check_signals


class SignalLibrary(LibraryContents):
    """Takes queries apart, and keeps what they are compared with beside vectors."""

    _open_signals: LibrarySignals | None = None

    def close(self) -> None:
        """Close the file or the connection to the database."""
        with self._lock:
            if self._open_signals is not None:
                self._open_signals.close()
            self._open_signals = None
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
