"""The folders whose files this user agreed to serve, per library, kept outside the library.

A library names files by their paths, and a library from a stranger may name any. So what is
handed out to others lies in a folder that this user added to the library, or confirmed with
``polyglance library trust``. The list is in the user's configuration folder:
``POLYGLANCE_CONFIG``, or the platform's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from polyglance.errors import PolyglanceError, error_reason, printable

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "POLYGLANCE_CONFIG"


def config_folder() -> Path:
    """Return the folder of this user's settings."""
    if own := os.environ.get(CONFIG_VARIABLE):
        return Path(own)
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or "~/AppData/Roaming")
    elif sys.platform == "darwin":
        base = Path("~/Library/Application Support")
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    return base.expanduser() / "polyglance"


def confirmed_folders(library: str) -> frozenset[str]:
    """Return the folders and files that this user confirmed for a library, given by its id."""
    folders = set()
    try:
        lines = _list_path(library).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return frozenset()
    for line in lines:
        try:
            folder = json.loads(line)["folder"]
        except (ValueError, KeyError, TypeError):
            continue  # cut by a full disk: what is not there is not confirmed
        if isinstance(folder, str) and Path(folder).is_absolute():
            folders.add(folder)
    return frozenset(folders)


def confirm_folders(library: str, name: str, folders: Iterable[str]) -> None:
    """Add folders to the list of a library.

    Args:
        library: Its id.
        name: Its place, for whoever reads the list.
        folders: Absolute paths without links, as `polyglance.search.scan.resolve_path` returns.
    """
    new = sorted(set(folders) - confirmed_folders(library))
    if not new:
        return
    path = _list_path(library)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Appended in one write: two processes may confirm folders at once.
        with path.open("a", encoding="utf-8") as file:
            lines = [json.dumps({"folder": folder, "library": name}) for folder in new]
            file.write("\n".join(["", *lines, ""]))
    except OSError as error:
        raise PolyglanceError(
            f"{printable(str(path))}: the list of confirmed folders cannot be written"
            f" ({error_reason(error)}): set {CONFIG_VARIABLE} to a folder that can"
        ) from error


def _list_path(library: str) -> Path:
    # The id comes from a file that anybody may have written: it must not become a path.
    name = hashlib.sha256(library.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return config_folder() / "confirmed-folders" / f"{name}.jsonl"
