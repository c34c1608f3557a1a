"""Pictures as they are uploaded, sound and hostile."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

PNG = b"\x89PNG\r\n\x1a\n"


def photograph(width: int = 60, height: int = 40) -> Image.Image:
    """A smooth gradient: red to the left, green to the right, blue below."""
    rows, columns = np.mgrid[0:height, 0:width] / [[[height]], [[width]]]
    return Image.fromarray(np.uint8(np.stack([1 - columns, columns, rows], -1) * 255))


def file(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, pixels: bytes, *more: bytes, colours: int = 0) -> bytes:
    """An 8-bit PNG with any header; ``pixels`` are already compressed."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0))
    return PNG + header + b"".join(more) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    """``count`` zero bytes compressed by zlib to a thousandth, computed quickly."""

    def packed(size: int) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(bytes(size)) + packer.flush(zlib.Z_FULL_FLUSH)

    million, rest = divmod(count, 1_000_000)
    checksum = struct.pack(">HH", count % 65521, 1)
    return b"\x78\xda" + packed(1_000_000) * million + packed(rest) + b"\x03\0" + checksum


def gif(screen: tuple[int, int], frame: tuple[int, int], *, before: bytes = b"") -> bytes:
    """A GIF of one frame that may be larger than its screen."""
    sound = file(Image.new("P", (1, 1)), "GIF")
    start = sound.index(b",\0\0\0\0")  # the frame: its place and size
    head = sound[:6] + struct.pack("<HH", *screen) + sound[10:start]
    return head + before + b",\0\0\0\0" + struct.pack("<HH", *frame) + sound[start + 9 :]


def jpeg_of(width: int, height: int, kind: str = "JPEG", **options: Any) -> bytes:
    """A JPEG whose header claims a size that it does not have."""
    sound = bytearray(file(photograph(), kind, **options))
    at = next(place for marker in (b"\xff\xc0", b"\xff\xc2") if (place := sound.find(marker)) > 0)
    sound[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(sound)


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG that repeats an empty scan over all its pixels."""
    sound = file(Image.new("L", (side, side)), "JPEG", progressive=True)
    last = sound.rindex(b"\xff\xda")
    return sound[:last] + sound[last:-2] * scans + sound[-2:]
