from __future__ import annotations

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.language_balanced_sampler import LanguageBalancedSampler
from polyglance.records import Record


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
    captions = LanguageBalancedSampler(TABLE)
    rows = captions.sample(30_000, np.random.default_rng(0))
    shares = np.bincount(TABLE.language_ids[rows]) / len(rows)
    assert shares == pytest.approx([1 / 3] * 3, abs=0.01)
    for language, pictures, each in (("en", 30, 3), ("de", 10, 1), ("fr", 2, 2)):
        own = rows[TABLE.language_ids[rows] == TABLE.language_codes.index(language)]
        found, counts = np.unique(own, return_counts=True)
        assert len(found) == pictures * each
        assert counts.min() > 0.6 * counts.mean()


def test_languages_may_be_drawn_by_what_they_have() -> None:
    captions = LanguageBalancedSampler(TABLE, language_alpha=0.5)
    rows = captions.sample(30_000, np.random.default_rng(0))
    roots = {"en": 90**0.5, "de": 10**0.5, "fr": 4**0.5}
    for language, root in roots.items():
        share = (TABLE.language_ids[rows] == TABLE.language_codes.index(language)).mean()
        assert share == pytest.approx(root / sum(roots.values()), abs=0.01)


def test_others_are_of_other_pictures_in_the_same_language() -> None:
    captions = LanguageBalancedSampler(TABLE)
    generator = np.random.default_rng(0)
    rows = captions.sample(30_000, generator)
    others = captions.sample_other_images(rows, generator)
    assert (TABLE.record_ids[rows] != TABLE.record_ids[others]).all()
    assert np.array_equal(TABLE.language_ids[rows], TABLE.language_ids[others])
    english = TABLE.record_ids[others][TABLE.record_ids[rows] == 7]
    assert set(english.tolist()) == set(range(30)) - {7}


def test_languages_can_be_chosen_and_must_be_there() -> None:
    captions = LanguageBalancedSampler(TABLE, languages=("fr",))
    assert captions.images.tolist() == [1, 4]
    assert set(TABLE.record_ids[captions.sample(100, np.random.default_rng(0))].tolist()) == {1, 4}
    with pytest.raises(PolyglanceError, match="two pictures with captions in cs at least"):
        LanguageBalancedSampler(TABLE, languages=("en", "cs"))
