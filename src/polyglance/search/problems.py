"""Find the files of a library's folders that cannot be searched, and why.

Files whose content cannot be decoded are on record. Others are not, since they may be readable
at the next run: links, formats that are not supported, names that are not UTF-8, files and
folders without permission, disks that are away. These are looked for in the folders themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from polyglance.search.encoding import MISSING_VIDEO_EXTRA
from polyglance.search.scan import ScannedFile, is_missing, is_within, scan
from polyglance.search.store import EXCLUDED, SCANNED, BadFile, Store
from polyglance.vision.clips import can_read_clips


def find_problems(store: Store, folder: str | None = None) -> list[BadFile]:
    """Return what cannot be searched of a library's folders, by path; all, or in one folder."""
    problems = {bad.path: bad for bad in store.bad_files(folder) if not is_missing(bad.path)}
    excluded = store.places(EXCLUDED)
    for place in store.places(SCANNED):
        if folder is None or is_within(place, folder):
            root = place
        elif is_within(folder, place):
            root = folder
        else:
            continue
        for bad in _unreadable(root, excluded):
            problems.setdefault(bad.path, bad)
    return sorted(problems.values(), key=lambda bad: bad.path)


def _unreadable(root: str, excluded: list[str]) -> Iterator[BadFile]:
    """Yield what of a folder no run could read now."""
    if is_missing(root):
        yield BadFile(root, "is missing: is a disk not mounted?")
        return
    clips = can_read_clips()
    for file in scan(root, excluded):
        if not isinstance(file, ScannedFile):
            yield file
        elif not os.access(file.path, os.R_OK):
            yield BadFile(file.path, "cannot be read (Permission denied)")
        elif file.kind == "clip" and not clips:
            yield BadFile(file.path, MISSING_VIDEO_EXTRA)
