"""The included photographs: everyday scenes under free licences.

They are in ``photos/``, at most 320 pixels a side. ``photos/SOURCES.json`` lists the content,
author, licence and source package of each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "photos"


@dataclass(frozen=True)
class Photograph:
    """A photograph and its source: an entry of ``SOURCES.json``."""

    file: str
    title: str
    """A description in English."""
    author: str
    licence: str
    """An SPDX identifier; ``LicenseRef-public-domain`` for the public domain."""
    distribution: str
    """The distribution of the source package: Debian, PyPI or npm."""
    package: str
    version: str
    original: str
    """Path of the file in the package."""
    page: str | None = None
    """Web page that the package names as its source."""

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return FOLDER / self.file

    @property
    def credit(self) -> str:
        """Return the credit that must be shown with it."""
        return f"{self.author}, {self.licence.removeprefix('LicenseRef-')}"


def photographs() -> list[Photograph]:
    """Return all photographs, sorted by file name."""
    entries = json.loads((FOLDER / "SOURCES.json").read_text(encoding="utf-8"))
    return [Photograph(**entry) for entry in entries]
