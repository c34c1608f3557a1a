from __future__ import annotations

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.records import Record
from polyglance.training.even_captions import EvenCaptions


class Letters:
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]


RECORDS = [
    Record(
        captions={"en": ("a", "b", "c")}
        | ({"de": ("d",)} if number % 3 == 0 else {})
        | ({"fr": ("e", "f")} if number in (1, 4) else {})
    )
    for number in range(30)
]
TABLE = CaptionTable.build(RECORDS, Letters())


def test_languages_are_drawn_evenly_whatever_they_have() -> None:
    captions = EvenCaptions(TABLE)
    rows = captions.draw(30_000, np.random.default_rng(0))
    shares = np.bincount(TABLE.languages[rows]) / len(rows)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)
    for language, pictures, each in (("en", 30, 3), ("de", 10, 1), ("fr", 2, 2)):
        own = rows[TABLE.languages[rows] == TABLE.names.index(language)]
        found, counts = np.unique(own, return_counts=True)
        assert len(found) == pictures * each
        assert counts.min() > 0.6 * counts.mean()


def test_languages_may_be_drawn_by_what_they_have() -> None:
    captions = EvenCaptions(TABLE, smoothing=0.5)
    rows = captions.draw(30_000, np.random.default_rng(0))
    roots = {"en": 90**0.5, "de": 10**0.5, "fr": 4**0.5}
    for language, root in roots.items():
        share = (TABLE.languages[rows] == TABLE.names.index(language)).mean()
        assert share == pytest.approx(root / sum(roots.values()), abs=0.01)


def test_others_are_of_other_pictures_in_the_same_language() -> None:
    captions = EvenCaptions(TABLE)
    generator = np.random.default_rng(0)
    rows = captions.draw(30_000, generator)
    others = captions.others(rows, generator)
    assert (TABLE.owners[rows] != TABLE.owners[others]).all()
    assert np.array_equal(TABLE.languages[rows], TABLE.languages[others])
    english = TABLE.owners[others][TABLE.owners[rows] == 7]
    assert set(english.tolist()) == set(range(30)) - {7}


def test_languages_can_be_chosen_and_must_be_there() -> None:
    captions = EvenCaptions(TABLE, languages=("fr",))
    assert captions.items.tolist() == [1, 4]
    assert set(TABLE.owners[captions.draw(100, np.random.default_rng(0))].tolist()) == {1, 4}
    with pytest.raises(PolyglanceError, match="two pictures with captions in cs at least"):
        EvenCaptions(TABLE, languages=("en", "cs"))
