"""Write DNG files, the RAW format of phones and of some cameras (Adobe DNG specification 1.4)."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

_BYTE, _ASCII, _SHORT, _LONG, _RATIONAL, _SIGNED_RATIONAL = 1, 2, 3, 4, 5, 10
_CODES = {_BYTE: "B", _SHORT: "H", _LONG: "I"}
_FROM_XYZ = (3.2406, -1.5372, -0.4986, -0.9689, 1.8758, 0.0415, 0.0557, -0.2040, 1.0570)
"""CIE XYZ to linear sRGB: a camera that sees as a screen shows."""
_SCALE = 10_000

Tags = Mapping[int, tuple[int, Any]]


def dng(
    picture: Image.Image,
    *,
    preview: int = 0,
    orientation: int = 1,
    make: str = "Phone",
    model: str = "Phone 1",
    taken: str = "",
    place: tuple[float, float] | None = None,
    claim: tuple[int, int] | None = None,
) -> bytes:
    """Return a DNG file.

    Args:
        picture: What the sensor saw, in RGB.
        preview: Longer side of the embedded JPEG; 0 for none.
        orientation: As in EXIF.
        make: Maker of the camera.
        model: Model of the camera.
        taken: When, as EXIF writes it: ``2024:07:31 18:05:00``.
        place: Latitude and longitude in degrees.
        claim: Size that the header gives instead of the real one.

    Returns:
        The content of the file.
    """
    file = _File()
    pixels = np.asarray(picture.convert("RGB"), np.float64) / 255
    linear = np.where(pixels <= 0.04045, pixels / 12.92, ((pixels + 0.055) / 1.055) ** 2.4)
    mosaic = linear[..., 1].copy()  # red and green, green and blue
    mosaic[::2, ::2], mosaic[1::2, 1::2] = linear[::2, ::2, 0], linear[1::2, 1::2, 2]
    values = np.round(mosaic * 65535).astype("<u2").tobytes()
    width, height = claim or picture.size
    sensor = {
        254: (_LONG, [0]), 256: (_LONG, [width]), 257: (_LONG, [height]), 258: (_SHORT, [16]),
        259: (_SHORT, [1]), 262: (_SHORT, [32803]), 273: (_LONG, [file.add(values)]),
        277: (_SHORT, [1]), 278: (_LONG, [height]), 279: (_LONG, [len(values)]),
        33421: (_SHORT, [2, 2]), 33422: (_BYTE, [0, 1, 1, 2]), 50717: (_LONG, [65535]),
    }  # fmt: skip
    camera: dict[int, tuple[int, Any]] = {
        271: (_ASCII, make), 272: (_ASCII, model), 274: (_SHORT, [orientation]),
        50706: (_BYTE, [1, 4, 0, 0]), 50707: (_BYTE, [1, 1, 0, 0]), 50708: (_ASCII, model),
        50721: (_SIGNED_RATIONAL, _FROM_XYZ), 50728: (_RATIONAL, [1.0, 1.0, 1.0]),
        50778: (_SHORT, [21]),
    }  # fmt: skip
    if taken:
        camera[34665] = (_LONG, [file.add_directory({36867: (_ASCII, taken)})])
    if place:
        camera[34853] = (_LONG, [file.add_directory(_gps(*place))])
    if not preview:
        return file.finish({**sensor, **camera})
    small, out = picture.convert("RGB").copy(), io.BytesIO()
    small.thumbnail((preview, preview))
    small.save(out, "JPEG", quality=90)
    jpeg = out.getvalue()
    shown = {
        254: (_LONG, [1]), 256: (_LONG, [small.width]), 257: (_LONG, [small.height]),
        258: (_SHORT, [8, 8, 8]), 259: (_SHORT, [7]), 262: (_SHORT, [6]),
        273: (_LONG, [file.add(jpeg)]), 277: (_SHORT, [3]), 278: (_LONG, [small.height]),
        279: (_LONG, [len(jpeg)]), 330: (_LONG, [file.add_directory(sensor)]),
    }  # fmt: skip
    return file.finish({**shown, **camera})


def _gps(latitude: float, longitude: float) -> Tags:
    def parts(degrees: float) -> list[float]:
        whole, rest = divmod(abs(degrees), 1)
        return [whole, (minutes := int(rest * 60)), (rest * 60 - minutes) * 60]

    return {
        1: (_ASCII, "N" if latitude >= 0 else "S"), 2: (_RATIONAL, parts(latitude)),
        3: (_ASCII, "E" if longitude >= 0 else "W"), 4: (_RATIONAL, parts(longitude)),
    }  # fmt: skip


class _File:
    """A TIFF file in the making: content first, then the directories that point to it."""

    def __init__(self) -> None:
        self._content = bytearray(b"II*\0\0\0\0\0")

    def add(self, content: bytes) -> int:
        """Append content at an even offset, which is returned."""
        self._content += bytes(len(self._content) % 2)
        offset = len(self._content)
        self._content += content
        return offset

    def add_directory(self, tags: Tags) -> int:
        """Append a directory, its longer values before it; return its offset."""
        entries = b""
        for tag, (kind, given) in sorted(tags.items()):
            value, count = _pack(kind, given)
            if len(value) > 4:
                value = struct.pack("<I", self.add(value))
            entries += struct.pack("<HHI", tag, kind, count) + value.ljust(4, b"\0")
        return self.add(struct.pack("<H", len(tags)) + entries + bytes(4))

    def finish(self, tags: Tags) -> bytes:
        """Return the file with its first directory."""
        struct.pack_into("<I", self._content, 4, self.add_directory(tags))
        return bytes(self._content)


def _pack(kind: int, given: Any) -> tuple[bytes, int]:
    if kind == _ASCII:
        text = str(given).encode() + b"\0"
        return text, len(text)
    values: Sequence[float] = given
    if kind in _CODES:
        return struct.pack(f"<{len(values)}{_CODES[kind]}", *values), len(values)
    pairs = [part for value in values for part in (round(value * _SCALE), _SCALE)]
    return struct.pack(f"<{len(pairs)}{'i' if kind == _SIGNED_RATIONAL else 'I'}", *pairs), len(
        values
    )
