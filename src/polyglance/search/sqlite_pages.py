"""Read rows directly from the pages of a damaged SQLite file (https://sqlite.org/fileformat2.html).

SQLite finds rows through pages that point to others; where one of those is damaged, all below
it is lost to SQLite. Here every page is looked at by itself. What is found is only a candidate:
its checksum says whether it is a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE_SIZE = 4096
"""SQLite's default, which libraries have."""
MAX_CELLS = PAGE_SIZE // 4
MAX_PAYLOAD = 1 << 26
"""The longest row that is put together from several pages."""

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 13, 10, 2
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_HEADER = b"SQLite format 3\0" + bytes([PAGE_SIZE >> 8, PAGE_SIZE & 255, 2, 2, 0, 64, 32, 32])


def mend_header(content: bytearray, size: int, application_id: int) -> None:
    """Write what the first 100 bytes of every library's file must be, in place.

    Args:
        content: The first 100 bytes.
        size: Bytes of the whole file.
        application_id: What tells a library from any other SQLite file.
    """
    content[: len(_HEADER)] = _HEADER
    counter = content[24:28]
    content[28:32] = struct.pack(">I", size // PAGE_SIZE)
    content[44:72] = struct.pack(">IIIIIII", 4, 0, 0, 1, 0, 0, application_id)
    content[72:92] = bytes(20)
    content[92:96] = counter


def free_pages(content: bytes) -> set[int]:
    """Return the numbers of the pages that are not in use, as far as they can be told."""
    number, count = struct.unpack_from(">II", content, 32)
    free: set[int] = set()
    while 0 < number <= len(content) // PAGE_SIZE and number not in free and len(free) < count:
        free.add(number)
        start = (number - 1) * PAGE_SIZE
        number, leaves = struct.unpack_from(">II", content, start)
        leaves = min(leaves, PAGE_SIZE // 4 - 2)
        free.update(struct.unpack_from(f">{leaves}I", content, start + 8))
    return free


def read_rows(path: Path) -> Iterator[tuple[int | None, list[Any]]]:
    """Yield what look like rows: their number, None in tables without, and their values."""
    content = path.read_bytes()
    free = free_pages(content) if len(content) >= PAGE_SIZE else set()
    for number in range(1, len(content) // PAGE_SIZE + 1):
        if number not in free:
            yield from _page_rows(content, number)


def _page_rows(content: bytes, number: int) -> Iterator[tuple[int | None, list[Any]]]:
    start = (number - 1) * PAGE_SIZE
    header = start + (100 if number == 1 else 0)
    kind = content[header]
    if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
        return
    cells = min(int.from_bytes(content[header + 3 : header + 5], "big"), MAX_CELLS)
    pointers = header + (12 if kind == _INDEX_INTERIOR else 8)
    for cell in range(cells):
        offset = int.from_bytes(content[pointers + 2 * cell : pointers + 2 * cell + 2], "big")
        try:
            position = start + offset + (4 if kind == _INDEX_INTERIOR else 0)
            length, position = _varint(content, position)
            row_id = None
            if kind == _TABLE_LEAF:
                row_id, position = _varint(content, position)
                row_id -= (row_id >> 63) << 64
            payload = _payload(content, position, length, is_table=kind == _TABLE_LEAF)
            yield row_id, _values(payload)
        except (IndexError, ValueError, struct.error):
            continue


def _payload(content: bytes, position: int, length: int, *, is_table: bool) -> bytes:
    """Put the bytes of a row together, of which the last may be on further pages."""
    if not 0 < length <= MAX_PAYLOAD:
        raise ValueError
    most = PAGE_SIZE - 35 if is_table else (PAGE_SIZE - 12) * 64 // 255 - 23
    if length <= most:
        return content[position : position + length]
    least = (PAGE_SIZE - 12) * 32 // 255 - 23
    local = least + (length - least) % (PAGE_SIZE - 4)
    local = local if local <= most else least
    parts = [content[position : position + local]]
    page = int.from_bytes(content[position + local : position + local + 4], "big")
    missing = length - local
    while missing > 0:
        start = (page - 1) * PAGE_SIZE
        if page < 1 or start + PAGE_SIZE > len(content):
            raise ValueError
        parts.append(content[start + 4 : start + 4 + min(missing, PAGE_SIZE - 4)])
        page = int.from_bytes(content[start : start + 4], "big")
        missing -= PAGE_SIZE - 4
    return b"".join(parts)


def _values(payload: bytes) -> list[Any]:
    """Decode a record."""
    length, position = _varint(payload, 0)
    kinds = []
    while position < length:
        kind, position = _varint(payload, position)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = _INTEGER_SIZES.get(kind) or (8 if kind == 7 else max(0, kind - 12) // 2)
        piece = payload[position : position + size]
        if len(piece) != size or kind in (10, 11):
            raise ValueError
        position += size
        if kind in (0, 8, 9):
            values.append({0: None, 8: 0, 9: 1}[kind])
        elif kind in _INTEGER_SIZES:
            values.append(int.from_bytes(piece, "big", signed=True))
        elif kind == 7:
            values.append(struct.unpack(">d", piece)[0])
        else:
            values.append(piece.decode(errors="surrogateescape") if kind % 2 else piece)
    return values


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = content[position + count]
        if count == 8:
            return value << 8 | byte, position + 9
        value = value << 7 | byte & 127
        if byte < 128:
            return value, position + count + 1
    raise ValueError
