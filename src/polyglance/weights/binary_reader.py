"""Reading binary files whose little-endian numbers lie one after another."""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import NDArray


class Cursor:
    """A place in a mapped file, which moves on with everything that is taken."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Numbers, by a layout as `struct` has it, without its sign for the byte order."""
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def take_bytes(self, count: int) -> bytes:
        """So many bytes."""
        self.at += count
        return self.data[self.at - count : self.at]

    def take_array(self, dtype: str, count: int) -> NDArray[np.generic]:
        """So many numbers of one kind."""
        return np.frombuffer(self.take_bytes(count * np.dtype(dtype).itemsize), dtype)

    def take_word(self) -> bytes:
        """Bytes up to a zero, as C ends its texts."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise ValueError("a word has no end")
        start, self.at = self.at, end + 1
        return self.data[start:end]
