"""Libraries from a stranger: nothing in them runs, and only confirmed folders are trusted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helpers.colour_encoder import ColourEncoder
from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.confirmed_folders import config_folder, confirmed_folders
from polyglance.search.library import Library
from polyglance.search.query import MediaRef
from polyglance.search.repair import repair
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import SCANNED, BadFile, FileSignature, LibraryDamagedError, ModelInfo
from polyglance.serve.catalog import LibraryCatalog
from polyglance.serve.errors import HTTPProblem

COLOURS = ModelInfo("colours", "", "fingerprint of colours", 12, "of a stranger")
UNIT = (1, *11 * (0,))


@pytest.fixture(autouse=True)
def no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Confirm no folder before a test."""
    monkeypatch.setenv("POLYGLANCE_CONFIG", str(tmp_path / "config"))


def make_library(path: Path, folder: str, *files: Path) -> Path:
    """Write a library that names files, as a stranger may."""
    store = SqliteStore(path, COLOURS)
    store.add_place(SCANNED, folder)
    store.put(entry(file.as_posix(), file.name, UNIT) for file in files)
    store.close()
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM bad; END",
        "CREATE VIEW v AS SELECT * FROM items",
        "CREATE TABLE other (x)",
        "CREATE TABLE g (x, y AS (abs(x)))",
        "CREATE VIRTUAL TABLE f USING fts4(x)",
        "CREATE INDEX i ON items (abs(size))",
        "ALTER TABLE bad ADD COLUMN extra AS (abs(size))",
        "DROP INDEX items_by_taken",
        "DROP TABLE bad",
    ],
)
def test_a_schema_that_is_not_ours_is_refused(tmp_path: Path, statement: str) -> None:
    SqliteStore(tmp_path / "s", MODEL_INFO).close()
    with closing(sqlite3.connect(tmp_path / "s")) as raw:
        raw.execute(statement)
        raw.commit()
    with pytest.raises(DataError, match=r"which no library has|tables are not those") as refused:
        SqliteStore(tmp_path / "s")
    assert "\n" not in str(refused.value)


def test_a_column_that_computes_is_not_read_with_the_schema(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s", MODEL_INFO).close()
    with closing(sqlite3.connect(tmp_path / "s")) as raw:
        raw.execute("ANALYZE")
        raw.executemany("INSERT INTO sqlite_stat1 VALUES (?, NULL, ?)", [("items", "1")] * 999)
        raw.commit()
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute(
            "UPDATE sqlite_master SET sql = 'CREATE TABLE sqlite_stat1(tbl, idx, stat AS"
            " (length(hex(zeroblob(100000000)))))' WHERE name = 'sqlite_stat1'"
        )
        raw.commit()
    # Minutes, and a gigabyte, if it were.
    with pytest.raises(DataError, match="sqlite_stat1, which no library has"):
        SqliteStore(tmp_path / "s")


def test_paths_that_no_file_has_are_refused(tmp_path: Path) -> None:
    path = make_library(tmp_path / "theirs.polyglance", "/p\0/q")
    store = SqliteStore(path)
    store.put([entry("/p/a\0.jpg", "a", UNIT)])
    store.put_bad_files([BadFile("/p/b\0.jpg", "is torn", FileSignature(1, 2))])
    store.close()
    with Library(path, model=ColourEncoder()) as library:
        for ask in (
            lambda: library.folders,
            lambda: list(library.paths()),
            lambda: library.get(1),
            lambda: library.search("red"),
            library.update,
        ):
            with pytest.raises(LibraryDamagedError) as refused:
                ask()
            assert "\n" not in str(refused.value)
        assert len(library.verify()) == 3
    repair(path, model=ColourEncoder())
    with Library(path) as library:
        assert (library.verify(), list(library.paths()), library.folders) == ([], [], ())


def test_a_library_that_sqlite_analysed_is_accepted(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s", MODEL_INFO).close()
    with closing(sqlite3.connect(tmp_path / "s")) as raw:
        raw.execute("ANALYZE")
        raw.commit()
    SqliteStore(tmp_path / "s").close()


def status(library: Library, path: Path) -> int:
    """Return how a server answers for a file: 200, or the status of its refusal."""
    catalog = LibraryCatalog(library)
    [number] = [
        number
        for number, (item, _) in library._store().lookup(range(1, 20)).items()
        if item.path == path.as_posix()
    ]
    media = library.get(number)
    assert isinstance(media, MediaRef)
    try:
        file, _ = catalog.open_file(media)
    except HTTPProblem as problem:
        return problem.status
    file.close()
    return 200


def test_only_files_of_confirmed_folders_are_served(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    mine, key, hidden, other = (
        photos / "a.jpg", photos / "key.txt", photos / ".private" / "b.jpg",
        tmp_path / "else" / "c.jpg",
    )  # fmt: skip
    for file in (mine, key, hidden, other):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"content")
    link = photos / "link.jpg"
    link.symlink_to(other)
    path = make_library(tmp_path / "theirs.polyglance", "/", mine, key, hidden, other, link)
    with Library(path) as library:
        assert library.unconfirmed == ("/",)
        assert [status(library, file) for file in (mine, key, hidden, other)] == [403] * 4
        library.trust(photos)
        assert [status(library, file) for file in (mine, key, hidden, other)] == [
            200,
            403,
            403,
            403,
        ]
        assert status(library, link) == 403  # leads out of the folder
        assert library.unconfirmed == ("/",)
    with Library(path) as library:  # the list is kept, outside the library
        assert library.confirmed == {photos.as_posix()}
        library.trust(tmp_path / "else", remember=False)
        assert status(library, other) == 200
    with Library(path) as library:
        assert status(library, other) == 403


def test_adding_a_folder_confirms_it_for_that_library_alone(
    library: Library, photos: Path, tmp_path: Path
) -> None:
    library.add(photos)
    assert library.confirmed == {photos.as_posix()}
    assert library.unconfirmed == ()
    with Library(make_library(tmp_path / "theirs", photos.as_posix())) as theirs:
        assert theirs.confirmed == frozenset()
        assert theirs.unconfirmed == (photos.as_posix(),)


def test_merging_adds_no_folder_that_was_not_confirmed(library: Library, tmp_path: Path) -> None:
    path = make_library(tmp_path / "theirs", "/", tmp_path / "a.jpg")
    assert library.merge(path) == 1
    assert library.folders == ()
    assert library.merge(path, trust=True) == 0
    assert library.folders == ("/",)
    with Library(path) as theirs:
        theirs.trust("/")
    with Library(tmp_path / "new", model=ColourEncoder()) as new:
        new.merge(path)
        assert new.folders == ("/",)
        assert new.unconfirmed == ()


def test_the_id_of_a_library_is_no_path(tmp_path: Path) -> None:
    assert confirmed_folders("../../../etc/passwd") == frozenset()
    with Library(make_library(tmp_path / "theirs", "/photos")) as library:
        library.trust()
    [written] = [file for file in config_folder().rglob("*") if file.is_file()]
    assert written.parent == config_folder() / "confirmed-folders"
    with written.open("a") as file:
        file.write('{"folder": "/cut off')
    with Library(tmp_path / "theirs") as library:
        assert library.confirmed == {"/photos"}


def test_a_list_that_cannot_be_written_is_an_error_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POLYGLANCE_CONFIG", str(tmp_path / "file" / "config"))
    with (
        Library(make_library(tmp_path / "theirs", "/photos")) as library,
        pytest.raises(PolyglanceError, match="POLYGLANCE_CONFIG"),
    ):
        library.trust()
