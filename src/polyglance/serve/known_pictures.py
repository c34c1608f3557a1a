"""Pictures by their vectors: those of the library, and those that somebody sent before.

An uploaded picture is encoded once and goes back to whoever sent it as a text. So nothing
is kept of it here, the next page of an answer needs no second upload, and an address in
the browser's history still works tomorrow.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyglance.encoders import Encoder
from polyglance.encoders.protocol import Vectors
from polyglance.serve.problems import Refused

MARK = "p"
"""Begins such a text, so that none looks like a number."""
STORED = np.dtype("<f2")


def to_text(vector: Vectors) -> str:
    """A vector in letters that an address may hold."""
    return MARK + base64.urlsafe_b64encode(vector.astype(STORED).tobytes()).decode().rstrip("=")


def from_text(text: str, width: int) -> Vectors:
    """The unit vector back; it comes from strangers."""
    coded = text.removeprefix(MARK)
    try:
        stored = base64.b64decode(coded + "=" * (-len(coded) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        stored = b""
    vector = np.frombuffer(stored if len(stored) % 2 == 0 else b"", STORED).astype(np.float32)
    length = float(np.linalg.norm(vector))
    if not text.startswith(MARK) or len(vector) != width or not 0.9 < length < 1.1:
        raise Refused(422, "like: a picture is the number of a hit, or what an upload gave.")
    return vector / np.float32(length)


class WithKnownPictures:
    """An encoder for which a picture may be its vector."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.name, self.width, self.fingerprint = encoder.name, encoder.width, encoder.fingerprint

    def encode_texts(self, texts: Sequence[str], *, language: str | None = None) -> Vectors:
        """A unit vector for each text."""
        return self._encoder.encode_texts(texts, language=language)

    def encode_pictures(self, pictures: Sequence[Any]) -> Vectors:
        """The vectors as they are."""
        return np.array(pictures, np.float32)
