"""VQA v2 (Goyal et al., 2017): questions about MSCOCO's pictures with ten people's answers.

``v2_OpenEnded_mscoco_train2014_questions.json`` has the questions and
``v2_mscoco_train2014_annotations.json`` beside it the answers; the test parts
have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyglance.data.readers import coco
from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.json_files import entries, load_json
from polyglance.data.readers.validation import (
    check_integer,
    check_list,
    check_object,
    check_text,
    reporting,
)
from polyglance.errors import Problems
from polyglance.records import Question, Record

_Answers = tuple[tuple[str, ...], str | None]


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield a record a picture, with all questions about it."""
    expected = "files named v2_OpenEnded_mscoco_train2014_questions.json ..."
    for path in find_files(source, _is_questions, expected):
        yield from _read_part(path, options, problems)


def _is_questions(name: str) -> bool:
    return without_gz(name).endswith("_questions.json")


def _read_part(path: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    document = load_json(path, problems, dict)
    part = document.get("data_subtype") or coco.subset_in_name(path)
    if document and (not isinstance(part, str) or not re.fullmatch(r"[a-z-]+\d{4}", part)):
        problems.report(path, None, "expected 'data_subtype' to be a part such as 'train2014'")
        return
    answers = _read_answers(path, problems)
    questions: dict[int, list[Question]] = {}
    for place, entry in entries(path, document, "questions", problems):
        with reporting(problems, path, place=place):
            image_id = check_integer(entry.get("image_id"), "'image_id'")
            question = _question(entry, answers, options.language or "en")
            questions.setdefault(image_id, []).append(question)
    for image_id, asked in questions.items():
        # The pictures of "test-dev2015" are those of "test2015".
        folder = str(part).replace("-dev", "")
        name = coco.image_path(coco.image_name(image_id, folder), folder)
        split = options.split or split_in_name(path)
        yield Record(image=options.path(name), questions=tuple(asked), split=split)


def _question(entry: dict[str, Any], answers: dict[int, _Answers], language: str) -> Question:
    question_id = check_integer(entry.get("question_id"), "'question_id'")
    given, answer_type = answers.get(question_id, ((), None))
    return Question(
        text=check_text(entry.get("question"), "'question'"),
        language=language,
        answers=given,
        answer_type=answer_type,
        id=str(question_id),
    )


def _read_answers(questions: Path, problems: Problems) -> dict[int, _Answers]:
    name = questions.name.replace("OpenEnded_", "").replace("_questions", "_annotations")
    path = questions.with_name(name)
    answers: dict[int, _Answers] = {}
    if name == questions.name or not path.is_file():
        return answers
    for place, entry in entries(path, load_json(path, problems, dict), "annotations", problems):
        with reporting(problems, path, place=place):
            question_id = check_integer(entry.get("question_id"), "'question_id'")
            given = (
                check_text(check_object(answer, "an answer").get("answer"), "'answer'")
                for answer in check_list(entry.get("answers"), "'answers'")
            )
            kind = entry.get("answer_type")
            kind = None if kind is None else check_text(kind, "'answer_type'")
            answers[question_id] = (tuple(given), kind)
    return answers
