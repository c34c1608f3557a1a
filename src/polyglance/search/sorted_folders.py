"""Copy or link files into folders named by their labels; nothing is overwritten or moved."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from polyglance.errors import PolyglanceError, error_reason, printable
from polyglance.search.classification import Classification

_UNSAFE = '/\\:*?"<>|'
"""Characters that some system does not allow in a name."""


def sort_into_folders(
    results: Iterable[Classification], target: Path, *, link: bool = False
) -> tuple[int, int]:
    """Put each classified file into ``target/label``, and leave those that fit none where they are.

    A file that is there already is skipped, also by a second run; another one of the same name
    stays, and the new one is numbered: ``dog (2).jpg``.

    Args:
        results: What `Library.classify` returned.
        target: The folder; created if it does not exist.
        link: Make symbolic links instead of copies.

    Returns:
        How many files were put there, and how many were there already.
    """
    put = there = 0
    for result in results:
        if result.label is None:
            continue
        folder = target / folder_name(result.label)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if _put(
                result.item.path, folder, _link if link else _copy, _links_to if link else _same
            ):
                put += 1
            else:
                there += 1
        except OSError as error:
            raise PolyglanceError(
                f"{printable(str(error.filename or folder))}: {error_reason(error)}; {put:,} files"
                " were done, and the same command continues"
            ) from error
    return put, there


def folder_name(label: str) -> str:
    """Return a label as the name of a folder, on any system."""
    name = "".join("_" if c in _UNSAFE or not c.isprintable() else c for c in label)
    return name.strip(" .")[:80] or "_"


def _put(
    source: Path,
    folder: Path,
    create: Callable[[Path, Path], None],
    is_there: Callable[[Path, Path], bool],
) -> bool:
    """Create a file in a folder under a name that is free; return False if it is there already."""
    number = 1
    while True:
        name = source.name if number == 1 else f"{source.stem} ({number}){source.suffix}"
        try:
            create(source, folder / name)
            return True
        except FileExistsError:
            if is_there(source, folder / name):
                return False
            number += 1


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as original, target.open("xb") as copy:
        try:
            shutil.copyfileobj(original, copy, 1 << 20)
        except BaseException:  # also if interrupted: half a picture is none
            target.unlink(missing_ok=True)
            raise
    shutil.copystat(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source)


def _same(source: Path, target: Path) -> bool:
    return target.is_file() and filecmp.cmp(source, target, shallow=False)


def _links_to(source: Path, target: Path) -> bool:
    return target.is_symlink() and target.readlink() == source
