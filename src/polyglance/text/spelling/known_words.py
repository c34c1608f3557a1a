"""A small set of words that answers "is it in there?" (Bloom 1970).

A word that is in the set is always found; of others, about one in a hundred is, too. A word takes
ten bits, whatever its length.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from hashlib import blake2b

from polyglance.errors import DataError

_BITS_PER_WORD = 10
_NUM_HASHES = 7
_MAGIC = b"PGK1"


class KnownWords:
    """Words of one language that are spelled right though its frequency list lacks them."""

    def __init__(self, bits: bytes = b"") -> None:
        self._bits = bits

    @classmethod
    def of(cls, words: Collection[str]) -> KnownWords:
        """Make a set of words, which are in lower case."""
        bits = bytearray(-(-len(words) * _BITS_PER_WORD // 8))
        for word in words:
            for place in _places(word, len(bits)):
                bits[place >> 3] |= 1 << (place & 7)
        return cls(bytes(bits))

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __contains__(self, word: str) -> bool:
        return bool(self._bits) and all(
            self._bits[place >> 3] >> (place & 7) & 1 for place in _places(word, len(self._bits))
        )

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return _MAGIC + self._bits

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "the set of words") -> KnownWords:
        """Read the content of the file; ``source`` is used in errors."""
        if content[: len(_MAGIC)] != _MAGIC:
            raise DataError(f"{source} is damaged: install Polyglance again")
        return cls(content[len(_MAGIC) :])


def _places(word: str, num_bytes: int) -> list[int]:
    """Return the bits of a word: double hashing (Kirsch and Mitzenmacher 2006)."""
    first, second = struct.unpack("<QQ", blake2b(word.encode(), digest_size=16).digest())
    return [(first + number * (second | 1)) % (8 * num_bytes) for number in range(_NUM_HASHES)]
