"""A few thousand images with their vectors in memory, searched exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.errors import printable
from polyglance.utils.progress import progress
from polyglance.vision.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH_SIZE = 16
"""Images decoded and encoded together, which bounds the memory."""
MIN_SIDE = 448
"""Pixels a side to which large images may be decoded: twice the models' input."""


@dataclass(frozen=True)
class Gallery:
    """Image files and the unit vector of each, ``[n, width]``."""

    paths: Sequence[Path]
    vectors: NDArray[np.float32]
    bad: Sequence[str] = ()
    """A sentence for each file that could not be read."""

    @classmethod
    def encode(cls, paths: Sequence[Path], encoder: Encoder, *, quiet: bool = False) -> Gallery:
        """Read and encode image files; those that cannot be read are listed in ``bad``."""
        encoded: list[Path] = []
        blocks: list[NDArray[np.float32]] = []
        bad: list[str] = []
        with progress("Encoding pictures", len(paths), quiet=quiet) as advance:
            for start in range(0, len(paths), BATCH_SIZE):
                block = paths[start : start + BATCH_SIZE]
                images: list[Image] = []
                for path in block:
                    try:
                        images.append(read_picture(path, min_side=MIN_SIDE))
                        encoded.append(path)
                    except PictureError as error:
                        bad.append(printable(str(error)))
                if images:
                    blocks.append(encoder.encode_pictures(images))
                advance(len(block))
        vectors = np.concatenate(blocks) if blocks else np.zeros((0, 0), np.float32)
        return cls(encoded, vectors, bad)

    def __len__(self) -> int:
        return len(self.paths)

    def search(self, query: NDArray[np.float32], k: int) -> list[tuple[Path, float]]:
        """Return the ``k`` images nearest to a query's vector, best first, each with its cosine."""
        scores = self.vectors @ query
        best = np.argsort(-scores, kind="stable")[:k]
        return [(self.paths[number], float(scores[number])) for number in best]
