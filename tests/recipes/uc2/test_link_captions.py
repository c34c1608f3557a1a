from __future__ import annotations

from pathlib import Path

import pytest

from polyglance.data.toy import ToyDataset
from polyglance.errors import DataError, PolyglanceError
from polyglance.recipes.uc2.link_captions import (
    AlignedPair,
    align_captions,
    read_aligned,
    write_aligned,
)
from polyglance.records import Record

PICTURES = list(ToyDataset(seed=0, languages=("en", "de"), captions_per_language=1).pictures(200))


def test_words_that_are_everywhere_are_linked_to_nothing() -> None:
    pairs = align_captions([picture.record() for picture in PICTURES], "en", "de")
    words = {
        (PICTURES[pair.image].translations["en"].text.split()[i]).lower()
        for pair in pairs
        for i, _ in pair.links
    }
    assert {"red", "circle"} <= words
    assert not words & {"a", "the"}


def test_the_closest_caption_is_found_among_those_of_the_picture() -> None:
    # Each picture is told of beside what two others show; only one German caption is its own.
    texts = [picture.record().captions for picture in PICTURES]
    records = [
        Record(
            captions={
                "en": tuple(texts[(number + step) % 200]["en"][0] for step in (7, 0, 31)),
                "de": texts[number]["de"],
            }
        )
        for number in range(200)
    ]
    more = [Record(captions=captions) for captions in texts]
    pairs = align_captions(records, "en", "de", texts=more)
    assert [pair.image for pair in pairs] == list(range(200))
    # Some scenes differ in a word that captions leave out: not all can be told apart.
    assert sum(pair.first == 1 for pair in pairs) > 190
    by_place = align_captions(records, "en", "de", pairing="same-place", texts=more)
    assert {pair.first for pair in by_place} == {0}


def test_links_are_kept_in_a_file_until_something_changes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "en-de.tsv"
    pairs = [AlignedPair(0, 1, 2, ((0, 0), (3, 5))), AlignedPair(7, 0, 0, ())]
    assert read_aligned(path, "key") is None
    write_aligned(path, pairs, "key")
    assert read_aligned(path, "key") == pairs
    assert read_aligned(path, "another") is None
    path.write_text("# key\n1\t2\tx\t0-0\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"en-de\.tsv:2: expected a picture"):
        read_aligned(path, "key")


def test_captions_in_one_language_alone_link_nothing() -> None:
    with pytest.raises(PolyglanceError, match="captions in both en and fr"):
        align_captions([picture.record() for picture in PICTURES], "en", "fr")
