from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.records import Record


class Letters:
    """A tokenizer that anyone can check by eye: a letter an id, 0 at the end."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[*map(ord, text), 0] for text in texts]


RECORDS = [
    Record(image="0", captions={"de": ("ab", "c"), "en": ("d",)}),
    Record(image="1"),
    Record(image="2", captions={"en": ("efg", "h", "ij"), "cs": ("k",)}),
]


def texts(table: CaptionTable, rows: Sequence[int]) -> list[str]:
    ids, lengths = table.gather(np.array(rows, np.int64))
    return ["".join(map(chr, piece[:-1])) for piece in np.split(ids, np.cumsum(lengths)[:-1])]


def test_captions_lie_by_record_then_language() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    assert table.names == ("de", "en", "cs")
    assert texts(table, range(len(table))) == ["ab", "c", "d", "efg", "h", "ij", "k"]
    assert table.owners.tolist() == [0, 0, 0, 2, 2, 2, 2]
    assert table.records == 3
    assert texts(table, [5, 0, 5]) == ["ij", "ab", "ij"]
    assert texts(table, table.of_language("en").tolist()) == ["d", "efg", "h", "ij"]
    assert len(table.of_language("sw")) == 0


def test_chosen_languages_and_their_order() -> None:
    table = CaptionTable.build(RECORDS, Letters(), languages=["cs", "de"])
    assert table.names == ("cs", "de")
    assert texts(table, range(len(table))) == ["ab", "c", "k"]


def test_long_captions_keep_their_end() -> None:
    table = CaptionTable.build(RECORDS, Letters(), longest=3)
    assert table.gather(np.array([3]))[0].tolist() == [ord("e"), ord("f"), 0]


def test_sampling_is_even_over_languages_then_captions() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    drawn = table.sample(np.full(20_000, 2), np.random.default_rng(0))
    counts = Counter(texts(table, drawn.tolist()))
    assert counts["k"] / 20_000 == pytest.approx(1 / 2, abs=0.02)
    for text in ("efg", "h", "ij"):
        assert counts[text] / 20_000 == pytest.approx(1 / 6, abs=0.02)


def test_sampling_by_weights() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    generator = np.random.default_rng(0)
    drawn = table.sample(np.full(20_000, 0), generator, weights={"de": 3.0, "en": 1.0, "cs": 5.0})
    counts = Counter(texts(table, drawn.tolist()))
    assert counts["d"] / 20_000 == pytest.approx(0.25, abs=0.02)
    only = table.sample(np.array([0, 2] * 50), generator, weights={"en": 1.0})
    assert set(table.languages[only]) == {table.names.index("en")}
    assert table.owners[only].tolist() == [0, 2] * 50


def test_a_record_without_captions_cannot_be_drawn() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    with pytest.raises(ValueError, match="record 1 has no caption"):
        table.sample(np.array([0, 1]), np.random.default_rng(0))
    with pytest.raises(ValueError, match="record 0 has no caption"):
        table.sample(np.array([0]), np.random.default_rng(0), weights={"cs": 1.0})
