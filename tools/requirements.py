"""Print what pyproject.toml requires: for building, running, and for the extras that are named.

    python tools/requirements.py dev

A project in a folder cannot be compared with a hash, only what it requires: the Makefile installs
these first, by the hashes of constraints-hashed.txt, and then the project alone. Each has the
version of constraints.txt, which uv asks for where hashes are required.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BUILDING = ("editables",)
"""What the build back end asks for when a project is installed from its folder."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(\[[^\]]*\])?[^;]*?(\s*;.*)?")


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


def pinned(lines: list[str], root: Path = ROOT) -> list[str]:
    """Return requirements with the versions that constraints.txt pins, extras and markers kept."""
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    versions = {_canonical(name): pin for name, pin in _PIN.findall(text)}
    found = []
    for line in lines:
        name, extras, marker = _REQUIREMENT.fullmatch(line).groups(default="")  # type: ignore[union-attr]
        found.append(f"{name}{extras}=={versions[_canonical(name)]}{marker}")
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    print("\n".join(pinned(requirements(sys.argv[1:]))))
