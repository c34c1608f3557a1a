"""What a search brings back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL.Image import Image


@dataclass(frozen=True)
class Hit:
    """One thing found: its picture, how well it fits, and what is known of it."""

    picture: Image
    score: float
    name: str
    right: bool | None = None
    """Whether it is what was meant, where somebody knows."""
    credit: str = ""
    """Who made it and under which licence, where that has to be said."""
    link: str | None = None
    """Where it comes from."""


@dataclass(frozen=True)
class Answer:
    """A query and its hits, best first."""

    query: str
    language: str | None
    """The query's language, where it is known."""
    hits: Sequence[Hit]
    meaning: str = ""
    """What the query says, for those who do not read its language."""
