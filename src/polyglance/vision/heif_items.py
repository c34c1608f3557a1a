"""The items of a HEIF file: which there are, where they lie and how they belong together.

A HEIC picture is one item compressed by HEVC, or a grid of such items, which phones write
(ISO/IEC 23008-12). The boxes are those of ISO/IEC 14496-12.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_MAX_EXTENTS = 1024
Box = tuple[bytes, int, int]
"""Name, and start and end of the content."""


@dataclass
class HeifItems:
    """The items of a file, by their numbers."""

    data: bytes
    primary: int = 0
    """The main picture."""
    kinds: dict[int, bytes] = field(default_factory=dict)
    references: dict[tuple[bytes, int], tuple[int, ...]] = field(default_factory=dict)
    """By kind of reference and item: the items that it refers to."""
    _properties: list[tuple[bytes, bytes]] = field(default_factory=list)
    _associations: dict[int, list[int]] = field(default_factory=dict)
    _locations: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def properties(self, item: int) -> list[tuple[bytes, bytes]]:
        """Return name and content of the properties of an item, in their order."""
        return [self._properties[number] for number in self._associations.get(item, ())]

    def content(self, item: int) -> bytes:
        """Return the bytes of an item."""
        parts = [self.data[start : start + length] for start, length in self._locations[item]]
        if sum(map(len, parts)) != sum(length for _, length in self._locations[item]):
            raise ValueError("an item ends after the file")
        return b"".join(parts)


def read_items(data: bytes) -> HeifItems:
    """Read the boxes of a file; raise ValueError, LookupError or struct.error if one is broken."""
    found = HeifItems(data)
    start, end = {name: (at, stop) for name, at, stop in _boxes(data, 0, len(data))}[b"meta"]
    boxes = {name: (at, stop) for name, at, stop in _boxes(data, start + 4, end)}
    at, _ = boxes[b"pitm"]
    found.primary = int.from_bytes(data[at + 4 : at + (8 if data[at] else 6)], "big")
    _read_kinds(data, *boxes[b"iinf"], found)
    if b"iref" in boxes:
        _read_references(data, *boxes[b"iref"], found)
    for name, at, stop in _boxes(data, *boxes[b"iprp"]):
        if name == b"ipco":
            found._properties = [(kind, data[a:b]) for kind, a, b in _boxes(data, at, stop)]
        elif name == b"ipma":
            _read_associations(data, at, found)
    _read_locations(data, boxes[b"iloc"][0], boxes.get(b"idat", (0, 0))[0], found)
    return found


def _boxes(data: bytes, start: int, end: int) -> Iterator[Box]:
    while start + 8 <= end:
        length, name = struct.unpack_from(">I4s", data, start)
        head = 8
        if length == 1:
            [length] = struct.unpack_from(">Q", data, start + 8)
            head = 16
        stop = end if length == 0 else start + length
        if not start + head <= stop <= end:
            raise ValueError("a box ends after what it is in")
        yield name, start + head, stop
        start = stop


def _read_kinds(data: bytes, start: int, end: int, found: HeifItems) -> None:
    for name, at, _ in _boxes(data, start + (8 if data[start] else 6), end):
        if name == b"infe" and data[at] >= 2:
            item, _, kind = struct.unpack_from(">IH4s" if data[at] > 2 else ">HH4s", data, at + 4)
            found.kinds[item] = kind


def _read_references(data: bytes, start: int, end: int, found: HeifItems) -> None:
    size = "I" if data[start] else "H"
    for name, at, _ in _boxes(data, start + 4, end):
        item, count = struct.unpack_from(f">{size}H", data, at)
        numbers = struct.unpack_from(f">{count}{size}", data, at + struct.calcsize(f">{size}H"))
        found.references[name, item] = numbers


def _read_associations(data: bytes, at: int, found: HeifItems) -> None:
    version, is_wide = data[at], data[at + 3] & 1
    [count] = struct.unpack_from(">I", data, at + 4)
    at += 8
    for _ in range(count):
        item, number = struct.unpack_from(">IB" if version else ">HB", data, at)
        at += 5 if version else 3
        indices = struct.unpack_from(f">{number}{'H' if is_wide else 'B'}", data, at)
        at += number * (2 if is_wide else 1)
        mask = 0x7FFF if is_wide else 0x7F  # the first bit says that it must be understood
        found._associations[item] = [(index & mask) - 1 for index in indices if index & mask]


def _read_locations(data: bytes, at: int, inside: int, found: HeifItems) -> None:
    version = data[at]
    offset_size, length_size = data[at + 4] >> 4, data[at + 4] & 15
    base_size, index_size = data[at + 5] >> 4, data[at + 5] & 15 if version else 0
    at += 6

    def number(size: int) -> int:
        nonlocal at
        if at + size > len(data):
            raise ValueError("the locations end after the file")
        at += size
        return int.from_bytes(data[at - size : at], "big")

    wide = 4 if version == 2 else 2
    for _ in range(number(wide)):
        item = number(wide)
        method = number(2) & 15 if version else 0
        number(2)
        base = number(base_size) + (inside if method == 1 else 0)
        count = number(2)
        if method > 1 or count > _MAX_EXTENTS:
            raise ValueError("an item lies in other items, or in too many parts")
        parts = []
        for _ in range(count):
            number(index_size)
            parts.append((base + number(offset_size), number(length_size)))
        found._locations[item] = parts
