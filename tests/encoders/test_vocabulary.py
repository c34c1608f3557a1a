"""The file of a sub-word vocabulary."""

from __future__ import annotations

import lzma
import struct

import numpy as np
import pytest

from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import DataError

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁dog", "犬", "▁köter", "🐕", "<mask>"]
SCORES = [0.0, 0.0, 0.0, 0.0, -3.4635427, -5.1, -5.1, -17.25, -20.364653, 0.0]
FREQUENT = [1, 1, 1, 1, 0, 1, 0, 1, 0, 0]


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(
        PIECES, np.array(SCORES, np.float32), np.array(FREQUENT, bool), b"rules\n\x00\xff"
    )


def test_the_file_round_trips(vocabulary: Vocabulary) -> None:
    copy = Vocabulary.from_bytes(vocabulary.to_bytes())
    assert copy.pieces == PIECES
    assert copy.scores.tobytes() == vocabulary.scores.tobytes()  # to the last bit
    assert copy.frequent.tolist() == [bool(flag) for flag in FREQUENT]
    assert copy.charsmap == b"rules\n\x00\xff"


def test_frequent_pieces_come_first_in_the_table(vocabulary: Vocabulary) -> None:
    assert vocabulary.order.tolist() == [0, 1, 2, 3, 6, 4, 7, 5, 8, 9]
    table = [PIECES[i] for i in np.argsort(vocabulary.order)]
    assert table[4:] == ["▁dog", "▁köter", "▁", "犬", "🐕", "<mask>"]


def test_a_damaged_file_is_refused(vocabulary: Vocabulary) -> None:
    content = vocabulary.to_bytes()
    data = lzma.decompress(content)
    header = struct.pack("<4s3I", b"PGV1", 10**6, 3, 3)
    damaged = [
        b"",
        b"no xz at all",
        content[:-20],
        content[:60] + b"\x00\x01\x02" + content[63:],
        lzma.compress(b""),
        lzma.compress(data + b"more"),
        lzma.compress(b"PGV9" + data[4:]),
        lzma.compress(header + data[16:]),
        lzma.compress(data.replace(b"<pad>", b"<pat>")),
        lzma.compress(data.replace("犬".encode(), b"\xff\xfe\xfd")),
    ]
    for bad in damaged:
        with pytest.raises(DataError, match=r"words\.xz is damaged .*: install or export it again"):
            Vocabulary.from_bytes(bad, "words.xz")
