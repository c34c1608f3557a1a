"""Print what pyproject.toml requires: for building, running, and for the extras that are named.

    python tools/requirements.py dev

pip cannot compare a project in a folder with a hash, only what it requires: the Makefile installs
these first, by the hashes of constraints-hashed.txt, and then the project alone.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BUILDING = ("editables",)
"""What the build back end asks for when a project is installed from its folder."""


def requirements(extras: list[str], root: Path = ROOT) -> list[str]:
    """Return requirements, those of extras that extras name included, each once."""
    content = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    found = dict.fromkeys(
        [*content["build-system"]["requires"], *_BUILDING, *project["dependencies"]]
    )
    seen: set[str] = set()
    waiting = list(extras)
    while waiting:
        extra = waiting.pop(0)
        if extra in seen:
            continue
        seen.add(extra)
        for line in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[([\w, -]+)\]", line)
            if own is None:
                found[line] = None
            else:
                waiting += [name.strip() for name in own[1].split(",")]
    return list(found)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
