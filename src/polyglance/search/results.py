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


@dataclass(frozen=True)
class Answer:
    """A query and its hits, best first."""

    query: str
    language: str
    hits: Sequence[Hit]
