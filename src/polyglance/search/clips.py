"""Clips as spans of seconds, each with a vector: what is on screen from when to when.

A clip is looked at once a second. Seconds that follow each other and look alike are one
span, whose vector is the mean of theirs; where the picture changes, the next begins.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.search.files import shrunk, thumbnail, written
from polyglance.search.store import Entry, Item, Span
from polyglance.search.walking import Candidate
from polyglance.vision.clips import read_seconds

if TYPE_CHECKING:
    from PIL.Image import Image

ALIKE = 0.6
"""The cosine of a second with the mean of a span, from which on it belongs to it.

Of 40,000 pairs of different photographs with polyglance-small, one in a thousand is so alike.
"""
LONGEST = 30
"""Seconds of a span: in a clip without a cut it still says where to look."""
BATCH = 8
"""Seconds that are encoded together."""


def entry_of_clip(
    candidate: Candidate, content: str, encoder: Encoder, *, detail: int, thumbnails: bool
) -> Entry:
    """A clip's file as an entry; ``detail`` is that of `shrunk`."""
    vectors: list[NDArray[np.float32]] = []
    seconds: list[Span] = []
    waiting: list[Image] = []
    first: Image | None = None
    size = (0, 0)
    for picture, second in read_seconds(candidate.path):
        size = picture.size
        small = shrunk(picture, detail)
        first = first or small
        seconds.append(second)
        waiting.append(small)
        if len(waiting) == BATCH:
            vectors.append(encoder.encode_pictures(waiting))
            waiting = []
    if waiting:
        vectors.append(encoder.encode_pictures(waiting))
    taken, length = _recorded(candidate.path)
    if length is not None and length > seconds[-1][0]:  # the last second may not be whole
        seconds[-1] = seconds[-1][0], min(seconds[-1][1], length)
    spans, means = into_spans(np.concatenate(vectors), seconds)
    item = Item(
        candidate.path,
        "clip",
        candidate.stamp,
        content,
        taken or written(candidate.stamp),
        *size,
        seconds=length or seconds[-1][1],
    )
    small_one = thumbnail(first) if thumbnails and first else None
    return Entry(item, means, spans, small_one)


def into_spans(
    vectors: NDArray[np.float32], seconds: list[Span], *, alike: float = ALIKE
) -> tuple[tuple[Span, ...], NDArray[np.float32]]:
    """The spans of a clip and their unit vectors, from those of its seconds."""
    spans: list[Span] = []
    means: list[NDArray[np.float32]] = []
    start = 0
    for end in range(1, len(seconds) + 1):
        mean = vectors[start:end].sum(0)
        mean /= max(float(np.linalg.norm(mean)), 1e-12)
        if end == len(seconds) or end - start == LONGEST or vectors[end] @ mean < alike:
            spans.append((seconds[start][0], seconds[end - 1][1]))
            means.append(mean)
            start = end
    return tuple(spans), np.stack(means)


def frame_of(path: str, span: Span | None) -> Image:
    """The picture in the middle of a span, to show it by."""
    middle = 0.0 if span is None else (span[0] + span[1]) / 2
    picture, _ = next(iter(read_seconds(path, (middle, middle + 1))))
    return picture


def _recorded(path: str) -> tuple[str | None, float | None]:
    """When a camera says that it made a clip, in the time of this place; and its length."""
    import av

    try:
        with av.open(path, metadata_errors="ignore") as container:
            text = container.metadata.get("creation_time", "")
            length = container.duration / 1e6 if container.duration else None
    except Exception:  # the clip itself could be read
        return None, None
    try:
        when = datetime.fromisoformat(text)
        local = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None, length
    # A camera whose clock was never set counts from 1904 or 1970.
    is_set = local.year > 1970
    return (local.replace(tzinfo=None, microsecond=0).isoformat() if is_set else None), length
