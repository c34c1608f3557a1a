"""Visual tokens: a picture or clip as the sequence of vectors that models consume."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.records import Record
from polyglance.vision.pictures import Box

Floats = NDArray[np.floating[Any]]

UNLABELLED = np.iinfo(np.uint16).max
"""Stands for a class where a token has none, such as a grid cell beside a detector's objects."""


@dataclass(frozen=True, slots=True, eq=False)
class VisualTokens:
    """A picture or clip as n vectors with boxes and labels, and one vector of the whole.

    The tokens of a picture are the cells of a grid, row by row, or a detector's
    regions; those of a clip are its seconds.
    """

    features: Floats
    """(n, width): one vector per token."""
    boxes: NDArray[np.float32]
    """(n, 4): left, top, right and bottom, in fractions of the picture's width and height."""
    global_feature: Floats
    """(width,): one vector of the whole picture or clip."""
    label_ids: NDArray[np.uint16]
    """(n, k): the k most likely classes of each token, most likely first; k may be 0. All are
    `UNLABELLED` for a token without a label."""
    label_probs: NDArray[np.float16]
    """(n, k): the probabilities of those classes among all classes."""
    spans: NDArray[np.float32]
    """(n, 2): start and end in seconds of a clip's tokens; zero for a picture."""

    def __len__(self) -> int:
        return len(self.features)


def feature_key(record: Record) -> str:
    """Return the key of a record's picture or clip in a feature store; empty for text alone.

    Records of the same picture share its features. A part of a clip is named as a
    media fragment (https://www.w3.org/TR/media-frags/): ``clip.mp4#t=1.5,4``.
    """
    if record.video is not None and record.span is not None:
        start, end = record.span
        return f"{record.video}#t={start:.12g},{end:.12g}"
    return record.image or record.video or ""


def published_keys(stem: str) -> tuple[str, ...]:
    """Return what published regions call an image, given its file name without the suffix.

    Bottom-up attention numbers the images of MSCOCO ("391895"), UNITER has
    "coco_val2014_000000391895" and "flickr30k_001000092795".
    """
    if match := re.fullmatch(r"COCO_[a-z]+\d{4}_(\d{12})", stem):
        return str(int(match[1])), stem.lower()
    if stem.isascii() and stem.isdigit():
        return str(int(stem)), f"flickr30k_{int(stem):012d}"
    return ()


def grid_boxes(grid: int, frame: Box = (0.0, 0.0, 1.0, 1.0)) -> NDArray[np.float32]:
    """Return the (grid * grid, 4) boxes of a partition of ``frame``, row by row."""
    left, top, right, bottom = frame
    xs = np.linspace(left, right, grid + 1)
    ys = np.linspace(top, bottom, grid + 1)
    x0, y0 = np.meshgrid(xs[:-1], ys[:-1])
    x1, y1 = np.meshgrid(xs[1:], ys[1:])
    return np.stack([x0, y0, x1, y1], axis=-1).reshape(-1, 4).astype(np.float32)


def pooling_weights(cells: int, parts: int) -> NDArray[np.float32]:
    """Return the (cells, parts) matrix that average-pools ``parts`` values into ``cells``.

    Row i holds the overlaps of the equal parts of a line with its i-th cell and sums to
    1. So any grid can be laid over any map, and the mean over the cells is always the
    mean over the parts.
    """
    cell, part = np.arange(cells)[:, None], np.arange(parts)[None, :]
    # In units of 1 / (cells * parts), where every edge is a whole number.
    overlap = np.minimum((cell + 1) * parts, (part + 1) * cells)
    overlap = (overlap - np.maximum(cell * parts, part * cells)).clip(min=0)
    return (overlap / parts).astype(np.float32)


def zero_spans(count: int) -> NDArray[np.float32]:
    """Return the spans of a picture's tokens, which have no time."""
    return np.zeros((count, 2), np.float32)
