"""HEIC and HEIF pictures, which phones make, read by pi-heif (the extra ``photos``).

A phone's file is a grid of tiles, and the decoder has to decode all of them whatever the size that
is wanted. Most files also hold a preview, an item of its own: where that is large enough it
takes the place of the picture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec

HEIF_SUFFIXES = frozenset({".heic", ".heif", ".hif"})
FORMAT = "HEIF"
"""Pillow's name of the format."""

_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_AVIF_BRANDS = (b"avif", b"avis")
_TRANSFORMS = (b"irot", b"imir", b"clap")
_MAX_ASPECT_DIFFERENCE = 0.03


def can_read_heif() -> bool:
    """Return whether pi-heif is installed."""
    return find_spec("pi_heif") is not None


def is_heif(head: bytes) -> bool:
    """Return whether a file that begins so is HEIC or HEIF, and not AVIF, which Pillow reads."""
    if head[4:8] != b"ftyp" or head[8:12] not in _BRANDS:
        return False
    end = min(int.from_bytes(head[:4], "big"), len(head))
    return not any(head[at : at + 4] in _AVIF_BRANDS for at in range(16, end, 4))


def register() -> None:
    """Let Pillow open the format; one thread, because files are decoded in parallel."""
    import pi_heif

    pi_heif.register_heif_opener(
        decode_threads=1, thumbnails=False, depth_images=False, aux_images=False
    )


@dataclass
class _Container:
    """The boxes of a file that say which of its pictures is which (ISO/IEC 23008-12)."""

    primary: int = 0
    primary_at: int = 0
    """Where the number of the main picture is written."""
    primary_size: int = 2
    previews: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of the main picture's previews, and where the box is that says so."""
    properties: list[bytes] = field(default_factory=list)
    """Box name and content of each property."""
    associations: dict[int, list[int]] = field(default_factory=dict)

    def size(self, item: int) -> tuple[int, int]:
        """Return width and height before rotation."""
        for number in self.associations[item]:
            if self.properties[number][:4] == b"ispe":
                width, height = struct.unpack_from(">II", self.properties[number], 8)
                return width, height
        raise ValueError

    def transforms(self, item: int) -> list[bytes]:
        """Return the rotations, reflections and crops of an item."""
        found = (self.properties[number] for number in self.associations[item])
        return [content for content in found if content[:4] in _TRANSFORMS]


def select_preview(data: bytes, min_side: int) -> bytes | None:
    """Return the file with its preview in place of the main picture.

    Args:
        data: The content of a HEIC file.
        min_side: Least pixels of the preview's shorter side.

    Returns:
        The changed content; None if the file has no preview that is large enough, of the same
        shape, and turned by the same angle.
    """
    try:
        container = _read_container(data)
        width, height = container.size(container.primary)
        transforms = container.transforms(container.primary)
        found = []
        for item, box in container.previews:
            size = container.size(item)
            aspect = size[0] * height / (size[1] * width)
            alike = abs(aspect - 1) <= _MAX_ASPECT_DIFFERENCE + 1 / min(size)
            if min(size) >= min_side and alike and container.transforms(item) == transforms:
                found.append((min(size), item, box))
        if not found or b"clap" in (content[:4] for content in transforms):
            return None
        _, item, box = min(found)
        changed = bytearray(data)
        at, length = container.primary_at, container.primary_size
        changed[at : at + length] = item.to_bytes(length, "big")
        changed[box : box + 4] = b"free"  # a picture of its own, and no preview any more
        return bytes(changed)
    except (ValueError, LookupError, ArithmeticError, struct.error):
        return None


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of the content of each box in a part of a file."""
    while start + 8 <= end:
        length, name = struct.unpack_from(">I4s", data, start)
        head = 8
        if length == 1:
            [length] = struct.unpack_from(">Q", data, start + 8)
            head = 16
        stop = end if length == 0 else start + length
        if not start + head <= stop <= end:
            raise ValueError
        yield name, start + head, stop
        start = stop


def _read_container(data: bytes) -> _Container:
    found = _Container()
    _, start, end = next(box for box in _boxes(data, 0, len(data)) if box[0] == b"meta")
    boxes = {name: (at, stop) for name, at, stop in _boxes(data, start + 4, end)}
    at, _ = boxes[b"pitm"]
    found.primary_at, found.primary_size = at + 4, 4 if data[at] else 2
    found.primary = int.from_bytes(data[at + 4 : at + 4 + found.primary_size], "big")
    _read_previews(data, *boxes[b"iref"], found)
    for name, start, end in _boxes(data, *boxes[b"iprp"]):
        if name == b"ipco":
            found.properties = [name + data[at:stop] for name, at, stop in _boxes(data, start, end)]
        elif name == b"ipma":
            _read_associations(data, start, found)
    return found


def _read_previews(data: bytes, start: int, end: int, found: _Container) -> None:
    size = "I" if data[start] else "H"
    for name, at, _ in _boxes(data, start + 4, end):
        if name == b"thmb":
            item, count = struct.unpack_from(f">{size}H", data, at)
            targets = struct.unpack_from(f">{count}{size}", data, at + struct.calcsize(f">{size}H"))
            if found.primary in targets and data[at - 4 : at] == name:
                found.previews.append((item, at - 4))


def _read_associations(data: bytes, at: int, found: _Container) -> None:
    version, wide = data[at], data[at + 3] & 1
    [count] = struct.unpack_from(">I", data, at + 4)
    at += 8
    for _ in range(count):
        item, number = struct.unpack_from(">IB" if version else ">HB", data, at)
        at += 5 if version else 3
        indices = struct.unpack_from(f">{number}{'H' if wide else 'B'}", data, at)
        at += number * (2 if wide else 1)
        mask = 0x7FFF if wide else 0x7F
        found.associations[item] = [(index & mask) - 1 for index in indices if index & mask]
