"""Test what is particular to SQLite; test_store.py tests all stores."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import LibraryNotFoundError


def test_damage_is_found(store: SqliteStore) -> None:
    store.put(entry(f"/{name}", name) for name in "abcdef")
    assert list(store.find_damage()) == []
    raw = sqlite3.connect(store.path)
    blob = bytearray(raw.execute("SELECT vector FROM vectors WHERE id = 1").fetchone()[0])
    blob[0] ^= 1
    raw.execute("UPDATE vectors SET vector = ? WHERE id = 1", (bytes(blob),))
    raw.execute("UPDATE vectors SET vector = x'00' WHERE id = 2")
    raw.execute("DELETE FROM vectors WHERE id = 3")
    raw.execute("DELETE FROM items WHERE id = 4")
    raw.commit()
    damage = "\n".join(store.find_damage())
    for expected in (
        "/a: a vector does not match its checksum", "/b: a vector does", "/c: has no vector",
        "row 4 of vectors refers to a missing row of items",
    ):  # fmt: skip
        assert expected in damage
    assert "/e" not in damage
    with pytest.raises(DataError, match="vector 1 does not match its checksum"):
        store.rows(store.ids())  # a wrong score is never returned
    assert store.rows(np.array([5])).vectors.tolist() == [[1, 0, 0]]
    raw.close()


def test_a_file_with_a_zeroed_page_is_reported_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s.polyglance"
    store = SqliteStore(path, MODEL_INFO)
    store.put(entry(f"/{number}", str(number)) for number in range(300))
    store.close()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    opened = SqliteStore(path)
    try:
        damage = list(opened.find_damage())
    except DataError as error:  # where reading stops
        damage = [str(error)]
    assert any("damaged" in sentence for sentence in damage)
    opened.close()


def test_other_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LibraryNotFoundError, match="polyglance index FOLDER --library"):
        SqliteStore(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(DataError, match="not a library"):
        SqliteStore(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(DataError, match="not a Polyglance library"):
        SqliteStore(tmp_path / "other.db", MODEL_INFO)
    with pytest.raises(PolyglanceError):
        SqliteStore(tmp_path, MODEL_INFO)


def test_a_library_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s", MODEL_INFO).close()
    raw = sqlite3.connect(tmp_path / "s")
    for table in ("manifest", "manifest_copy"):
        raw.execute(f"UPDATE {table} SET value = '99' WHERE name = 'format'")
    raw.execute("CREATE TABLE later (what TEXT)")
    raw.commit()
    raw.close()
    with pytest.raises(DataError, match="newer version of Polyglance"):
        SqliteStore(tmp_path / "s")
