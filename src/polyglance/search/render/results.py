"""Search results to render: queries, and hits with their images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from PIL.Image import Image


@dataclass(frozen=True)
class RenderedHit:
    """A hit with its image."""

    image: Image
    score: float
    name: str
    is_correct: bool | None = None
    """Whether it is a right answer, where that is known."""
    credit: str = ""
    """Author and licence, where they must be named."""
    link: str | None = None
    """Where the image comes from."""
    file: Path | None = None
    """The file, which a page links to and names in full."""
    taken: datetime | None = None
    """When it was taken."""
    reasons: str = ""
    """What else than its pixels speaks for it."""
    label: str = ""
    """What is shown instead of the score, such as the probability that it fits."""

    @property
    def shown_score(self) -> str:
        """The label, or else the score, for display."""
        return self.label or f"{self.score:.2f}"


@dataclass(frozen=True)
class QueryResult:
    """A query and its hits, best first."""

    query: str
    language: str | None
    """The query's language, where it is known."""
    hits: Sequence[RenderedHit]
    translation: str = ""
    """The query in English."""
    fold: int | None = None
    """How many of the first hits fit well, where that is known."""
