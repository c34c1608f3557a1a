"""Reading binary files whose little-endian numbers lie one after another."""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import NDArray


class BinaryReader:
    """A place in a mapped file, which moves on with everything that is taken."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.offset = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        """Numbers, by a layout as `struct` has it, without its sign for the byte order."""
        values = struct.unpack_from(f"<{layout}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{layout}")
        return values

    def read_bytes(self, count: int) -> bytes:
        """So many bytes."""
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def read_array(self, dtype: str, count: int) -> NDArray[np.generic]:
        """So many numbers of one kind."""
        return np.frombuffer(self.read_bytes(count * np.dtype(dtype).itemsize), dtype)

    def read_c_string(self) -> bytes:
        """Bytes up to a zero, as C ends its texts."""
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise ValueError("a word has no end")
        start, self.offset = self.offset, end + 1
        return self.data[start:end]
