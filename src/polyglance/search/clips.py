"""Encode clips: one vector per span of similar seconds.

A frame per second is encoded. Consecutive seconds that look alike form a span, whose vector is
the mean of theirs; where the image changes, the next span begins.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.encoders.stored_features import StoredFeatureEncoder
from polyglance.search.files import THUMBNAIL_SIZE, FileContent, make_thumbnail, modified_date
from polyglance.search.scan import ScannedFile
from polyglance.search.store import Details, Entry, Item, Span
from polyglance.vision.clips import sample_frames
from polyglance.vision.exif import Metadata
from polyglance.vision.limited_decoding import (
    ClipFrame,
    ClipHeader,
    DecodeLimits,
    sample_limited_frames,
)

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
    file: ScannedFile,
    content: FileContent,
    encoder: Encoder,
    limits: DecodeLimits,
    *,
    min_side: int,
    thumbnails: bool,
) -> Entry:
    """Encode a clip; raise a `DecodingError` if it cannot be decoded.

    Args:
        file: The clip's file.
        content: The hash and the stamp of the file, which must still be the same.
        encoder: The model.
        limits: What decoding may take.
        min_side: Frames are downscaled to this shorter side (`downscale`).
        thumbnails: Add a thumbnail of the first frame.

    Returns:
        The clip with a vector for each span; one for the whole clip where its features are
        stored.
    """
    has_features = isinstance(encoder, StoredFeatureEncoder)
    batches = _FrameBatches(encoder)
    header = ClipHeader(Metadata(), None)
    first: Image | None = None
    size = (0, 0)
    with closing(
        sample_limited_frames(
            file.path,
            limits,
            min_side=min_side,
            stamp=content.stamp,
            span=(0.0, 1.0) if has_features else None,  # stored features need no other frame
        )
    ) as frames:
        for frame in frames:
            if isinstance(frame, ClipHeader):
                header = frame
                continue
            size = frame.width, frame.height
            first = first or frame.image
            batches.add(frame, encode=not has_features)
    seconds, duration = batches.seconds, header.seconds
    if duration is not None and duration > seconds[-1][0]:  # the last second may be incomplete
        seconds[-1] = seconds[-1][0], min(seconds[-1][1], duration)
    length = duration or seconds[-1][1]
    spans: tuple[Span, ...]
    if isinstance(encoder, StoredFeatureEncoder):
        spans, vectors = ((0.0, length),), encoder.encode_files([file.path])
    else:
        spans, vectors = split_into_spans(batches.vectors(), seconds)
    item = Item(
        file.path,
        "clip",
        file.signature,
        content.digest,
        header.metadata.taken or modified_date(file.signature),
        *size,
        seconds=length,
    )
    thumbnail = make_thumbnail(first) if thumbnails and first else None
    return Entry(item, vectors, spans, thumbnail, details_of(header.metadata))


def clip_thumbnail(path: str, content: FileContent, limits: DecodeLimits) -> bytes:
    """Return a thumbnail of a clip's first frame; see `encode_clip`."""
    frames = sample_limited_frames(
        path, limits, min_side=THUMBNAIL_SIZE, span=(0.0, 1.0), stamp=content.stamp
    )
    images = [frame.image for frame in frames if isinstance(frame, ClipFrame)]
    assert images[0] is not None
    return make_thumbnail(images[0])


class _FrameBatches:
    """Encodes frames in batches; a frame that is shown for several seconds only once."""

    def __init__(self, encoder: Encoder) -> None:
        self.seconds: list[Span] = []
        self._encoder = encoder
        self._batch: list[Image] = []
        self._vectors: list[NDArray[np.float32]] = []
        self._numbers: list[int] = []

    def add(self, frame: ClipFrame, *, encode: bool) -> None:
        self.seconds.append(frame.second)
        if not encode:
            return
        if frame.image is not None:
            self._batch.append(frame.image)
        self._numbers.append(sum(map(len, self._vectors)) + len(self._batch) - 1)
        if len(self._batch) == BATCH_SIZE:
            self._encode()

    def vectors(self) -> NDArray[np.float32]:
        """Return the vector of each second, ``[len(seconds), width]``."""
        self._encode()
        return np.concatenate(self._vectors)[self._numbers]

    def _encode(self) -> None:
        if self._batch:
            self._vectors.append(self._encoder.encode_pictures(self._batch))
            self._batch = []


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


def details_of(metadata: Metadata) -> Details:
    """Return what is stored of a file's metadata beside the date."""
    return Details(latitude=metadata.latitude, longitude=metadata.longitude, camera=metadata.camera)
