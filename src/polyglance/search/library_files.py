"""Back up, restore and repair the file of a library.

A library in use is more than its file: what was written last may be in ``-wal`` beside it. So
a backup is made through SQLite, while others read and write, and is one file that needs nothing
beside it.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from polyglance.errors import DataError, PolyglanceError, error_reason, printable
from polyglance.search.salvage import Salvage
from polyglance.search.sqlite_connection import APPLICATION_ID, connect
from polyglance.search.sqlite_salvage import ID_GAP, salvage
from polyglance.search.sqlite_store import SqliteStore
from polyglance.search.store import LibraryNotFoundError

_BESIDE = ("-wal", "-shm")
"""Suffixes of the files that belong to an open library."""


def back_up(path: Path, target: Path, *, overwrite: bool = False) -> int:
    """Copy a library as it is now, while others may use it; the copy is verified.

    Args:
        path: The library.
        target: The file to write.
        overwrite: Replace ``target`` if it exists.

    Returns:
        The number of items.
    """
    if not overwrite and target.exists():
        raise PolyglanceError(
            f"{printable(str(target))} exists: name another file, or give --overwrite"
        )
    own = {Path(f"{path}{suffix}").resolve() for suffix in ("", *_BESIDE)}
    if target.resolve() in own or (target.exists() and path.exists() and target.samefile(path)):
        # Whoever has the library open would go on writing to the file that was replaced.
        raise PolyglanceError(
            f"{printable(str(target))} is the library itself: name another file for the backup"
        )
    if target.exists() and not _is_library(target):
        raise PolyglanceError(
            f"{printable(str(target))} exists and is no library, and is not replaced: name another"
            " file"
        )
    store = SqliteStore(path)
    try:
        with _partial(target) as partial:
            _copy(store, partial)
            count = _check(partial, target)
            _put_in_place(partial, target)
            return count
    finally:
        store.close()


def restore(backup: Path, path: Path, *, overwrite: bool = False) -> tuple[int, Path | None]:
    """Make a backup the library; the library of before stays beside it.

    Ids that were given after the backup are not given again.

    Args:
        backup: A file of `back_up`.
        path: The library.
        overwrite: Replace the library if it exists.

    Returns:
        The number of items, and where the library of before is now, or None if there was none.
    """
    if path.exists() and not overwrite:
        raise PolyglanceError(
            f"{printable(str(path))} exists: give --overwrite to replace it; it stays beside the"
            " restored one"
        )
    store = SqliteStore(backup)
    try:
        with _partial(path) as partial:
            _copy(store, partial)
            count = _check(partial, backup)
            copy = SqliteStore(partial)
            try:
                with copy.changes() as changes:
                    changes.reserve_ids(ID_GAP)
            finally:
                copy.close()
            _finish(partial)
            return count, _swap(partial, path, "before-restore")
    finally:
        store.close()


def repair_file(path: Path) -> tuple[Salvage, Path | None]:
    """Replace a damaged library by what can be read of it; it stays beside the new file.

    Args:
        path: The damaged library.

    Returns:
        What was kept, and where the damaged file is now.
    """
    with _partial(path) as partial:
        kept = salvage(path, partial)
        _finish(partial)
        return kept, _swap(partial, path, "damaged")


def find_damage(path: Path) -> list[str]:
    """Return a sentence for each damaged part of a library, one that does not open included."""
    try:
        store = SqliteStore(path)
    except LibraryNotFoundError:
        raise
    except DataError as error:
        return [str(error)]
    try:
        return list(store.find_damage())
    finally:
        store.close()


def _is_library(path: Path) -> bool:
    """Return whether a file begins as a library does, by SQLite's header."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:
        return False
    return header[68:72] == APPLICATION_ID.to_bytes(4, "big") and header.startswith(b"SQLite")


def _copy(store: SqliteStore, path: Path) -> None:
    with closing(connect(path)) as copy:
        store.backup(copy)
    _finish(path)


def _finish(path: Path) -> None:
    """Make a database one file that needs none beside it, and write it to the disk."""
    with closing(connect(path)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _check(path: Path, name: Path) -> int:
    store = SqliteStore(path)
    try:
        if damage := next(store.find_damage(), None):
            raise DataError(f"{printable(str(name))}: {damage}")
        counts = store.counts()
        return counts.pictures + counts.clips
    finally:
        store.close()


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Yield the name of a file beside ``target``, deleted at the end if it is still there."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(target))}: cannot be written ({error_reason(error)})"
        ) from error
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(target))}: cannot be written ({error_reason(error)})"
        ) from error
    finally:
        for suffix in ("", *_BESIDE):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _swap(new: Path, path: Path, suffix: str) -> Path | None:
    """Put a new file in the place of a library that nobody has open, which is kept beside it."""
    kept: Path | None = None
    if path.exists():
        _refuse_in_use(path)
        kept = path.with_name(f"{path.name}.{suffix}")
        number = 1
        while kept.exists():
            number += 1
            kept = path.with_name(f"{path.name}.{suffix}-{number}")
        for beside in _BESIDE:
            with suppress(FileNotFoundError):
                os.replace(f"{path}{beside}", f"{kept}{beside}")
        os.replace(path, kept)
    _put_in_place(new, path)
    return kept


def _put_in_place(new: Path, path: Path) -> None:
    new.chmod(0o644)
    os.replace(new, path)
    with suppress(OSError):  # not every system can write a folder to the disk
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refuse_in_use(path: Path) -> None:
    """Refuse to replace a file that another process has open: it would go on with the old one."""
    try:
        with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise PolyglanceError(
                f"another process has {printable(str(path))} open: stop it, such as `polyglance"
                " serve`, and try again"
            ) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        pass  # too damaged to be locked
