"""Japanese Visual Genome VQA (Shimizu et al., 2018): questions with one answer each.

Layout: ``question_answers.json``, one JSON list of images:

    [{"id": 1, "qas": [{"qa_id": 7, "image_id": 1, "question": "...", "answer": "..."}, ...]}, ...]

This is the format of Visual Genome's own ``question_answers.json``, which is read with
``language`` "en". Images are named by their id: ``1.jpg``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions, find_files, without_gz
from polyglance.data.readers.json_files import entries, load_json, objects
from polyglance.data.readers.validation import check_integer, check_name, check_text, reporting
from polyglance.errors import Problems
from polyglance.records import Question, Record


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per image, with all questions about it."""
    language = options.language or "ja"
    for path in find_files(source, _is_answers, "a file named question_answers.json"):
        for place, entry in objects(path, load_json(path, problems, list), "", problems):
            questions: list[Question] = []
            for inner, pair in entries(path, entry, "qas", problems, inside=f"{place}."):
                with reporting(problems, path, place=inner):
                    questions.append(_question(pair, language))
            with reporting(problems, path, place=place):
                image_id = check_integer(entry.get("id", entry.get("image_id")), "'id'")
                yield Record(
                    image=options.path(f"{image_id}.jpg"),
                    questions=tuple(questions),
                    split=options.split,
                )


def _is_answers(name: str) -> bool:
    return "question_answers" in name and without_gz(name).endswith(".json")


def _question(pair: dict[str, Any], language: str) -> Question:
    question_id = pair.get("qa_id")
    return Question(
        text=check_text(pair.get("question"), "'question'"),
        language=language,
        answers=(check_text(pair.get("answer"), "'answer'"),),
        id=None if question_id is None else check_name(question_id, "'qa_id'"),
    )
