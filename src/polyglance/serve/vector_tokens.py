"""Vectors of uploaded pictures as text tokens.

An uploaded picture is encoded once, and its vector goes back to the client as a text. So the
server stores nothing, the next page of results needs no second upload, and a bookmarked search
keeps working.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

from polyglance.encoders.protocol import Vectors
from polyglance.serve.errors import HTTPProblem

PREFIX = "p"
"""First character of every token, which tells it from an item id."""
DTYPE = np.dtype("<f2")


def encode_token(vector: Vectors) -> str:
    """Encode a vector (width,) as URL-safe base64."""
    return PREFIX + base64.urlsafe_b64encode(vector.astype(DTYPE).tobytes()).decode().rstrip("=")


def decode_token(token: str, width: int) -> Vectors:
    """Return the unit vector (width,) of a token; raise 422 for one that is invalid."""
    encoded = token.removeprefix(PREFIX)
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    vector = np.frombuffer(data if len(data) % 2 == 0 else b"", DTYPE).astype(np.float32)
    norm = float(np.linalg.norm(vector))
    if not token.startswith(PREFIX) or len(vector) != width or not 0.9 < norm < 1.1:
        raise HTTPProblem(422, "like: give the id of a hit, or the picture of an upload.")
    return vector / np.float32(norm)
