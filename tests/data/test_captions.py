from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
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


def test_captions_are_ordered_by_record_then_language() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    assert table.language_codes == ("de", "en", "cs")
    assert texts(table, range(len(table))) == ["ab", "c", "d", "efg", "h", "ij", "k"]
    assert table.record_ids.tolist() == [0, 0, 0, 2, 2, 2, 2]
    assert table.num_records == 3
    assert texts(table, [5, 0, 5]) == ["ij", "ab", "ij"]
    assert texts(table, table.rows_in_language("en").tolist()) == ["d", "efg", "h", "ij"]
    assert len(table.rows_in_language("sw")) == 0


def test_chosen_languages_and_their_order() -> None:
    table = CaptionTable.build(RECORDS, Letters(), languages=["cs", "de"])
    assert table.language_codes == ("cs", "de")
    assert texts(table, range(len(table))) == ["ab", "c", "k"]


def test_a_tokenizer_for_each_language() -> None:
    class Capitals:
        """Encode capitals, unlike `Letters`."""

        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[*map(ord, text.upper()), 0] for text in texts]

    tokenizers = {"de": Letters(), "en": Capitals(), "cs": Letters(), "fr": Letters()}
    table = CaptionTable.build(RECORDS, tokenizers)
    assert texts(table, range(len(table))) == ["ab", "c", "D", "EFG", "H", "IJ", "k"]
    with pytest.raises(PolyglanceError, match="no tokenizer for captions in 'de': give one"):
        CaptionTable.build(RECORDS, {"en": Capitals()})


def test_long_captions_keep_their_last_token() -> None:
    table = CaptionTable.build(RECORDS, Letters(), max_tokens=3)
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
    assert set(table.language_ids[only]) == {table.language_codes.index("en")}
    assert table.record_ids[only].tolist() == [0, 2] * 50


def test_a_second_caption_is_in_another_language_where_there_is_one() -> None:
    records = [*RECORDS, Record(image="3", captions={"de": ("l", "m")})]
    table = CaptionTable.build(records, Letters())
    assert table.languages_per_record.tolist() == [2, 0, 2, 1]
    generator = np.random.default_rng(0)
    items = np.tile([0, 2, 3], 5000)
    first = table.sample(items, generator)
    second = table.sample(items, generator, avoid_language_of=first)
    assert table.record_ids[second].tolist() == items.tolist()
    same = table.language_ids[first] == table.language_ids[second]
    assert same.tolist() == (items == 3).tolist()
    counts = Counter(texts(table, second.tolist()))
    assert counts["d"] / 5000 == pytest.approx(1 / 2, abs=0.03)
    assert counts["efg"] / 5000 == pytest.approx(1 / 6, abs=0.03)
    assert counts["l"] / 5000 == pytest.approx(1 / 2, abs=0.03)


def test_a_second_language_keeps_the_ratio_of_the_weights() -> None:
    table = CaptionTable.build(
        [Record(image="0", captions={"de": ("a",), "en": ("b",), "cs": ("c",), "fr": ("d",)})],
        Letters(),
    )
    first = np.full(20_000, 1)  # all English
    weights = {"de": 3.0, "en": 5.0, "cs": 1.0}
    second = table.sample(
        np.zeros(20_000, np.int64),
        np.random.default_rng(0),
        weights=weights,
        avoid_language_of=first,
    )
    counts = Counter(texts(table, second.tolist()))
    assert counts["a"] / 20_000 == pytest.approx(0.75, abs=0.02)
    assert set(counts) == {"a", "c"}


def test_captions_in_a_language_belong_to_the_record_or_are_missing() -> None:
    captions_of = [{"en": ("a", "b"), "de": ("c",)}, {}, {"en": ("e",)}, {"de": ("g", "h", "i")}]
    records = [Record(captions=captions) for captions in captions_of]
    table = CaptionTable.build(records, Letters())
    wanted = np.tile(np.arange(4), 600)
    for name in ("en", "de"):
        language = np.full(len(wanted), table.language_codes.index(name))
        rows = table.sample_in_languages(wanted, language, np.random.default_rng(0))
        has = np.array([name in captions for captions in captions_of])[wanted]
        assert (rows[~has] == -1).all()
        assert (table.has_language(wanted, language) == has).all()
        assert (table.record_ids[rows[has]] == wanted[has]).all()
        assert (table.language_ids[rows[has]] == language[has]).all()
        drawn, counts = np.unique(rows[has], return_counts=True)
        assert drawn.tolist() == table.rows_in_language(name).tolist()
        assert counts.min() > 150


def test_captions_without_tokens_are_dropped() -> None:
    class Vowels:
        """Drops what it does not know, and has no sign at the end."""

        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[ord(letter) for letter in text if letter in "aei"] for text in texts]

    table = CaptionTable.build(RECORDS, Vowels())
    assert table.record_ids.tolist() == [0, 2, 2]
    assert table.language_ids.tolist() == [0, 1, 1]
    assert table.gather(np.arange(3))[1].tolist() == [1, 1, 1]


def test_no_captions_at_all() -> None:
    table = CaptionTable.build([Record(image="0")], Letters())
    assert len(table) == 0
    assert table.languages_per_record.tolist() == [0]


def test_a_record_without_captions_cannot_be_drawn() -> None:
    table = CaptionTable.build(RECORDS, Letters())
    with pytest.raises(ValueError, match="record 1 has no caption"):
        table.sample(np.array([0, 1]), np.random.default_rng(0))
    with pytest.raises(ValueError, match="record 0 has no caption"):
        table.sample(np.array([0]), np.random.default_rng(0), weights={"cs": 1.0})
