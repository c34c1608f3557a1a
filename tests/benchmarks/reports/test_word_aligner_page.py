"""The page of the word aligner: both readings of its goal are judged, and it is up to date."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from benchmarks.reports import word_aligner_page

    return word_aligner_page


def test_the_page_has_what_was_measured(page: ModuleType, tmp_path: Path) -> None:
    document = Path(shutil.copy(page.PAGE, tmp_path))
    found = json.loads((page.RESULTS / page.NAME).read_text("utf-8"))
    page.fill(found, document)
    assert document.read_text("utf-8") == page.PAGE.read_text("utf-8")


def test_goals_are_judged_by_what_is_reached(page: ModuleType) -> None:
    shares = {"both_frequent": 0.96, "english_frequent": 0.94, "all": 0.9}
    found = {
        "ours": {"intersection": {"of_eflomal_s_found": shares}},
        "seconds_for_29000_pairs": 61.0,
    }
    links, speed = page.goals(found).splitlines()
    assert "yes where both words are frequent (96.00%), no where the English word is" in links
    assert speed.endswith("no (61.0 s).")
