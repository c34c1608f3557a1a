"""VQA v2 (Goyal et al., 2017): questions about MSCOCO images with ten answers each.

Layout: ``v2_OpenEnded_mscoco_train2014_questions.json`` has the questions and
``v2_mscoco_train2014_annotations.json`` beside it the answers; the test subsets have none.
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
    """Yield one record per image, with all questions about it."""
    expected = "files named v2_OpenEnded_mscoco_train2014_questions.json ..."
    for path in find_files(source, _is_questions, expected):
        yield from _read_subset(path, options, problems)


def _is_questions(name: str) -> bool:
    return without_gz(name).endswith("_questions.json")


def _read_subset(path: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    document = load_json(path, problems, dict)
    subset = document.get("data_subtype") or coco.subset_in_name(path)
    if document and (not isinstance(subset, str) or not re.fullmatch(r"[a-z-]+\d{4}", subset)):
        problems.report(path, None, "expected 'data_subtype' to be a subset such as 'train2014'")
        return
    answers = _read_answers(path, problems)
    questions: dict[int, list[Question]] = {}
    for place, entry in entries(path, document, "questions", problems):
        with reporting(problems, path, place=place):
            image_id = check_integer(entry.get("image_id"), "'image_id'")
            question = _question(entry, answers, options.language or "en")
            questions.setdefault(image_id, []).append(question)
    for image_id, image_questions in questions.items():
        # The images of "test-dev2015" are those of "test2015".
        folder = str(subset).replace("-dev", "")
        name = coco.image_path(coco.image_name(image_id, folder), folder)
        split = options.split or split_in_name(path)
        yield Record(image=options.path(name), questions=tuple(image_questions), split=split)


def _question(entry: dict[str, Any], answers: dict[int, _Answers], language: str) -> Question:
    question_id = check_integer(entry.get("question_id"), "'question_id'")
    texts, answer_type = answers.get(question_id, ((), None))
    return Question(
        text=check_text(entry.get("question"), "'question'"),
        language=language,
        answers=texts,
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
            texts = (
                check_text(check_object(answer, "an answer").get("answer"), "'answer'")
                for answer in check_list(entry.get("answers"), "'answers'")
            )
            answer_type = entry.get("answer_type")
            answer_type = None if answer_type is None else check_text(answer_type, "'answer_type'")
            answers[question_id] = (tuple(texts), answer_type)
    return answers
