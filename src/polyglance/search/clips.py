"""Encode clips: one vector per span of similar seconds.

A frame per second is encoded. Consecutive seconds that look alike form a span, whose vector is
the mean of theirs; where the image changes, the next span begins.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.encoders.stored_features import StoredFeatureEncoder
from polyglance.search.files import downscale, make_thumbnail, modified_date
from polyglance.search.scan import ScannedFile
from polyglance.search.store import Entry, Item, Span
from polyglance.vision.clips import sample_frames

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_SIMILARITY = 0.6
"""The least cosine of a second with the mean of the span so far for it to join the span.

Of 40,000 pairs of different photographs with polyglance-small, one in a thousand is that similar.
"""
MAX_SPAN_SECONDS = 30
"""The longest span, so that also in a clip without a cut a hit says where to look."""
BATCH_SIZE = 8
"""Frames encoded together."""


def encode_clip(
    file: ScannedFile, content_hash: str, encoder: Encoder, *, min_side: int, thumbnails: bool
) -> Entry:
    """Encode a clip.

    Args:
        file: The clip's file.
        content_hash: The hash of its content.
        encoder: The model.
        min_side: Frames are downscaled to this shorter side (`downscale`).
        thumbnails: Add a thumbnail of the first frame.

    Returns:
        The clip with a vector for each span; one for the whole clip where its features are
        stored.
    """
    if isinstance(encoder, StoredFeatureEncoder):
        return _encode_stored(file, content_hash, encoder, min_side, thumbnails)
    vectors: list[NDArray[np.float32]] = []
    seconds: list[Span] = []
    batch: list[Image] = []
    first: Image | None = None
    size = (0, 0)
    for frame, second in sample_frames(file.path):
        size = frame.size
        small = downscale(frame, min_side)
        first = first or small
        seconds.append(second)
        batch.append(small)
        if len(batch) == BATCH_SIZE:
            vectors.append(encoder.encode_pictures(batch))
            batch = []
    if batch:
        vectors.append(encoder.encode_pictures(batch))
    taken, duration = _read_metadata(file.path)
    if duration is not None and duration > seconds[-1][0]:  # the last second may be incomplete
        seconds[-1] = seconds[-1][0], min(seconds[-1][1], duration)
    spans, means = split_into_spans(np.concatenate(vectors), seconds)
    item = Item(
        file.path,
        "clip",
        file.signature,
        content_hash,
        taken or modified_date(file.signature),
        *size,
        seconds=duration or seconds[-1][1],
    )
    thumbnail = make_thumbnail(first) if thumbnails and first else None
    return Entry(item, means, spans, thumbnail)


def _encode_stored(
    file: ScannedFile,
    content_hash: str,
    encoder: StoredFeatureEncoder,
    min_side: int,
    thumbnails: bool,
) -> Entry:
    """Encode a clip by its stored features; of the file only the first second is decoded."""
    frame, second = next(iter(sample_frames(file.path)))
    taken, duration = _read_metadata(file.path)
    seconds = duration or second[1]
    item = Item(
        file.path,
        "clip",
        file.signature,
        content_hash,
        taken or modified_date(file.signature),
        *frame.size,
        seconds=seconds,
    )
    thumbnail = make_thumbnail(downscale(frame, min_side)) if thumbnails else None
    return Entry(item, encoder.encode_files([file.path]), ((0.0, seconds),), thumbnail)


def split_into_spans(
    vectors: NDArray[np.float32], seconds: list[Span], *, min_similarity: float = MIN_SIMILARITY
) -> tuple[tuple[Span, ...], NDArray[np.float32]]:
    """Group consecutive seconds that look alike.

    Args:
        vectors: A unit vector for each second, ``[len(seconds), width]``.
        seconds: Start and end of each second.
        min_similarity: The least cosine with the span's mean.

    Returns:
        The spans and the unit mean vector of each, ``[len(spans), width]``.
    """
    spans: list[Span] = []
    means: list[NDArray[np.float32]] = []
    start = 0
    for end in range(1, len(seconds) + 1):
        mean = vectors[start:end].sum(0)
        mean /= max(float(np.linalg.norm(mean)), 1e-12)
        if (
            end == len(seconds)
            or end - start == MAX_SPAN_SECONDS
            or vectors[end] @ mean < min_similarity
        ):
            spans.append((seconds[start][0], seconds[end - 1][1]))
            means.append(mean)
            start = end
    return tuple(spans), np.stack(means)


def middle_frame(path: str, span: Span | None) -> Image:
    """Return the frame in the middle of a span, or the first frame."""
    middle = 0.0 if span is None else (span[0] + span[1]) / 2
    frame, _ = next(iter(sample_frames(path, (middle, middle + 1))))
    return frame


def _read_metadata(path: str) -> tuple[str | None, float | None]:
    """Return when the camera recorded a clip, in local time, and its duration."""
    import av

    try:
        with av.open(path, metadata_errors="ignore") as container:
            text = container.metadata.get("creation_time", "")
            duration = container.duration / 1e6 if container.duration else None
    except Exception:  # the clip itself could be read
        return None, None
    try:
        when = datetime.fromisoformat(text)
        local = (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None, duration
    # A camera whose clock was never set counts from 1904 or 1970.
    is_set = local.year > 1970
    return (local.replace(tzinfo=None, microsecond=0).isoformat() if is_set else None), duration
