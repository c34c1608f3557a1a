"""Pictures that somebody sent before, by their vectors.

An uploaded picture is encoded once and goes back to whoever sent it as a text. So nothing
is kept of it here, the next page of an answer needs no second upload, and an address in
the browser's history still works tomorrow.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

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
