"""Read the questions that a recipe names, and the answers that are classes."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.data.readers.json_files import load_json, objects
from polyglance.data.readers.validation import check_integer, check_text, reporting
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.evaluation.answers import answer_scores, normalise_answer
from polyglance.recipes.vqa.config import AnswerRanking, QuestionFile
from polyglance.recipes.vqa.tasks import AnswerTargets
from polyglance.records import Question, read_lines
from polyglance.training.distributed import rank
from polyglance.utils.bounded import parse_json


@dataclass(frozen=True, slots=True)
class QuestionImage:
    """An image that questions are about."""

    path: Path
    """The file, which need not exist where regions are stored."""
    name: str
    """As the dataset names it, by which a feature store finds its regions."""
    features: str = ""
    """Its feature store, inside the data folder or at an address."""
    tars: str | None = None
    """The tars that hold it; None for a file."""


ByImage = Mapping[QuestionImage, Sequence[Question]]


def read_questions(
    files: Sequence[QuestionFile], data: Path
) -> dict[QuestionImage, list[Question]]:
    """Read questions by image, in order; questions without answers too.

    Args:
        files: what to read.
        data: the data folder.

    Returns:
        The questions of each image, those of all files together.
    """
    by_image: dict[QuestionImage, list[Question]] = {}
    for file in files:
        path = data / file.manifest
        folder = path if path.is_dir() else path.parent
        kept = None
        if file.image_list is not None:
            kept = _read_image_list(data / file.image_list, file.image_folder)
        options = ReadOptions(images=file.images, language=file.language)
        problems, found = Problems(strict=file.format == "jsonl"), False
        for record in read_dataset(file.format, path, options, problems):
            name = record.image
            if name is None or not record.questions:
                continue
            if kept is not None and not kept & {name, PurePosixPath(name).name, _stem(name)}:
                continue
            if file.part is not None and not file.part[0] <= hash_share(name) < file.part[1]:
                continue
            image = QuestionImage(folder / name, name, file.features, file.tars)
            by_image.setdefault(image, []).extend(record.questions)
            found = True
        if not found:
            raise PolyglanceError(f"{file.manifest}: there are no questions about images")
        if problems and rank() == 0:
            print(
                f"{path}: {len(problems):,} malformed entries left out, the first"
                f" {problems.items[0]}",
                file=sys.stderr,
            )
    return by_image


def hash_share(image: str) -> float:
    """Return a number from 0 to less than 1 that depends on an image's name alone."""
    digest = hashlib.sha256(_stem(image).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def _stem(image: str) -> str:
    return PurePosixPath(image).stem


def _read_image_list(path: Path, folder: str | None) -> set[str]:
    if folder is not None:
        return _images_in_folder(path, folder)
    names = {line.strip() for _, line in read_lines(path, Problems(strict=True)) if line.strip()}
    if not names:
        raise DataError(f"{path}: expected the ids of images, one a line")
    return names


def _images_in_folder(path: Path, folder: str) -> set[str]:
    """Return the ids of images that Visual Genome's ``image_data.json`` has in a folder."""
    problems = Problems(strict=True)
    names = set()
    for place, entry in objects(path, load_json(path, problems, list), "", problems):
        with reporting(problems, path, place=place):
            address = PurePosixPath(check_text(entry.get("url"), "'url'"))
            if address.parent.name == folder:
                names.add(str(check_integer(entry.get("image_id", entry.get("id")), "'image_id'")))
    if not names:
        raise DataError(
            f"{path}: no image is in the folder {folder!r}: expected Visual Genome's"
            " image_data.json, whose folders are VG_100K and VG_100K_2"
        )
    return names


def split_held_out(by_image: ByImage, share: float, seed: int) -> tuple[ByImage, ByImage]:
    """Split the images into those to learn from and a share that chooses the checkpoint."""
    order = np.random.default_rng(seed).permutation(len(by_image))
    held_out = set(order[: round(share * len(by_image))].tolist())
    items = list(enumerate(by_image.items()))
    return (
        {image: questions for number, (image, questions) in items if number not in held_out},
        {image: questions for number, (image, questions) in items if number in held_out},
    )


def build_answer_vocabulary(
    questions: Iterable[Question],
    *,
    max_answers: int = 3000,
    min_score: float = 2.0,
    rank_by: AnswerRanking = "score",
) -> AnswerVocabulary:
    """Choose the answers of each language that are classes.

    Args:
        questions: with people's answers.
        max_answers: of each language.
        min_score: answers that score less in total are left out.
        rank_by: ``score`` adds up the VQA scores that an answer would get if it were always
            given; ``majority`` counts the questions whose most frequent answer it is. With one
            answer each, both are how often it was given.

    Returns:
        The classes, best first in each language.
    """
    totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for question in questions:
        for answer, score in _scores(question, rank_by).items():
            totals[question.language][answer] += score
    by_language = {}
    for language, scores in sorted(totals.items()):
        ranked = sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
        if kept := tuple(text for text, score in ranked[:max_answers] if score >= min_score):
            by_language[language] = kept
    if not by_language:
        raise PolyglanceError(
            "no answer was given often enough to be a class: lower answers.min_score"
        )
    return AnswerVocabulary(by_language)


def _scores(question: Question, rank_by: AnswerRanking) -> Mapping[str, float]:
    if rank_by == "score":
        return answer_scores(question)
    counts = Counter(normalise_answer(text, question.language) for text in question.answers)
    # Of answers that were given equally often, the first given counts.
    return {text: 1.0 for text, _ in counts.most_common(1)}


def read_answer_classes(path: Path, language: str) -> AnswerVocabulary:
    """Read a published list of classes, ``{"answer": class}`` (``ans2label.json``).

    Args:
        path: the file.
        language: of the answers.

    Returns:
        The answers in the order of their classes.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error})") from error
    if (
        not isinstance(content, dict)
        or not content
        or set(content.values()) != set(range(len(content)))
    ):
        raise DataError(
            f'{path}: expected {{"answer": class}} with all classes from 0, as in ans2label.json'
        )
    return AnswerVocabulary({language: tuple(sorted(content, key=content.__getitem__))})


def answer_targets(vocabulary: AnswerVocabulary, questions: Sequence[Question]) -> AnswerTargets:
    """Return the VQA v2 score of each class as an answer to each question.

    Published lists have answers that differ in form only ("1つ" with either digit): the first of
    them, the most frequent, is then the class of all.
    """
    class_ids: dict[tuple[str, str], int] = {}
    for number, (language, text) in enumerate(vocabulary.names):
        class_ids.setdefault((language, normalise_answer(text, language)), number)
    scores = [
        {
            class_ids[question.language, answer]: score
            for answer, score in answer_scores(question).items()
            if (question.language, answer) in class_ids
        }
        for question in questions
    ]
    return AnswerTargets.from_scores(scores, len(vocabulary))
