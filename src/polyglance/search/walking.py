"""Which files of a folder a library is made of.

Hidden files are passed over. A link to a file is taken if it stays in the folder; one
that leads elsewhere, or to a folder, is not followed. Pictures and clips of kinds that
cannot be read are named, so that nobody looks for them in vain.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import PolyglanceError, printable, reason
from polyglance.search.store import BadFile, Kind, Stamp
from polyglance.vision import clips, pictures

PICTURES = pictures.SUFFIXES
CLIPS = clips.SUFFIXES | {".3gp", ".flv", ".m2ts", ".mpeg", ".mpg", ".mts", ".ogv", ".wmv"}
UNREAD = frozenset(
    {".arw", ".cr2", ".cr3", ".dng", ".eps", ".heic", ".heif", ".jxl", ".nef", ".orf"}
    | {".psd", ".raf", ".rw2", ".svg", ".tga", ".xcf"}
)
"""Pictures of kinds that nothing here decodes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that by its name is a picture or clip."""

    path: str
    kind: Kind
    stamp: Stamp


def as_place(path: str | Path) -> str:
    """A file or folder as the library names it: absolute, links resolved, with ``/``."""
    try:
        place = Path(path).expanduser().resolve().as_posix()
        place.encode()
        return place
    except UnicodeEncodeError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: the name is not UTF-8: rename it"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise PolyglanceError(f"{printable(str(path))}: is no path ({reason(error)})") from error


def is_within(path: str, folder: str) -> bool:
    """Whether a path is the folder, or lies in it at any depth."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_gone(path: str) -> bool:
    """Whether there is no such file; one that must not be looked at is not gone."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def is_there(place: str) -> bool:
    """Whether there is anything at a place: an empty folder may be a disk that is not mounted."""
    if is_gone(place) or not os.path.isdir(place):  # noqa: PTH112
        return not is_gone(place)
    try:
        with os.scandir(place) as entries:
            return next(entries, None) is not None
    except OSError as error:
        raise PolyglanceError(
            f"{printable(place)}: the folder cannot be read ({reason(error)})"
        ) from error


def walk(place: str, left_out: Collection[str] = ()) -> Iterator[Candidate | BadFile]:
    """The pictures and clips of a folder in the order of their names; or the one of a file."""
    if os.path.isdir(place):  # noqa: PTH112 (unlike Path.is_dir it never raises)
        yield from _below(place, place, frozenset(left_out))
    elif os.path.exists(place):  # noqa: PTH110
        yield from _judged(place, place, Path(place).name)
    else:
        raise PolyglanceError(f"{printable(place)}: no such file or folder")


def _below(folder: str, root: str, left_out: frozenset[str]) -> Iterator[Candidate | BadFile]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        yield BadFile(folder, f"the folder cannot be read ({reason(error)})")
        return
    for entry in entries:
        path = f"{folder.rstrip('/')}/{entry.name}"
        if entry.name.startswith(".") or path in left_out:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(path, root, left_out)
        elif entry.is_symlink() and entry.is_dir():
            yield BadFile(path, "is a link to a folder, which is not followed")
        else:
            yield from _judged(path, root, entry.name)


def _judged(path: str, root: str, name: str) -> Iterator[Candidate | BadFile]:
    """A file as a candidate, or why it is none; nothing of a file of another kind."""
    suffix = Path(name).suffix.lower()
    kind: Kind | None = "picture" if suffix in PICTURES else "clip" if suffix in CLIPS else None
    if suffix in UNREAD:
        yield BadFile(path, f"{suffix[1:].upper()} files are not read: convert it to JPEG")
    if kind is None:
        return
    try:
        path.encode()
        status = os.stat(path)
        if Path(path).is_symlink() and not is_within(os.path.realpath(path), root):
            yield BadFile(path, "is a link that leads out of the folder, which is not followed")
        elif not Path(path).is_file():
            yield BadFile(path, "is not a file")
        else:
            yield Candidate(path, kind, Stamp(status.st_size, status.st_mtime_ns))
    except UnicodeEncodeError:
        yield BadFile(path, "its name is not UTF-8: rename it")
    except OSError as error:
        yield BadFile(path, f"cannot be read ({reason(error)})")
