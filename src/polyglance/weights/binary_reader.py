"""Sequential reading of little-endian binary files."""

from __future__ import annotations

import mmap
import struct

import numpy as np
from numpy.typing import NDArray


class BinaryReader:
    """Reads a memory-mapped file from its beginning on."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.offset = 0

    def unpack(self, format: str) -> tuple[int, ...]:
        """Read numbers by a `struct` format without byte order."""
        values = struct.unpack_from(f"<{format}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{format}")
        return values

    def read_bytes(self, count: int) -> bytes:
        """Read so many bytes."""
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def read_array(self, dtype: str, count: int) -> NDArray[np.generic]:
        """Read an array of ``count`` numbers."""
        return np.frombuffer(self.read_bytes(count * np.dtype(dtype).itemsize), dtype)

    def read_c_string(self) -> bytes:
        """Read the bytes up to a zero byte, which is skipped."""
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise ValueError("a string has no end")
        start, self.offset = self.offset, end + 1
        return self.data[start:end]
