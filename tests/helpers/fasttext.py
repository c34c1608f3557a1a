"""Write models in fastText's binary format, from its specification."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = 793712314, 12


def fnv(part: str) -> int:
    """Hash an n-gram byte by byte; bytes are signed, as in fastText."""
    value = 2166136261
    for byte in part.encode():
        signed = byte - 256 if byte >= 128 else byte
        value ^= signed & 0xFFFFFFFF
        value = value * 16777619 & 0xFFFFFFFF
    return value


def ngrams(word: str, min_n: int, max_n: int) -> list[str]:
    """Return the n-grams of a word in fastText's order, by plain loops."""
    padded = f"<{word}>"
    result = []
    for start in range(len(padded)):
        for end in range(start + 1, min(len(padded), start + max_n) + 1):
            alone = end - start == 1 and (start == 0 or end == len(padded))
            if end - start >= min_n and not alone:
                result.append(padded[start:end])
    return result


def write_bin(
    path: Path,
    words: Sequence[str],
    rows: NDArray[np.float32],
    *,
    buckets: int,
    min_n: int = 3,
    max_n: int = 6,
    version: int = VERSION,
    model: int = 2,
    labels: Sequence[str] = (),
    quantised: bool = False,
    pruned: int = -1,
) -> bytes:
    """Write a model with these rows of words and buckets; return its bytes."""
    out = struct.pack("<2i", MAGIC, version)
    # width, window, epochs, min count, negatives, word n-grams, loss, model, buckets, minn, maxn,
    # rate of updates, sampling threshold
    out += struct.pack(
        "<12id", rows.shape[1], 5, 5, 1, 5, 1, 2, model, buckets, min_n, max_n, 100, 1e-4
    )
    entries = [(word, 0) for word in words] + [(label, 1) for label in labels]
    out += struct.pack("<3i2q", len(entries), len(words), len(labels), 1000, pruned)
    for number, (word, kind) in enumerate(entries):
        out += word.encode() + b"\0" + struct.pack("<qb", 100 - number, kind)
    out += struct.pack("<?", quantised)
    out += struct.pack("<2q", *rows.shape) + rows.astype("<f4").tobytes()
    out += struct.pack("<?", False)
    out += struct.pack("<2q", len(words), rows.shape[1])
    out += np.zeros((len(words), rows.shape[1]), "<f4").tobytes()
    path.write_bytes(out)
    return out
