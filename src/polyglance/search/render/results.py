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
    probability: float | None = None
    """How probable it is that it fits, where that is known; shown instead of the score."""
    reasons: str = ""
    """What else than its pixels speaks for it."""
    by_date: bool = False
    """Whether hits are sorted by date, which is shown instead of the score."""

    @property
    def shown_score(self) -> str:
        """The probability, the date or the score, for display."""
        if self.probability is not None:
            return f"{self.probability:.0%}"
        return f"{self.taken:%Y-%m-%d}" if self.by_date else f"{self.score:.2f}"


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
