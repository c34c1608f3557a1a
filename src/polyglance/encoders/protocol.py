"""What can be searched with: anything that turns sentences and pictures into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Vectors: TypeAlias = NDArray[np.float32]
Picture: TypeAlias = "Image | str | Path | NDArray[np.uint8]"
"""An opened picture, a file, or pixels (height, width, RGB)."""


@runtime_checkable
class Encoder(Protocol):
    """One space of meaning: the dot product of two vectors says how well they fit."""

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def width(self) -> int:
        """Numbers in a vector."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides on the vectors: models that share it share their space."""

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """A unit vector for each text, (n, width); a text beyond the model's longest is cut.

        ``language`` is that of all the texts, for a model that reads words: without it
        each text's is detected. A model that reads sub-words takes no notice of it.
        """

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """A unit vector for each picture, (n, width)."""
