"""A fast stand-in for a model: the mean colours of a picture's cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyglance.encoders import Picture
from polyglance.vision.pictures import read_picture


class GridEncoder:
    """Encode pictures by the mean colours of 16 cells; needs no network and no file."""

    name, fingerprint, width = "grid", "grid-1", 48

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        """Return a vector drawn from each text: ``[len(texts), 48]``."""
        seeds = [int.from_bytes(text.encode()[:8].ljust(8), "big") for text in texts]
        rows = [np.random.default_rng(seed).uniform(0.1, 1, self.width) for seed in seeds]
        return unit_rows(np.array(rows, np.float32))

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        """Return the mean colours of each picture: ``[len(pictures), 48]``."""
        images = [
            picture if isinstance(picture, Image.Image) else read_picture(picture)  # type: ignore[arg-type]
            for picture in pictures
        ]
        cells = [image.resize((4, 4), Image.Resampling.BOX) for image in images]
        rows = [np.asarray(cell, np.float32).reshape(-1) + 1 for cell in cells]
        return unit_rows(np.stack(rows))


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows with length 1."""
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
