"""Show a file in the file manager of the machine that the server runs on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from polyglance.serve.errors import HTTPProblem


def reveal(path: Path) -> None:
    """Open the folder of a file, with the file selected where the system can do that."""
    try:
        subprocess.Popen(
            command(path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        raise HTTPProblem(404, "This machine has no file manager that can be opened.") from None


def command(path: Path) -> list[str]:
    """Return the command that shows a file, which no shell reads; its path is absolute."""
    if sys.platform == "darwin":
        return ["open", "-R", str(path)]
    if sys.platform == "win32":
        return ["explorer", f"/select,{path}"]
    opener = shutil.which("xdg-open")
    if opener is None:
        raise FileNotFoundError("xdg-open")
    return [opener, str(path.parent)]
