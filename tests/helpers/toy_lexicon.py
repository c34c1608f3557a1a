"""A few words in two languages, cut and numbered by hand."""

from __future__ import annotations

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.recipes.smalr.lexicon_captions import LexiconCaptions
from polyglance.records import Record
from polyglance.text.lexicon import Lexicon


def toy_texts() -> LexiconCaptions:
    counts = {"en": {"dog": 9, "red": 5, "cat": 1}, "de": {"hund": 8, "rot": 3, "katze": 1}}
    lexicon = Lexicon(counts)
    records = [
        Record(captions={"en": ("red dog",), "de": ("rot hund", "katze")}),
        Record(captions={"en": ("cat", "dog cat"), "de": ("hund",)}),
    ]
    table = CaptionTable.build(records, lexicon.tokenizers, languages=lexicon.languages)
    vectors = np.arange(8, dtype=np.float32)[:, None]
    said = np.array([[2, 4], [4, 1]])
    return LexiconCaptions(lexicon, vectors, {"train": table, "test": table}, said)


def rows_of(table: CaptionTable) -> list[list[int]]:
    return [table.gather(np.array([row]))[0].tolist() for row in range(len(table))]
