"""The page and card of visual question answering, and the summary that they are made of."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reports import vqa_page as page
from benchmarks.results_io import DOCS
from polyglance.records import Question
from polyglance.reproduce.vqa_summary import examples, vqa_summary


def copy_page(name: str, folder: Path) -> Path:
    return Path(shutil.copy(DOCS / name, folder / name))


def question(text: str, *answers: str, kind: str = "other", language: str = "en") -> Question:
    return Question(text, language, answers, kind)


def report(above: float) -> dict[str, Any]:
    """The report of a run, with two languages."""
    return {
        "answers": {"en": 634, "vi": 94},
        "questions": 10_000,
        "training": {"seconds": 90.0, "steps": 3000, "best_step": 2000, "best_score": 44.0},
        "test": {
            "en": {
                "questions": 2,
                "baseline": {"score": 36.7, "of other": 10.0, "of number": 30.0, "first_words": 2},
                "above_baseline": above,
            },
            "vi": {
                "questions": 2,
                "baseline": {"accuracy": 21.1, "of color": 20.0, "first_words": 4},
                "above_baseline": above - 1,
            },
        },
    }


def question_answers(*right: bool) -> list[tuple[Question, str]]:
    """Two questions per language, answered right or wrong."""
    ten = ("red",) * 9 + ("pink | rose",)
    questions = [
        question("What colour is it?", *ten),
        question("How many?", *("2",) * 10, kind="number"),
        question("màu gì", "màu đỏ", kind="color", language="vi"),
        question("màu gì vậy", "màu đen", kind="color", language="vi"),
    ]
    answers = ["red", "2", "màu đỏ", "màu đen"]
    return [
        (item, text if is_right else "màu tía")
        for item, text, is_right in zip(questions, answers, right, strict=True)
    ]


@pytest.fixture
def figures() -> dict[str, Any]:
    given = [question_answers(True, True, True, False), question_answers(True, False, True, True)]
    return {
        "date": "2031-05-06", "commit": "abc1234", "hardware": "an abacus", "runs_at_once": 2,
        "seeds": [0, 1], "common_changes": ["batch=64"],
        **vqa_summary([report(9.0), report(8.0)], given),
        "examples": examples(given[0]),
    }  # fmt: skip


def test_figures_are_of_what_was_question_answers(figures: dict[str, Any]) -> None:
    english, vietnamese = figures["test"]["en"], figures["test"]["vi"]
    assert english["model"]["score"]["values"] == [100.0, 50.0]
    assert english["model"]["of number"]["mean"] == 50
    assert english["questions_by_type"] == {"of number": 1, "of other": 1}
    assert vietnamese["model"]["accuracy"]["values"] == [50.0, 100.0]
    # One of two answers of two words is right, the other shares one of its words.
    assert 50 < vietnamese["model"]["sentence_bleu"]["values"][0] < 100
    assert vietnamese["above_baseline"]["mean"] == 7.5
    assert figures["best_steps"] == [2000, 2000]


def test_filling_the_page_twice_changes_nothing(figures: dict[str, Any], tmp_path: Path) -> None:
    document = copy_page("results-vqa.md", tmp_path)
    page.fill(figures, document)
    once = document.read_text(encoding="utf-8")
    assert "Not measured yet" not in once
    assert "| English | 2 | VQA score | 36.7 | 75.0 ± 35.4 | +38.3 |" in once
    assert "| Vietnamese | 2 | BLEU of single answers | – |" in once
    assert "| Vietnamese | color | 2 | 20.0 | 75.0 ± 35.4 | +55.0 |" in once
    assert "| en | other | What colour is it? | red, pink / rose | red | 1.0 |" in once
    assert "| vi | color | màu gì vậy | màu đen | màu tía | 0.0 |" in once
    assert "English: at least 8 points above the baseline: not decided (+8.5 [" in once
    assert "Vietnamese: at least 8 points" in once
    assert "baseline: not decided (+7.5 [+1.1, +13.9], p 0.150; +8.0, +7.0; above the" in once
    assert "2 seeds, 10,000 training questions, 3,000 steps in 1.5 minutes" in once
    assert "2 in English, 4 in Vietnamese. Changes to the recipe: `batch=64`." in once
    page.fill(figures, document)
    assert document.read_text(encoding="utf-8") == once

    card = copy_page("vqa-model-card.md", tmp_path)
    page.fill_card(figures, card)
    text = card.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert "It can give 728 answers: 634 in English, 94 in Vietnamese." in text


def test_examples_are_the_first_of_each_type() -> None:
    many = [
        (question(f"{kind} {number}", "a", kind=kind, language=code), "b")
        for number in range(5)
        for kind in ("yes/no", "other")
        for code in ("vi", "en")
    ]
    found = examples(many)
    assert [(one["language"], one["question"]) for one in found] == [
        (code, f"{kind} {number}")
        for code in ("en", "vi")
        for kind in ("other", "yes/no")
        for number in range(3)
    ]
