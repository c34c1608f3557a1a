"""Backups of libraries, and libraries where nothing can be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helpers.store_entries import MODEL_INFO, entry
from polyglance.errors import DataError, PolyglanceError
from polyglance.search.library import Library
from polyglance.search.library_files import back_up, restore
from polyglance.search.sqlite_store import SqliteStore

FIXTURE = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "library.polyglance"
NOBODY = 65534


def paths(path: Path) -> list[str]:
    store = SqliteStore(path)
    try:
        return [one.item.path for one in store.entries()]
    finally:
        store.close()


def test_a_backup_of_a_library_in_use_has_all_that_was_written(tmp_path: Path) -> None:
    path, copy = tmp_path / "my.polyglance", tmp_path / "disk" / "backup"
    store = SqliteStore(path, MODEL_INFO)
    store.put(entry(f"/{number}", str(number)) for number in range(50))
    assert back_up(path, copy) == 50
    assert sorted(file.name for file in copy.parent.iterdir()) == ["backup"]
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []
    store.close()
    assert len(paths(copy)) == 50
    with pytest.raises(PolyglanceError, match="--overwrite"):
        back_up(path, copy)
    back_up(path, copy, overwrite=True)
    diary = copy.with_name("diary.txt")
    diary.write_text("mine")
    with pytest.raises(PolyglanceError, match="exists and is no library, and is not replaced"):
        back_up(path, diary, overwrite=True)
    assert diary.read_text() == "mine"


def test_a_restored_library_gives_no_id_twice(tmp_path: Path) -> None:
    path, copy = tmp_path / "my.polyglance", tmp_path / "backup"
    store = SqliteStore(path, MODEL_INFO)
    store.put([entry("/a")])
    back_up(path, copy)
    store.put([entry("/b", "other")])
    [_, later] = store.ids().tolist()
    with pytest.raises(PolyglanceError, match=r"another process has .* open"):
        restore(copy, path, overwrite=True)
    store.close()
    with pytest.raises(PolyglanceError, match="--overwrite"):
        restore(copy, path)
    count, before = restore(copy, path, overwrite=True)
    assert (count, paths(path)) == (1, ["/a"])
    assert before is not None
    assert paths(before) == ["/a", "/b"]
    store = SqliteStore(path)
    store.put([entry("/c", "third")])
    assert store.ids().tolist()[1] > later
    assert list(store.find_damage()) == []
    store.close()
    assert restore(copy, tmp_path / "elsewhere" / "new") == (1, None)


def test_a_damaged_library_is_neither_backed_up_nor_restored(tmp_path: Path) -> None:
    path = tmp_path / "my.polyglance"
    store = SqliteStore(path, MODEL_INFO)
    store.put([entry("/a"), entry("/b", "other")])
    store.close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE items SET taken = '1999' WHERE id = 1")
        raw.commit()
    for work in (
        lambda: back_up(path, tmp_path / "backup"),
        lambda: restore(path, tmp_path / "new"),
    ):
        with pytest.raises(DataError, match="/a: what is on record does not match"):
            work()
    assert [file.name for file in tmp_path.iterdir()] == ["my.polyglance"]


def test_what_was_written_survives_a_power_cut(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s", MODEL_INFO)
    assert store.fetch_all("PRAGMA synchronous") == [(2,)]
    store.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that anybody may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(work: Callable[[], str]) -> str:
    """Return what work returns in a process that may write to nothing of ours."""
    read_end, write_end = os.pipe()
    if not (child := os.fork()):
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(write_end, work().encode())
        except BaseException as error:
            os.write(write_end, repr(error).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def search_and_write(path: Path) -> str:
    """Read all vectors of a library, and try to write."""
    store = SqliteStore(path)
    found = sum(len(rows) for rows in store.rows_after(0))
    damage, count = len(list(store.find_damage())), store.counts().pictures
    try:
        store.delete(["/a"])
    except PolyglanceError as error:
        return f"{found} {count} {damage} {'cannot be written to: copy it' in str(error)}"
    return "written"


def test_a_library_can_be_searched_where_nothing_can_be_written(folder: Path) -> None:
    path = folder / "my #?.polyglance"
    store = SqliteStore(path, MODEL_INFO)
    store.put([entry("/a"), entry("/b", "other")])
    store.close()
    path.chmod(0o444)
    folder.chmod(0o555)
    assert as_nobody(lambda: search_and_write(path)) == "2 2 0 True"


def test_a_library_in_use_by_its_owner_can_be_searched_by_others(folder: Path) -> None:
    path = folder / "my.polyglance"
    store = SqliteStore(path, MODEL_INFO)
    store.put([entry("/a"), entry("/b", "other")])
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    assert as_nobody(lambda: search_and_write(path)) == "2 2 0 True"  # not yet in the file itself
    store.close()


def test_a_library_of_version_0_1_can_be_searched_where_nothing_can_be_written(
    folder: Path,
) -> None:
    path = Path(shutil.copyfile(FIXTURE, folder / "old.polyglance"))
    path.chmod(0o444)
    folder.chmod(0o555)
    assert as_nobody(lambda: str(len(Library(path)))) == "6"
    assert path.read_bytes() == FIXTURE.read_bytes()


def test_a_read_only_library_that_changes_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    writer = SqliteStore(path, MODEL_INFO)
    writer.put([entry("/a")])
    writer.close()
    monkeypatch.setattr("polyglance.search.sqlite_connection._is_writable", lambda path: False)
    reader = SqliteStore(path)
    reader.revision()
    os.utime(path, (1, 1))
    with pytest.raises(PolyglanceError, match="open it again"):
        reader.revision()
    reader.close()


def test_a_backup_does_not_replace_the_library(store: SqliteStore, tmp_path: Path) -> None:
    store.put([entry("/a")])
    link, other = tmp_path / "link", tmp_path / "other"
    link.symlink_to(store.path)
    other.hardlink_to(store.path)
    for target in (store.path, link, other, Path(f"{store.path}-wal")):
        with pytest.raises(PolyglanceError, match="is the library itself"):
            back_up(store.path, target, overwrite=True)
    store.put([entry("/b", "b")])
    assert list(SqliteStore(store.path).paths()) == ["/a", "/b"]
