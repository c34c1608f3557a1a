from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from polyglance.data.captions import CaptionTable
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import (
    CodeSwitchedCaptions,
    PlainCaptions,
    pack_captions,
)
from polyglance.records import Record
from polyglance.text.code_switching import CodeSwitcher
from polyglance.text.dictionaries import Dictionary
from polyglance.training.mixture import seed_step

ENGLISH = ("dog", "cat", "runs", "sleeps")
WORDS = ("<s>", "</s>", *ENGLISH, "Hund", "Katze", "chien", "chat", "Vogel")
SWITCHER = CodeSwitcher(
    {
        "de": Dictionary([("dog", "Hund"), ("cat", "Katze")]),
        "fr": Dictionary([("dog", "chien"), ("cat", "chat")]),
    },
    beta=1.0,
)


class ByWord:
    """A word is a number, and a sentence begins and ends with a sign."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[0, *map(WORDS.index, text.split()), 1] for text in texts]


RECORDS = [
    Record(captions={"en": ("dog runs", "dog sleeps"), "de": ("Hund",)}),
    Record(captions={"de": ("Katze", "Vogel")}),
    Record(captions={"en": ("cat runs",)}),
]


def source(alpha: float = 0.5, variants: int = 3, refresh: int = 0) -> CodeSwitchedCaptions:
    return CodeSwitchedCaptions(
        RECORDS, SWITCHER, ByWord(), alpha=alpha, variants=variants, refresh=refresh
    )


def said(captions: CodeSwitchedCaptions, rows: np.ndarray) -> list[str]:
    ids, lengths = captions.table.gather(rows)
    ends = np.cumsum(lengths)
    sentences = (ids[end - length : end] for end, length in zip(ends, lengths, strict=True))
    return [" ".join(WORDS[i] for i in sentence[1:-1]) for sentence in sentences]


def test_the_share_alpha_of_captions_is_switched_and_all_keep_their_picture() -> None:
    captions = source(alpha=0.3)
    items = np.array([0, 2] * 2000)
    texts = said(captions, captions.sample(items, seed_step(0, 0, 0)))
    plain = [text.split()[0] in ENGLISH for text in texts]
    assert np.mean(plain) == pytest.approx(0.7, abs=0.03)
    dogs, cats = ({text.split()[0] for text in texts[start::2]} for start in (0, 1))
    assert dogs <= {"dog", "Hund", "chien"}
    assert cats <= {"cat", "Katze", "chat"}
    assert {text.split()[1] for text in texts} == {"runs", "sleeps"}
    assert captions.items.tolist() == [0, 2]
    assert captions.table.language_codes == ("en",)  # as the original, whatever the words


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, True), (1.0, False)])
def test_none_and_all(alpha: float, expected: bool) -> None:
    captions = source(alpha)
    texts = said(captions, captions.sample(np.zeros(50, np.int64), seed_step(0, 0, 0)))
    assert {text.startswith("dog") for text in texts} == {expected}


def test_variants_are_drawn_anew_by_step_alone() -> None:
    captions = source(alpha=1.0, variants=8, refresh=10)
    tables = []
    for step in (0, 9, 10, 25, 9):
        captions.sample(np.array([0]), seed_step(0, step, 0))
        tables.append(captions.table.token_ids.tolist())
    assert tables[0] == tables[1] == tables[4]
    assert len({tuple(table) for table in tables[:4]}) == 3
    resumed = source(alpha=1.0, variants=8, refresh=10)
    resumed.sample(np.array([0]), seed_step(0, 25, 0))
    assert resumed.table.token_ids.tolist() == tables[3]
    still = source(alpha=1.0, variants=8, refresh=0)
    before = still.table
    still.sample(np.array([0]), seed_step(0, 10_000, 0))
    assert still.table is before


def test_plain_captions_are_of_the_languages_asked_for() -> None:
    table = CaptionTable.build(RECORDS, ByWord())
    german = PlainCaptions(table, languages=["de"])
    assert german.items.tolist() == [0, 1]
    rows = german.sample(np.array([0, 1] * 50), seed_step(0, 0, 0))
    assert set(table.language_ids[rows].tolist()) == {table.language_codes.index("de")}
    assert table.record_ids[rows].tolist() == [0, 1] * 50
    assert PlainCaptions(table).items.tolist() == [0, 1, 2]
    assert PlainCaptions(table, weights={"en": 1.0}).items.tolist() == [0, 2]
    with pytest.raises(PolyglanceError, match="no caption is in fr: choose from en, de"):
        PlainCaptions(table, languages=["fr"])


def test_captions_become_text_with_the_languages_of_the_model() -> None:
    table = CaptionTable.build(RECORDS, ByWord())
    text = pack_captions(table, np.array([2, 0]), np.array([7, 5]))
    assert text.ids.tolist() == [0, WORDS.index("Hund"), 1, 0, 2, 4, 1]
    assert text.packing.lengths.tolist() == [3, 4]
    assert text.languages is not None
    assert text.languages.tolist() == [5, 7]
    assert pack_captions(table, np.array([0])).languages is None


def test_what_cannot_be_switched_is_said_plainly() -> None:
    with pytest.raises(PolyglanceError, match="starts from 'en', and no caption"):
        CodeSwitchedCaptions(RECORDS[1:2], SWITCHER, ByWord())
    with pytest.raises(PolyglanceError, match=r"alpha is 1\.5"):
        source(alpha=1.5)

    class Dropping:
        def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
            return [[] for _ in texts]

    with pytest.raises(PolyglanceError, match="leaves nothing of some captions"):
        CodeSwitchedCaptions(RECORDS, SWITCHER, Dropping())
