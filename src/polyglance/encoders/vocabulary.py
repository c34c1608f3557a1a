"""XLM-R's vocabulary in one small file.

A vocabulary of 250,002 pieces takes 17 MB as a ``tokenizer.json`` and 1.4 MB here. The
file is one xz stream of, in little-endian order:

    4 bytes       ``PGV1``
    3 x uint32    the number of pieces, and the bytes of their text and of the charsmap
    bits          one per piece: whether it is frequent and has finer codes in the table
    4 x n bytes   scores: differences of the bits of consecutive float32, by byte planes
    text          the pieces in UTF-8, one per line
    charsmap      SentencePiece's compiled normalisation

Pieces are in the tokenizer's own order, most likely first, in which their scores compress
well. In the embedding table frequent pieces come first; `Vocabulary.order` maps one order to
the other.
"""

from __future__ import annotations

import lzma
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError
from polyglance.utils.bounded import decompress_xz
from polyglance.weights.unigram import SPECIALS

_MAGIC = b"PGV1"
_HEADER = struct.Struct("<4s3I")
# UTF-8 of many scripts: the next byte depends on the last ones, not on the alignment.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The pieces of an XLM-R unigram tokenizer, in the tokenizer's own order."""

    pieces: list[str]
    scores: NDArray[np.float32]
    frequent: NDArray[np.bool_]
    """(pieces,): which pieces come first in the embedding table."""
    charsmap: bytes

    @property
    def order(self) -> NDArray[np.int32]:
        """The row of each piece in the embedding table: frequent pieces first, else in order."""
        order = np.empty(len(self.pieces), np.int32)
        order[np.argsort(~self.frequent, kind="stable")] = np.arange(len(order))
        return order

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        text = "\n".join(self.pieces).encode()
        steps = np.diff(self.scores.view(np.int32), prepend=np.int32(0)).astype("<i4")
        parts = [
            _HEADER.pack(_MAGIC, len(self.pieces), len(text), len(self.charsmap)),
            np.packbits(self.frequent).tobytes(),
            steps.view(np.uint8).reshape(-1, 4).T.tobytes(),
            text,
            self.charsmap,
        ]
        return lzma.compress(b"".join(parts), filters=FILTERS)

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "the vocabulary") -> Vocabulary:
        """Parse the content of the file; ``name`` is used in errors."""
        try:
            data = decompress_xz(content)
            magic, count, text_bytes, charsmap_bytes = _HEADER.unpack_from(data)
            bits_at = _HEADER.size
            scores_at = bits_at + -(-count // 8)
            text_at = scores_at + 4 * count
            charsmap_at = text_at + text_bytes
            if magic != _MAGIC or len(data) != charsmap_at + charsmap_bytes:
                raise ValueError("its parts do not fit together")
            bits = np.frombuffer(data, np.uint8, scores_at - bits_at, bits_at)
            planes = np.frombuffer(data, np.uint8, 4 * count, scores_at).reshape(4, -1)
            steps = np.ascontiguousarray(planes.T).view("<i4")[:, 0]
            pieces = data[text_at:charsmap_at].decode().split("\n")
            if len(pieces) != count or pieces[: len(SPECIALS)] != list(SPECIALS):
                raise ValueError("it is not an XLM-R vocabulary")
        except (ValueError, struct.error) as error:
            raise DataError(f"{name} is damaged ({error}): install or export it again") from error
        scores = np.cumsum(steps, dtype=np.int32).view(np.float32)
        frequent = np.unpackbits(bits, count=count).astype(bool)
        return cls(pieces, scores, frequent, data[charsmap_at:])
