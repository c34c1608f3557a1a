"""A small lexicon of two languages and captions in its words."""

from __future__ import annotations

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.recipes.smalr.lexicon_captions import LexiconCaptions
from polyglance.records import Record
from polyglance.text.lexicon import Lexicon


def toy_captions() -> LexiconCaptions:
    counts = {"en": {"dog": 9, "red": 5, "cat": 1}, "de": {"hund": 8, "rot": 3, "katze": 1}}
    lexicon = Lexicon(counts)
    records = [
        Record(captions={"en": ("red dog",), "de": ("rot hund", "katze")}),
        Record(captions={"en": ("cat", "dog cat"), "de": ("hund",)}),
    ]
    table = CaptionTable.build(records, lexicon.tokenizers, languages=lexicon.languages)
    vectors = np.arange(8, dtype=np.float32)[:, None]
    word_counts = np.array([[2, 4], [4, 1]])
    return LexiconCaptions(lexicon, vectors, {"train": table, "test": table}, word_counts)


def rows_of(table: CaptionTable) -> list[list[int]]:
    return [table.gather(np.array([row]))[0].tolist() for row in range(len(table))]
