from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyglance.weights.wire import fields


def test_fields_of_every_kind_are_read() -> None:
    message = (
        b"\x08\x96\x01"  # field 1: the number 150
        b"\x12\x03abc"  # field 2: three bytes
        b"\x1d" + struct.pack("<f", -2.5) +  # field 3: a float
        b"\x21" + bytes(8) +  # field 4: eight bytes
        b"\x80\x01\x01"  # field 16: the number 1
    )  # fmt: skip
    assert list(fields(message)) == [(1, 150), (2, b"abc"), (3, -2.5), (4, bytes(8)), (16, 1)]


@pytest.mark.parametrize(
    "message",
    [
        b"\x08",
        b"\x08\xff",
        b"\x12\x05abc",
        b"\x1d\x00",
        b"\x0b",
        b"\x00\x01",
        b"\x08" + b"\xff" * 11,
    ],
)
def test_what_is_cut_short_or_unknown_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        list(fields(message))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    try:
        found = list(fields(message))
    except ValueError:
        return
    assert all(number > 0 for number, _ in found)
