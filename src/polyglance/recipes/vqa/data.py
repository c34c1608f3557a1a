"""The data of a question-answering run: questions, answer classes, and regions of images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyglance.batches.regions import RegionTable
from polyglance.cross_encoders.object_tags import ObjectTagger, append_tags
from polyglance.cross_encoders.regions import (
    encode_regions,
    encode_regions_tta,
    open_image_backbone,
)
from polyglance.cross_encoders.vqa import AnswerVocabulary
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all_records
from polyglance.errors import PolyglanceError
from polyglance.evaluation.answers import answer_scores
from polyglance.recipes.vqa.config import QuestionFile, VQARecipe
from polyglance.recipes.vqa.tasks import AnswerTargets
from polyglance.records import Question, Record
from polyglance.text import Tokenizer, open_tokenizer

ByImage = Mapping[Path, Sequence[Question]]


@dataclass(frozen=True, eq=False)
class QuestionSplit:
    """Questions about images; the n-th question is the n-th row of the table."""

    questions: Sequence[Question]
    table: CaptionTable
    """The questions in sub-words; their record ids are the images."""
    regions: RegionTable


@dataclass(frozen=True, eq=False)
class VQAData:
    """Everything that a question-answering model is trained and evaluated on."""

    tokenizer: Tokenizer
    vocabulary: AnswerVocabulary
    train: QuestionSplit
    validation: QuestionSplit | None
    test: QuestionSplit | None


def load_data(recipe: VQARecipe, data: Path, device: str) -> VQAData:
    """Read the questions that the recipe names and encode every image.

    Args:
        recipe: names files, image backbone and detector.
        data: the data folder.
        device: where regions shall lie.

    Returns:
        The data; images for training have augmented views, others test-time augmentation.
    """
    tokenizer = open_tokenizer(recipe.encoder)
    backbone = open_image_backbone(recipe.image_backbone, device)
    tagger = None
    if recipe.object_tags is not None:
        tagger = ObjectTagger(recipe.object_tags, device=device)
    by_image = _read_questions(recipe.train, data)
    learned, held_out = _hold_out(by_image, recipe.held_out, recipe.loop.seed)
    vocabulary = build_answer_vocabulary(
        [question for questions in learned.values() for question in questions],
        max_answers=recipe.answers.max_answers,
        min_score=recipe.answers.min_score,
    )
    languages = tuple(vocabulary.by_language)

    def split(images: ByImage, *, train: bool = False) -> QuestionSplit | None:
        if not images:
            return None
        files, settings = list(images), recipe.image_backbone
        if train:
            regions = encode_regions(
                files, backbone, settings, views=settings.views, seed=recipe.loop.seed
            )
        else:
            regions = encode_regions_tta(files, backbone, settings)
        return build_split(
            list(images.values()),
            tokenizer,
            languages,
            regions,
            max_tokens=recipe.max_text_tokens,
            tags=None if tagger is None else tagger.tag(files),
        )

    train = split(learned, train=True)
    assert train is not None
    test = _read_questions(recipe.test, data)
    return VQAData(tokenizer, vocabulary, train, split(held_out), split(test))


def build_split(
    by_image: Sequence[Sequence[Question]],
    tokenizer: Tokenizer,
    languages: Sequence[str],
    regions: RegionTable,
    *,
    max_tokens: int,
    tags: Sequence[str] | None = None,
) -> QuestionSplit:
    """Tokenize the questions with answers in these languages.

    Args:
        by_image: the n-th questions are about the n-th image.
        tokenizer: of the questions.
        languages: those of the answer classes.
        regions: of the images.
        max_tokens: longer questions are truncated.
        tags: object tags of each image, appended to its questions.

    Returns:
        The questions in the table's order.
    """
    kept, records = [], []
    for number, questions in enumerate(by_image):
        answered = {
            code: [q for q in questions if q.language == code and q.answers] for code in languages
        }
        image_tags = "" if tags is None else tags[number]
        texts = {
            code: tuple(append_tags(question.text, image_tags) for question in some)
            for code, some in answered.items()
            if some
        }
        records.append(Record(captions=texts))
        kept += [question for some in answered.values() for question in some]
    table = CaptionTable.build(records, tokenizer, languages=languages, max_tokens=max_tokens)
    if len(table) != len(kept):
        raise PolyglanceError("the tokenizer has no token for some questions: choose another")
    return QuestionSplit(kept, table, regions)


def build_answer_vocabulary(
    questions: Sequence[Question], *, max_answers: int = 3000, min_score: float = 2.0
) -> AnswerVocabulary:
    """Choose the answers of each language that would score highest if they were always given.

    Args:
        questions: with people's answers. With one answer each, an answer's score is how often
            it was given.
        max_answers: of each language.
        min_score: answers that score less in total are left out.

    Returns:
        The classes, best first in each language.
    """
    totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for question in questions:
        for answer, score in answer_scores(question).items():
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


def answer_targets(vocabulary: AnswerVocabulary, questions: Sequence[Question]) -> AnswerTargets:
    """Return the VQA v2 score of each class as an answer to each question."""
    class_ids = vocabulary.class_ids
    scores = [
        {
            class_ids[question.language, answer]: score
            for answer, score in answer_scores(question).items()
            if (question.language, answer) in class_ids
        }
        for question in questions
    ]
    return AnswerTargets.from_scores(scores, len(vocabulary))


def _read_questions(files: Sequence[QuestionFile], data: Path) -> dict[Path, list[Question]]:
    """Read questions by image, in order."""
    by_image: dict[Path, list[Question]] = {}
    for file in files:
        path = data / file.manifest
        for record in read_all_records(file.format, path):
            if record.image is not None and record.questions:
                by_image.setdefault(path.parent / record.image, []).extend(record.questions)
    if files and not by_image:
        names = ", ".join(file.manifest for file in files)
        raise PolyglanceError(f"{names}: there are no questions about images")
    return by_image


def _hold_out(by_image: ByImage, share: float, seed: int) -> tuple[ByImage, ByImage]:
    """Split the images into those to learn from and a share that chooses the checkpoint."""
    order = np.random.default_rng(seed).permutation(len(by_image))
    held_out = set(order[: round(share * len(by_image))].tolist())
    items = list(enumerate(by_image.items()))
    return (
        {path: questions for number, (path, questions) in items if number not in held_out},
        {path: questions for number, (path, questions) in items if number in held_out},
    )
