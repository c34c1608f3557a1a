"""What is said of the checks of translations, on some that are right and spoiled on purpose."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).parents[3]
NOUNS = {"dog": "Hund", "cat": "Katze", "horse": "Pferd", "child": "Kind", "bird": "Vogel"}
PLACES = {"in the garden": "im Garten", "by the river": "am Fluss", "on the roof": "auf dem Dach"}
PAIRS = [
    (f"Number {count}: a {noun} sleeps {place}.", f"Nummer {count}: ein {hund} schläft {ort}.")
    for count in range(8)
    for noun, hund in NOUNS.items()
    for place, ort in PLACES.items()
]


class Numbered:
    """An encoder by which texts of the same number, noun and place are alike."""

    def encode_texts(self, texts: Sequence[str], *, language: str) -> NDArray[np.float32]:
        place = {pair[language == "de"]: number for number, pair in enumerate(PAIRS)}
        return np.eye(len(PAIRS), dtype=np.float32)[[place[text] for text in texts]]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("benchmarks.experiments.translation_checks")


def test_right_translations_are_kept_and_spoiled_ones_found(script: ModuleType) -> None:
    figures = script.measure(PAIRS, "de", Numbered(), 30)
    assert figures == {
        "pairs": 120,
        "dropped": 0,
        "left_in_english": 100.0,
        "cut_to_a_quarter": 100.0,
        "same_meaning_kept": 100.0,
        "another_meaning_kept": 0.0,
    }
    # What nobody checks is not found.
    assert script.found(PAIRS, "de", lambda here, there: there) == 0.0
    row = "| de | 120 | 0 | 100.0 % | 100.0 % | 100.0 % | 0.0 % |"
    assert script.table({"languages": {"de": figures}}).splitlines()[2] == row
