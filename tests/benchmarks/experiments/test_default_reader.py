"""Ranks and recalls of the reader's figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.experiments import default_reader
from benchmarks.reports import reader_page
from polyglance.records import Question


def test_ranks_are_those_among_candidates() -> None:
    assert default_reader.rank_of(7, np.array([3, 7, 1])) == 1
    assert default_reader.rank_of(2, [3, 7, 1]) == np.inf
    found = default_reader.recall([0, 4, 5, np.inf])
    assert found == {"R@1": 25.0, "R@5": 50.0, "R@10": 75.0}


def test_the_score_is_vqas_or_exact() -> None:
    assert default_reader.headline({"score": 40.0, "of number": 3.0}) == 40.0
    assert default_reader.headline({"accuracy": 30.0, "bleu": 1.0}) == 30.0


def test_what_reading_adds_is_counted_from_the_larger_size() -> None:
    quality = {
        "image_size": 256,
        "reranking": {
            "trained": [{"reranked": {"average": 60.0}}, {"reranked": {"average": 62.0}}],
            "compressed": {
                "dual": {"en": 60.0, "average": 60.0},
                "dual_tta": {"en": 60.5, "average": 60.5},
                "reranked": {"en": 62.0, "average": 62.0},
            },
        },
        "shipped_reranking": {"queries": 4, "dual": {"R@1": 40.0}, "reranked": {"R@1": 50.0}},
    }
    text = reader_page.reranking(quality)
    assert "| English | 60.0 | 60.5 | 62.0 | +1.5 |" in text
    assert "Before compression, 2 seeds: 61.0 ± 1.4 re-ranked" in text
    assert "R@1 40.0 → 50.0" in text
    del quality["reranking"]["compressed"]["dual_tta"]  # type: ignore[index]
    text = reader_page.reranking(quality)  # of a reader that takes pictures as libraries do
    assert "256" not in text
    assert "| English | 60.0 | 62.0 | +2.0 |" in text


def test_all_questions_about_the_drawn_pictures_are_taken() -> None:
    asked = [(Path(f"{n % 300}.png"), Question(f"{n}?", "en")) for n in range(900)]
    drawn = default_reader.sample_pictures(asked)
    assert len({path for path, _ in drawn}) == 200
    assert len(drawn) == 600
    assert drawn == [one for one in asked if one in drawn]


def test_seeds_are_shown_with_their_spread() -> None:
    shipped = {"questions": 10, "best_answer_of_type": 30.0, "score": 48.0}
    figures = {"shipped": {"en": shipped}, "trained": [{"en": 61.0}, {"en": 63.0}]}
    others = {"compressed": {"en": 61.5}, "whole_picture": {"en": 47.0}}
    others["learned"] = {"en": {"questions": 7, "score": 69.04}}
    text = reader_page.questions(figures | others)
    assert text.endswith("about 200 pictures, as shipped by five crops: 69.0 (English, 7).")
    assert "| English | 10 | 30.0 | 62.0 ± 1.4 | 61.5 | 47.0 | 48.0 |" in text


def test_seeds_stay_with_the_reader_that_they_were_compressed_to() -> None:
    def recalls(value: float) -> dict[str, dict[str, dict[str, float]]]:
        return {"reranked": {"en": {"mR": value}}}

    def answers(en: float, vi: float) -> dict[str, dict[str, dict[str, float]]]:
        return {"en": {"model": {"score": en}}, "vi": {"model": {"accuracy": vi}}}

    seeds = {
        f"reader{n}": {
            "training": {"steps": 7},
            "test": recalls(60 + n),
            "questions": answers(40 + n, 5),
        }
        for n in range(2)
    }
    report = {"trained": seeds, "images": 1, "captions": 2, "questions": 3}
    compressed = {"test": recalls(61.5), "questions": answers(41.0, 6.0)}
    known = default_reader.read_compressed(compressed)
    default_reader.add_seeds(known, report)
    assert known["reranking"] == {
        "compressed": {"reranked": {"en": 61.5}},
        "trained": [{"reranked": {"en": 60}}, {"reranked": {"en": 61}}],
    }
    assert known["questions"]["trained"] == [{"en": 40, "vi": 5}, {"en": 41, "vi": 5}]
    same = default_reader.read_compressed(compressed)
    default_reader.keep_seeds(same, known)
    assert same == known
    other = default_reader.read_compressed(compressed | {"questions": answers(42.0, 6.0)})
    default_reader.keep_seeds(other, known)
    assert "trained" not in other["questions"]
    assert "training" not in other


def test_a_page_without_seeds_leaves_their_column_out() -> None:
    shipped = {"questions": 10, "best_answer_of_type": 30.0, "score": 48.0}
    figures = {"shipped": {"en": shipped}, "compressed": {"en": 61.5}}
    figures |= {"whole_picture": {"en": 47.0}, "learned": {"en": {"questions": 7, "score": 69.04}}}
    assert "| English | 10 | 30.0 | 61.5 | 47.0 | 48.0 |" in reader_page.questions(figures)


def test_trials_are_compared_with_the_first() -> None:
    compared = {"mean": 0.5, "low": 0.25, "high": 0.75, "p": 0.0004, "queries": 1081}
    figures = {
        "date": "2026-11-19", "commit": "abc", "hardware": "a machine", "steps": 7,
        "set": ["loop.warmup=60"], "mR": {"lists": [60.0, 61.0], "mine": [61.0, 61.0]},
        "answers": {"lists": [50.0, 51.0], "mine": []}, "above_the_first": {"mine": compared},
    }  # fmt: skip
    text = reader_page.trials(figures)
    assert "| lists with three negatives of either kind | 60.50 |  |  | 50.5 |" in text
    assert "| mine | 61.00 | +0.50 [+0.25, +0.75] | < 0.001 |  |" in text
    assert "1,081 pictures" in text
    assert "2 seeds" in text
    assert "7 steps, and `loop.warmup=60`. Measured 2026-11-19 at abc on a machine" in text
