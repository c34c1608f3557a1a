"""What a repair kept of a damaged library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is left of a damaged library."""

    items: int
    lost: tuple[str, ...]
    """The paths of items that are not complete, as far as they are known."""
    lost_thumbnails: tuple[str, ...]
    """The paths of items whose thumbnails are lost."""
    complete: bool
    """Whether all that is lost is named: no item is missing of which nothing is known."""
    thumbnails: bool
    """Whether the library has thumbnails."""
