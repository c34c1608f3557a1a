"""A few thousand pictures with their vectors in memory, searched exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.errors import printable
from polyglance.progress import progress
from polyglance.vision.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 16
"""Pictures decoded and encoded together: what is held in memory at a time."""
LEAST = 448
"""Pixels a side that a large picture keeps when it is decoded small, twice what models look at."""


@dataclass(frozen=True)
class Gallery:
    """Picture files and the unit vector of each."""

    paths: Sequence[Path]
    vectors: NDArray[np.float32]
    bad: Sequence[str] = ()
    """A sentence for each file that could not be read and was left out."""

    @classmethod
    def encode(cls, paths: Sequence[Path], encoder: Encoder, *, quiet: bool = False) -> Gallery:
        """Read and encode picture files; bad ones are named and left out."""
        kept: list[Path] = []
        blocks: list[NDArray[np.float32]] = []
        bad: list[str] = []
        with progress("Encoding pictures", len(paths), quiet=quiet) as advance:
            for start in range(0, len(paths), BATCH):
                block = paths[start : start + BATCH]
                pictures: list[Image] = []
                for path in block:
                    try:
                        pictures.append(read_picture(path, at_least=LEAST))
                        kept.append(path)
                    except PictureError as error:
                        bad.append(printable(str(error)))
                if pictures:
                    blocks.append(encoder.encode_pictures(pictures))
                advance(len(block))
        vectors = np.concatenate(blocks) if blocks else np.zeros((0, 0), np.float32)
        return cls(kept, vectors, bad)

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, query: NDArray[np.float32], hits: int) -> list[tuple[Path, float]]:
        """The pictures nearest to a query's vector, best first, each with its cosine."""
        scores = self.vectors @ query
        best = np.argsort(-scores, kind="stable")[:hits]
        return [(self.paths[number], float(scores[number])) for number in best]
