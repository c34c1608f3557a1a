"""Find the pictures and clips of a folder.

Hidden files are skipped. A link to a file is followed if it stays in the folder; one that leads
elsewhere, or to a folder, is not. Formats that cannot be decoded are reported, so that nobody
searches for such a file in vain.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from polyglance.errors import PolyglanceError, error_reason, printable
from polyglance.search.store import BadFile, FileSignature, Kind
from polyglance.vision import clips, pictures

IMAGE_SUFFIXES = pictures.SUFFIXES
CLIP_SUFFIXES = clips.SUFFIXES | {".3gp", ".flv", ".m2ts", ".mpeg", ".mpg", ".mts", ".ogv", ".wmv"}
UNSUPPORTED_SUFFIXES = frozenset({".eps", ".jxl", ".psd", ".svg", ".tga", ".xcf"})
"""Image formats that cannot be decoded here."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file that is a picture or clip by its suffix."""

    path: str
    kind: Kind
    signature: FileSignature
    ctime_ns: int = 0
    """When the file was last changed, renamed or given other rights; 0 if unknown."""


def resolve_path(path: str | Path) -> str:
    """Return a path as the library stores it: absolute, links resolved, with ``/``."""
    try:
        resolved = Path(path).expanduser().resolve().as_posix()
        resolved.encode()
        return resolved
    except UnicodeEncodeError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: the name is not UTF-8: rename it"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise PolyglanceError(
            f"{printable(str(path))}: is not a path ({error_reason(error)})"
        ) from error


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is the folder or lies in it, at any depth."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_missing(path: str) -> bool:
    """Return whether there is no such file; one that may not be accessed is not missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def has_content(path: str) -> bool:
    """Return whether a path exists and is not an empty folder, such as an unmounted disk's."""
    if is_missing(path) or not os.path.isdir(path):  # noqa: PTH112
        return not is_missing(path)
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    except OSError as error:
        raise PolyglanceError(
            f"{printable(path)}: the folder cannot be read ({error_reason(error)})"
        ) from error


def format_scan_time(folder: str, start_ns: int) -> str:
    """Return what is recorded of a folder's last complete scan: when it began, and the folder."""
    return f"{start_ns} {folder}"


def last_scan_of(folder: str, recorded: Iterable[str]) -> int | None:
    """Return when the last complete scan of a folder began, or of one that it lies in."""
    times = [text.split(" ", 1) for text in recorded]
    return max((int(time) for time, scanned in times if is_within(folder, scanned)), default=None)


def is_mount(path: str) -> bool:
    """Return whether a folder is on another file system than the folder it is in."""
    try:
        return os.lstat(path).st_dev != os.lstat(os.path.dirname(path)).st_dev  # noqa: PTH120
    except OSError:
        return False


def scan(
    path: str, excluded: Collection[str] = (), mounted: set[str] | None = None
) -> Iterator[ScannedFile | BadFile]:
    """Yield the pictures and clips of a folder, ordered by name; or a single file.

    Args:
        path: The folder or file.
        excluded: Files and folders that are skipped.
        mounted: Receives the folders inside that are other file systems, such as disks.
    """
    if os.path.isdir(path):  # noqa: PTH112 (unlike Path.is_dir it never raises)
        yield from _scan_folder(path, path, frozenset(excluded), mounted)
    elif os.path.exists(path):  # noqa: PTH110
        yield from _scan_file(path, path, Path(path).name)
    else:
        raise PolyglanceError(f"{printable(path)}: no such file or folder")


def _scan_folder(
    folder: str, root: str, excluded: frozenset[str], mounted: set[str] | None
) -> Iterator[ScannedFile | BadFile]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        yield BadFile(folder, f"the folder cannot be read ({error_reason(error)})")
        return
    for entry in entries:
        path = f"{folder.rstrip('/')}/{entry.name}"
        if entry.name.startswith(".") or path in excluded:
            continue
        if entry.is_dir(follow_symlinks=False):
            if mounted is not None and is_mount(path):
                mounted.add(path)
            yield from _scan_folder(path, root, excluded, mounted)
        elif entry.is_symlink() and entry.is_dir():
            yield BadFile(path, "is a link to a folder, which is not followed")
        else:
            yield from _scan_file(path, root, entry.name)


def _scan_file(path: str, root: str, name: str) -> Iterator[ScannedFile | BadFile]:
    """Yield a picture or clip, or why it cannot be read; nothing for other kinds of files."""
    suffix = Path(name).suffix.lower()
    kind: Kind | None = (
        "picture" if suffix in IMAGE_SUFFIXES else "clip" if suffix in CLIP_SUFFIXES else None
    )
    if suffix in UNSUPPORTED_SUFFIXES:
        yield BadFile(path, f"{suffix[1:].upper()} files are not supported: convert it to JPEG")
    if kind is None:
        if path == root and suffix not in UNSUPPORTED_SUFFIXES:  # somebody asks for this file
            yield BadFile(path, "is no picture or clip, by the end of its name")
        return
    if kind == "picture" and not pictures.can_read_suffix(suffix):
        yield BadFile(path, pictures.MISSING_PHOTOS_EXTRA)
        return
    try:
        path.encode()
        status = os.stat(path)
        if Path(path).is_symlink() and not is_within(os.path.realpath(path), root):
            yield BadFile(path, "is a link that leads out of the folder, which is not followed")
        elif not Path(path).is_file():
            yield BadFile(path, "is not a file")
        else:
            signature = FileSignature(status.st_size, status.st_mtime_ns)
            yield ScannedFile(path, kind, signature, status.st_ctime_ns)
    except UnicodeEncodeError:
        yield BadFile(path, "its name is not UTF-8: rename it")
    except OSError as error:
        yield BadFile(path, f"cannot be read ({error_reason(error)})")
