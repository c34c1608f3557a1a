"""Items as the API returns them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from polyglance.search.query import Hit, MediaRef
from polyglance.serve.catalog import LibraryCatalog


def binary(*media_types: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that is a file of one of these types."""
    content = {"schema": {"type": "string", "format": "binary"}}
    return {"content": dict.fromkeys(media_types, content)}


def items_json(catalog: LibraryCatalog, pieces: Sequence[MediaRef]) -> list[dict[str, Any]]:
    """Return the JSON values of items, and of hits their scores."""
    return [
        {
            "id": piece.id,
            "kind": piece.kind,
            "name": name,
            "folder": folder,
            "taken": with_offset(piece.taken),
            "width": piece.width,
            "height": piece.height,
            "seconds": piece.seconds,
            "span": piece.span,
            **({"score": round(piece.score, 4)} if isinstance(piece, Hit) else {}),
        }
        for piece, (folder, name) in zip(pieces, catalog.display_names(pieces), strict=True)
    ]


def with_offset(taken: datetime) -> datetime:
    """Return a local time with the offset from UTC that this machine had then (RFC 3339).

    Cameras seldom say their zone. The time of day stays as the camera had it.
    """
    try:
        offset = taken.astimezone().utcoffset() or timedelta()
    except (OverflowError, OSError, ValueError):  # before or after what the system knows
        return taken.replace(tzinfo=UTC)
    # Local mean time of the nineteenth century had seconds, which RFC 3339 has not.
    return taken.replace(tzinfo=timezone(timedelta(minutes=round(offset.total_seconds() / 60))))
