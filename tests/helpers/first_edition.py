"""The default model's first edition, by the vectors that it gave to a few texts and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyglance.encoders.protocol import Picture, Vectors

RECORDED = Path(__file__).parents[1] / "fixtures" / "version_0_1" / "query_vectors.npz"


class FirstEdition:
    """An `Encoder` that searches libraries of version 0.1, whose model is no longer shipped."""

    name = "polyglance-small"
    width = 384

    def __init__(self) -> None:
        with np.load(RECORDED, allow_pickle=False) as recorded:
            self.fingerprint = str(recorded["fingerprint"])
            self._texts = dict(
                zip(recorded["texts"].tolist(), recorded["text_vectors"], strict=True)
            )
            self._coffee = recorded["coffee"]

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """Return the recorded vectors; only recorded texts have any."""
        return np.array([self._texts[text] for text in texts], np.float32).reshape(-1, self.width)

    def encode_pictures(self, pictures: Sequence[Picture]) -> Vectors:
        """Return the vector of ``coffee.webp``, the one picture that no library holds."""
        assert len(pictures) == 1
        return self._coffee
