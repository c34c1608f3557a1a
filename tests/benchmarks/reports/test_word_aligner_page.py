"""The page of the word aligner is up to date and judges its goals."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.reports import word_aligner_page as page
from benchmarks.results_io import read_results


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    document = Path(shutil.copy(page.PAGE, tmp_path))
    page.fill(read_results(page.NAME), document)
    assert document.read_text("utf-8") == page.PAGE.read_text("utf-8")


def test_goals_are_judged_for_both_meanings_of_frequent() -> None:
    recalls = {"both_frequent": 0.96, "english_frequent": 0.94, "all": 0.9}
    measured = {
        "polyglance": {"intersection": {"recall_against_eflomal": recalls}},
        "seconds_for_29000_pairs": 61.0,
    }
    links, speed = page.goals(measured).splitlines()
    assert "yes where both words are frequent (96.00%), no where the English word is" in links
    assert speed.endswith("no (61.0 s).")
