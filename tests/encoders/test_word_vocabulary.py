"""The file of a word vocabulary."""

from __future__ import annotations

import lzma
import struct

import numpy as np
import pytest

from polyglance.encoders.word_vocabulary import WordVocabulary
from polyglance.errors import DataError
from polyglance.text.lexicon import Lexicon

COUNTS = {
    "en": {"a": 70_000, "dog": 12, "fish": 0},
    "ja": {"犬": 5_000_000_000},
    "ar": {},
    "de": {"a": 1},
}
LEXICON = Lexicon(COUNTS, segmented=["ja"], aliases={"de": {"hund": 3}})
ROWS = np.array([0, 1, 7, 8, 2, 300_000, 2], np.int32)


@pytest.fixture
def vocabulary() -> WordVocabulary:
    return WordVocabulary(LEXICON, ROWS)


def test_the_file_round_trips(vocabulary: WordVocabulary) -> None:
    copy = WordVocabulary.from_bytes(vocabulary.to_bytes())
    assert copy.lexicon.counts == LEXICON.counts
    assert copy.lexicon.languages == ("en", "ja", "ar", "de")
    assert copy.lexicon.words == LEXICON.words
    assert copy.lexicon.segmented == {"ja"}
    assert copy.lexicon.aliases == {"de": {"hund": 3}}
    assert copy.rows.tolist() == ROWS.tolist()


def test_words_map_to_the_rows_of_their_language(vocabulary: WordVocabulary) -> None:
    assert vocabulary.encode("A dog, a fish", 9, "en") == [7, 8, 7, 2]
    assert vocabulary.encode("A dog, a fish", 2, "en") == [7, 8]
    assert vocabulary.encode("a Hund", 9, "de") == [2, 8]  # a borrowed word stands for another's
    assert vocabulary.encode("a dog", 9, "ar") == []
    assert vocabulary.encode("the dog", 9) == [8]


def test_an_empty_vocabulary_round_trips(vocabulary: WordVocabulary) -> None:
    empty = WordVocabulary(Lexicon({"en": {}}), np.array([0, 1], np.int32))
    copy = WordVocabulary.from_bytes(empty.to_bytes())
    assert copy.lexicon.counts == {"en": {}}
    assert copy.encode("a dog", 9) == []


def test_many_words_compress_well() -> None:
    words = {f"wort{number}": 1 + 90_000 // (number + 1) for number in range(20_000)}
    rows = np.arange(20_002, dtype=np.int32)
    content = WordVocabulary(Lexicon({"de": words}), rows).to_bytes()
    assert len(content) < 40_000  # 2 bytes a word, where its letters alone are 9
    assert WordVocabulary.from_bytes(content).lexicon.counts["de"] == words


def test_a_damaged_file_is_refused(vocabulary: WordVocabulary) -> None:
    content = vocabulary.to_bytes()
    data = lzma.decompress(content)
    damaged = [
        b"",
        b"no xz at all",
        content[:-20],
        lzma.compress(b""),
        lzma.compress(data + b"more"),
        lzma.compress(data + b"more bytes by the step")[:-1],
        lzma.compress(data + bytes(4)),
        lzma.compress(b"PGV1" + data[4:]),
        lzma.compress(struct.pack("<4s2I", b"PGW1", 10**6, 3) + data[12:]),
        lzma.compress(data.replace(b'"ja":1', b'"ja":2')),
        lzma.compress(data.replace(b'"segmented"', b'"secmented"')),
        lzma.compress(data.replace(b"dog", b"a\na")),
        lzma.compress(data.replace("犬".encode(), b"\xff\xfe\xfd")),
    ]
    for bad in damaged:
        with pytest.raises(DataError, match=r"words\.xz is damaged .*: install or export it again"):
            WordVocabulary.from_bytes(bad, "words.xz")
