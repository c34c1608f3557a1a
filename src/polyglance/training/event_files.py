"""Event files, which TensorBoard shows, written without its package.

A file is a sequence of records: a length, its checksum, a protocol buffer ``Event`` and its
checksum (TFRecord). An event here is a step and named scalars.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path

_START = 1
"""``SessionLog.START``: events of earlier files from this step on are void."""


class EventFile:
    """One event file; each process that logs opens a new one."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Create a file in ``folder``; scalars that earlier files have after a step are void."""
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("events.out.tfevents.*")))
        self.path = folder / f"events.out.tfevents.{int(time.time())}.polyglance.{number}"
        self._append(_event(0, _text(3, "brain.Event:2")))
        self._append(_event(first_step + 1, _message(7, _number(1, _START))))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Append named values of a step."""
        values = (_text(1, name) + _float(2, value) for name, value in scalars.items())
        self._append(_event(step, _message(5, b"".join(_message(1, value) for value in values))))

    def _append(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        with self.path.open("ab") as out:
            out.write(length + _masked_crc(length) + event + _masked_crc(event))


def _event(step: int, content: bytes) -> bytes:
    return _double(1, time.time()) + _number(2, step) + content


# Protocol buffers: a key (number and kind of the field), then the value.


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


# CRC-32C (Castagnoli), rotated and shifted as TFRecord has it.


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
