"""Protobuf's wire format, in which ONNX graphs are stored; searching installs no package for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | memoryview
Field = tuple[int, Value, memoryview]
"""Number, value and all bytes of a field."""


def as_message(value: Value) -> memoryview:
    """Return the content of a field that holds a message, text or bytes."""
    if not isinstance(value, memoryview):
        raise ValueError("a message was expected")
    return value


def read_fields(message: memoryview) -> Iterator[Field]:
    """Yield the fields of a message, in order."""
    at = 0
    while at < len(message):
        start = at
        key, at = read_integer(message, at)
        kind = key & 7
        value: Value
        if kind == _VARINT:
            value, at = read_integer(message, at)
        else:
            if kind == _BYTES:
                length, at = read_integer(message, at)
            elif kind in (_FIXED32, _FIXED64):
                length = 4 if kind == _FIXED32 else 8
            else:
                raise ValueError(f"no field has the kind {kind}")
            if at + length > len(message):
                raise ValueError("a field ends after the message")
            value, at = message[at : at + length], at + length
        yield key >> 3, value, message[start:at]


def read_integer(message: memoryview, at: int) -> tuple[int, int]:
    """Return the integer that begins at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("an integer is too long")


def write_integer(number: int, value: int) -> bytes:
    """Return a field that holds an integer."""
    return write_varint(number << 3 | _VARINT) + write_varint(value)


def write_float(number: int, value: float) -> bytes:
    """Return a field that holds a number in 32 bits."""
    return write_varint(number << 3 | _FIXED32) + struct.pack("<f", value)


def write_message(number: int, content: bytes) -> bytes:
    """Return a field that holds a message, text or bytes."""
    return write_varint(number << 3 | _BYTES) + write_varint(len(content)) + content


def write_varint(value: int) -> bytes:
    """Return an integer in groups of seven bits."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
