"""JSON Lines: one JSON object per line of a ``.jsonl`` or ``.jsonl.gz`` file. A line is one of

- a manifest record: ``{"image": "1.jpg", "captions": {"en": ["..."]}}``,
- a question: ``{"image": "1.jpg", "question": "...", "answers": ["..."], "language": "en"}``; also
  with one ``answer``, or with ``answers`` and their VQA scores, ``{"red": 1, "pink": 0.6}``,
- sentences that are translations of each other: ``{"en": "...", "de": "..."}``.

A picture or video named by a bare id, without folder or extension, keeps that name. The split
is the record's own, else the one in the file name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyglance.data.readers.base import ReadOptions, find_files, split_in_name, without_gz
from polyglance.data.readers.validation import check_name, check_object, check_text, reporting
from polyglance.errors import Problems
from polyglance.languages import normalise_language
from polyglance.records import Record, parse_json, read_lines

_PEOPLE = 3
"""So many people who give an answer make its VQA score 1."""


def read(source: Path, options: ReadOptions, problems: Problems) -> Iterator[Record]:
    """Yield one record per line."""
    for path in find_files(source, lambda name: without_gz(name).endswith(".jsonl"), "*.jsonl"):
        split = options.split or split_in_name(path)
        for number, line in read_lines(path, problems):
            if not line.strip():
                continue
            with reporting(problems, path, number):
                record = _parse(check_object(parse_json(line), "the line"), options)
                yield replace(
                    record,
                    image=_media_path(record.image, options),
                    video=_media_path(record.video, options),
                    split=record.split or split,
                )


def _parse(line: dict[str, Any], options: ReadOptions) -> Record:
    if "question" in line:
        return _parse_question(line, options)
    if line.keys() != {"id"} and _has_language_keys(line):
        captions: dict[str, tuple[str, ...]] = {}
        for code, sentence in line.items():
            language = normalise_language(code)
            captions[language] = (*captions.get(language, ()), check_text(sentence, "a sentence"))
        return Record(captions=captions)
    return Record.from_json(line)


def _has_language_keys(line: dict[str, Any]) -> bool:
    """Return whether every key is a language code; of a record's fields only "id" is one."""
    try:
        return bool([normalise_language(code) for code in line])
    except ValueError:
        return False


def _parse_question(line: dict[str, Any], options: ReadOptions) -> Record:
    question_id = line.get("id", line.get("question_id"))
    question = {
        "text": line["question"],
        "language": line.get("language", options.language),
        "answers": _answers(line),
        "answer_type": line.get("answer_type"),
        "id": None if question_id is None else check_name(question_id, "'id'"),
    }
    record: dict[str, Any] = {"questions": [question]}
    record |= {key: line[key] for key in ("image", "video", "split") if key in line}
    return Record.from_json(record)


def _answers(line: dict[str, Any]) -> object:
    """Return the answers of a question.

    They are a list of people's answers, a single ``answer``, or an object of answers with their VQA
    scores, each of which becomes as many people as give it that score.
    """
    answers = line.get("answers", [line["answer"]] if "answer" in line else [])
    if not isinstance(answers, dict):
        return answers
    if not all(isinstance(s, int | float) and 0 <= s <= 1 for s in answers.values()):
        raise ValueError("the scores of 'answers' to be numbers from 0 to 1")
    return [text for text, score in answers.items() for _ in range(round(_PEOPLE * score))]


def _media_path(name: str | None, options: ReadOptions) -> str | None:
    """Return a path in the image folder; a bare id stays as it is."""
    if name is None or not ("/" in name or "." in name):
        return name
    return options.path(name)
