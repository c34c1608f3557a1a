"""A cache of translations in one SQLite file, which survives a killed run.

The key is the translator's fingerprint, the two languages and the text, so that all
manifests share it. Several runs may use a file at once.
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
_LOCK_TIMEOUT = 60.0
"""Seconds that a writer waits for another; writing a batch takes milliseconds."""
_BATCH_SIZE = 500
"""Texts per query; SQLite allows 999 values."""


class TranslationCache:
    """Translations on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._user_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None)
            self._use_wal()
            self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")

    @classmethod
    def open(cls, path: str | Path | None = None) -> TranslationCache:
        """Open a cache file; by default the one in the user's cache folder."""
        file = cache_folder() / "translations.sqlite3" if path is None else Path(path)
        return cls(file.expanduser())

    def lookup(self, translator: CacheableTranslator, texts: Iterable[str]) -> dict[str, str]:
        """Return the cached translations of those texts that have one."""
        wanted = list(dict.fromkeys(texts))
        translations: dict[str, str] = {}
        with self._user_errors():
            translator_id = self._translator_id(translator)
            for start in range(0, len(wanted), _BATCH_SIZE):
                block = wanted[start : start + _BATCH_SIZE]
                placeholders = ",".join("?" * len(block))
                translations.update(
                    self._connection.execute(
                        "SELECT text, translation FROM translations"
                        f" WHERE translator = ? AND text IN ({placeholders})",
                        (translator_id, *block),
                    )
                )
        return translations

    def add(self, translator: CacheableTranslator, translations: Mapping[str, str]) -> None:
        """Store translations in one transaction; those that another run stored first stay."""
        with self._user_errors():
            translator_id = self._translator_id(translator)
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(
                    "INSERT OR IGNORE INTO translations VALUES (?, ?, ?)",
                    [
                        (translator_id, text, translation)
                        for text, translation in translations.items()
                    ],
                )
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

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
        """Use write-ahead logging: readers and a writer do not block each other.

        SQLite does not wait by itself when two runs create a file at the same time.
        """
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def _translator_id(self, translator: CacheableTranslator) -> int:
        key = (translator.fingerprint, translator.source, translator.target)
        query = "SELECT id FROM translators WHERE fingerprint = ? AND source = ? AND target = ?"
        row = self._connection.execute(query, key).fetchone()
        if row is None:
            self._connection.execute(
                "INSERT OR IGNORE INTO translators (fingerprint, source, target, name)"
                " VALUES (?, ?, ?, ?)",
                (*key, translator.name),
            )
            row = self._connection.execute(query, key).fetchone()
        return int(row[0])

    @contextmanager
    def _user_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise PolyglanceError(
                f"{self.path} cannot be used as a translation cache ({error}): name another file"
                " with --cache"
            ) from error
