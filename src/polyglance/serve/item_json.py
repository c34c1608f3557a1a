"""Items as the API returns them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from polyglance.search.query import Hit, MediaRef
from polyglance.search.results import SearchResults
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
            **(_hit_json(piece) if isinstance(piece, Hit) else {}),
        }
        for piece, (folder, name) in zip(pieces, catalog.display_names(pieces), strict=True)
    ]


def _hit_json(hit: Hit) -> dict[str, Any]:
    return {
        "score": None if hit.by_date else round(hit.score, 4),
        "probability": None if hit.probability is None else round(hit.probability, 4),
        "why": [
            {"signal": one.signal, "text": one.text, "score": round(one.score, 3)}
            for one in hit.why
        ],
        "stack": 1 + len(hit.stack),
    }


def understood_json(results: SearchResults) -> dict[str, Any] | None:
    """Return what a query was understood as, or None if all of it was taken as it is."""
    dates = [part for part in results.understood if part.signal == "date"]
    places = [part.label for part in results.understood if part.signal == "place"]
    if not (dates or places or results.excluded):
        return None
    return {
        "since": min((part.since for part in dates if part.since), default=None),
        "until": max((part.until for part in dates if part.until), default=None),
        "place": ", ".join(places) or None,
        "without": list(results.excluded),
    }


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
