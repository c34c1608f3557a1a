"""Questions of JSON Lines: answers as a list, one answer, or answers with their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polyglance.data.readers import read_all_records
from polyglance.errors import DataError
from polyglance.evaluation.answers import answer_scores


def answers(tmp_path: Path, **fields: Any) -> tuple[str, ...]:
    path = tmp_path / "questions.jsonl"
    line = {"image": "1.jpg", "question": "What?", "language": "en"} | fields
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    [record] = read_all_records("jsonl", path)
    return record.questions[0].answers


def test_each_form_of_answers_is_read(tmp_path: Path) -> None:
    assert answers(tmp_path, answers=["red", "red"]) == ("red", "red")
    assert answers(tmp_path, answer="red", type="colour") == ("red",)
    assert answers(tmp_path) == ()


def test_scores_become_people(tmp_path: Path) -> None:
    found = answers(tmp_path, answers={"pony tail": 1, "braid": 0.667, "bun": 0})
    assert found == ("pony tail",) * 3 + ("braid",) * 2


@pytest.mark.parametrize("score", [1.5, -1, "1", None])
def test_a_score_that_is_none_is_refused(tmp_path: Path, score: object) -> None:
    with pytest.raises(DataError, match="the scores of 'answers' to be numbers from 0 to 1"):
        answers(tmp_path, answers={"red": score})


def test_scores_are_recovered_in_order(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    line = {
        "image": "1.jpg",
        "question": "?",
        "language": "en",
        "answers": {"a cat": 1, "dog": 0.3},
    }
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    [record] = read_all_records("jsonl", path)
    scores = answer_scores(record.questions[0])
    assert scores["cat"] > scores["dog"] > 0
