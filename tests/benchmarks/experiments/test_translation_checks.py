"""Checks of translations, on right ones and on ones spoiled on purpose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiments import translation_checks
from benchmarks.reports import translation_checks_page

NOUNS = {"dog": "Hund", "cat": "Katze", "horse": "Pferd", "child": "Kind", "bird": "Vogel"}
PLACES = {"in the garden": "im Garten", "by the river": "am Fluss", "on the roof": "auf dem Dach"}
PAIRS = [
    (f"Number {count}: a {noun} sleeps {place}.", f"Nummer {count}: ein {hund} schläft {ort}.")
    for count in range(8)
    for noun, hund in NOUNS.items()
    for place, ort in PLACES.items()
]


class PairEncoder:
    """An encoder whose vectors are equal for a sentence and its translation only."""

    def encode_texts(self, texts: Sequence[str], *, language: str) -> NDArray[np.float32]:
        number = {pair[language == "de"]: i for i, pair in enumerate(PAIRS)}
        return np.eye(len(PAIRS), dtype=np.float32)[[number[text] for text in texts]]


def test_right_translations_are_kept_and_spoiled_ones_found() -> None:
    figures = translation_checks.measure(PAIRS, "de", PairEncoder(), 30)
    assert figures == {
        "pairs": 120,
        "dropped": 0,
        "untranslated_found": 100.0,
        "truncated_found": 100.0,
        "same_meaning_kept": 100.0,
        "mismatched_kept": 0.0,
    }
    # Translations that are not spoiled are not dropped.
    assert translation_checks.share_found(PAIRS, "de", lambda source, target: target) == 0.0
    row = "| de | 120 | 0 | 100.0 % | 100.0 % | 100.0 % | 0.0 % |"
    assert translation_checks_page.table({"languages": {"de": figures}}).splitlines()[2] == row
