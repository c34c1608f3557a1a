"""fastText's binary format, written from its description, to be read back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = 793712314, 12


def fnv(part: str) -> int:
    """The hash of a part of a word, a byte at a time: bytes count as signed, as in fastText."""
    value = 2166136261
    for byte in part.encode():
        signed = byte - 256 if byte >= 128 else byte
        value ^= signed & 0xFFFFFFFF
        value = value * 16777619 & 0xFFFFFFFF
    return value


def parts(word: str, shortest: int, longest: int) -> list[str]:
    """The parts of a word in fastText's order, letter by letter."""
    spelled = f"<{word}>"
    found = []
    for start in range(len(spelled)):
        for end in range(start + 1, min(len(spelled), start + longest) + 1):
            alone = end - start == 1 and (start == 0 or end == len(spelled))
            if end - start >= shortest and not alone:
                found.append(spelled[start:end])
    return found


def write_bin(
    path: Path,
    words: Sequence[str],
    rows: NDArray[np.float32],
    *,
    buckets: int,
    shortest: int = 3,
    longest: int = 6,
    version: int = VERSION,
    model: int = 2,
    labels: Sequence[str] = (),
    quantised: bool = False,
    pruned: int = -1,
) -> bytes:
    """A model of skip-gram (or of another kind) with these rows of words and buckets."""
    out = struct.pack("<2i", MAGIC, version)
    # width, window, epochs, min count, negatives, word n-grams, loss, model, buckets, minn, maxn,
    # rate of updates, sampling threshold
    out += struct.pack(
        "<12id", rows.shape[1], 5, 5, 1, 5, 1, 2, model, buckets, shortest, longest, 100, 1e-4
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
