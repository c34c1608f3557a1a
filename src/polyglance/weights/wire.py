"""The wire format of protocol buffers, as much as SentencePiece's files need.

Reading two message types does not call for the protobuf library, whose
versions clash more often than they help.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | float | bytes


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield a message's fields as (number, value): int, float (32 bits) or bytes.

    A `ValueError` says that this is no such message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise ValueError("a field without a number")
        value: Value
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 1:
            value, at = _slice(message, at, 8)
        elif kind == 2:
            length, at = _varint(message, at)
            value, at = _slice(message, at, length)
        elif kind == 5:
            data, at = _slice(message, at, 4)
            (value,) = struct.unpack("<f", data)
        else:
            raise ValueError(f"a field of unknown kind {kind}")
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a message that is cut short")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number that does not end")


def _slice(message: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(message):
        raise ValueError("a message that is cut short")
    return message[at : at + length], at + length
