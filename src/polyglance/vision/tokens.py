"""Visual tokens: what the rest of the house sees of a picture or clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.records import Record
from polyglance.vision.pictures import Box

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class VisualTokens:
    """A picture or clip as a sequence of n vectors with boxes, labels and a vector of the whole.

    The tokens of a picture are the cells of a grid, row by row, or the regions
    of a detector; those of a clip are its seconds.
    """

    features: Floats
    """(n, width): one vector a token."""
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right and bottom, in fractions of the picture's width and height."""
    whole: Floats
    """(width,): the picture or clip in one vector."""
    label_ids: NDArray[np.uint16]
    """(n, k): the k most likely classes of each token, most likely first; k may be 0."""
    label_probs: NDArray[np.float16]
    """(n, k): the probabilities of those classes, out of all there are."""
    spans: NDArray[np.float32]
    """(n, 2): from which to which second of a clip; all zero for a picture."""

    def __len__(self) -> int:
        return len(self.features)


def feature_key(record: Record) -> str:
    """What names a record's picture or clip in a feature store; empty for sentences alone.

    Records of one picture share its features. A part of a clip is named as a
    media fragment (https://www.w3.org/TR/media-frags/): ``clip.mp4#t=1.5,4``.
    """
    if record.video is not None and record.span is not None:
        start, end = record.span
        return f"{record.video}#t={start:.12g},{end:.12g}"
    return record.image or record.video or ""


def grid_boxes(grid: int, frame: Box = (0.0, 0.0, 1.0, 1.0)) -> NDArray[np.float32]:
    """The boxes of a grid x grid partition of ``frame``, row by row."""
    left, top, right, bottom = frame
    xs = np.linspace(left, right, grid + 1)
    ys = np.linspace(top, bottom, grid + 1)
    x0, y0 = np.meshgrid(xs[:-1], ys[:-1])
    x1, y1 = np.meshgrid(xs[1:], ys[1:])
    return np.stack([x0, y0, x1, y1], axis=-1).reshape(-1, 4).astype(np.float32)


def pooling_weights(cells: int, parts: int) -> NDArray[np.float32]:
    """How much each of ``parts`` equal parts of a line counts in the mean over each of ``cells``.

    Row i holds the overlaps of the parts with the i-th cell, in sum 1, so that
    any grid can be laid over any map, and the mean over the cells is always the
    mean over the parts.
    """
    cell, part = np.arange(cells)[:, None], np.arange(parts)[None, :]
    # In units of 1 / (cells * parts), where every edge is a whole number.
    overlap = np.minimum((cell + 1) * parts, (part + 1) * cells)
    overlap = (overlap - np.maximum(cell * parts, part * cells)).clip(min=0)
    return (overlap / parts).astype(np.float32)


def no_spans(count: int) -> NDArray[np.float32]:
    """The spans of a picture's tokens: a picture has no seconds."""
    return np.zeros((count, 2), np.float32)
