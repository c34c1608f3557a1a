"""What was translated before: one SQLite file, which a killed run leaves whole.

A translation is known by the translator's fingerprint, the two languages and the
text, so that it serves every manifest. Several runs may use a file at once.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from polyglance.errors import PolyglanceError
from polyglance.text.translation.translators import CacheableTranslator
from polyglance.weights import cache_folder

_TABLES = """
CREATE TABLE IF NOT EXISTS translators (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (fingerprint, source, target)
);
CREATE TABLE IF NOT EXISTS translations (
    translator INTEGER NOT NULL REFERENCES translators (id),
    text TEXT NOT NULL,
    translation TEXT NOT NULL,
    PRIMARY KEY (translator, text)
) WITHOUT ROWID;
"""
_PATIENCE = 60.0
"""Seconds that a writer waits for another; a batch is written in milliseconds."""
_AT_ONCE = 500
"""Texts looked up in one question; SQLite takes 999 values."""


class TranslationCache:
    """Translations on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            self._use_wal()
            self._file.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")

    @classmethod
    def open(cls, path: str | Path | None = None) -> TranslationCache:
        """A cache file; without one, that in the user's cache folder."""
        place = cache_folder() / "translations.sqlite3" if path is None else Path(path)
        return cls(place.expanduser())

    def lookup(self, translator: CacheableTranslator, texts: Iterable[str]) -> dict[str, str]:
        """Those of the texts that this translator has translated before."""
        wanted = list(dict.fromkeys(texts))
        known: dict[str, str] = {}
        with self._explained():
            number = self._number(translator)
            for start in range(0, len(wanted), _AT_ONCE):
                block = wanted[start : start + _AT_ONCE]
                marks = ",".join("?" * len(block))
                known.update(
                    self._file.execute(
                        "SELECT text, translation FROM translations"
                        f" WHERE translator = ? AND text IN ({marks})",
                        (number, *block),
                    )
                )
        return known

    def add(self, translator: CacheableTranslator, translations: Mapping[str, str]) -> None:
        """Keep some translations, all or none; what another run was faster with stays."""
        with self._explained():
            number = self._number(translator)
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._file.executemany(
                    "INSERT OR IGNORE INTO translations VALUES (?, ?, ?)",
                    [(number, text, said) for text, said in translations.items()],
                )
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TranslationCache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _use_wal(self) -> None:
        """Readers and a writer do not wait for each other; a kill loses no finished batch.

        Two runs that begin a file together are in each other's way here, and SQLite does not
        wait by itself.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self._file.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    def _number(self, translator: CacheableTranslator) -> int:
        key = (translator.fingerprint, translator.source, translator.target)
        asked = "SELECT id FROM translators WHERE fingerprint = ? AND source = ? AND target = ?"
        row = self._file.execute(asked, key).fetchone()
        if row is None:
            self._file.execute(
                "INSERT OR IGNORE INTO translators (fingerprint, source, target, name)"
                " VALUES (?, ?, ?, ?)",
                (*key, translator.name),
            )
            row = self._file.execute(asked, key).fetchone()
        return int(row[0])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise PolyglanceError(
                f"{self.path} does not serve as a cache of translations ({error}): delete it, or"
                " name another file with --cache"
            ) from error
