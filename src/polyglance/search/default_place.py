"""Where the default library is."""

from __future__ import annotations

import os
from pathlib import Path

LIBRARY_VARIABLE = "POLYGLANCE_LIBRARY"
"""The environment variable that names the default library."""


def default_library() -> str | Path:
    """Return the place of the default library."""
    data = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser()
    return os.environ.get(LIBRARY_VARIABLE) or data / "polyglance" / "library.polyglance"
