"""The page of the word aligner judges its goals."""

from __future__ import annotations

from benchmarks.reports import word_aligner_page as page


def test_goals_are_judged_for_both_meanings_of_frequent() -> None:
    recalls = {"both_frequent": 0.96, "english_frequent": 0.94, "all": 0.9}
    measured = {
        "polyglance": {"intersection": {"recall_against_eflomal": recalls}},
        "seconds_for_29000_pairs": 61.0,
    }
    links, speed = page.goals(measured).splitlines()
    assert "yes where both words are frequent (96.00%), no where the English word is" in links
    assert speed.endswith("no (61.0 s).")
