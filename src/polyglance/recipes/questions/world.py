"""What question answering is trained and measured on: questions, answers, and what eyes see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyglance.data.captions import CaptionTable
from polyglance.data.readers import read_all
from polyglance.errors import PolyglanceError
from polyglance.evaluation.answer_classes import AnswerClasses
from polyglance.recipes.pairs.region_splits import look_again, look_at, open_eyes
from polyglance.recipes.questions.object_words import ObjectTeller, with_objects
from polyglance.recipes.questions.recipe import Asked, VQARecipe
from polyglance.records import Question, Record
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.training.region_table import RegionTable


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions about pictures: the n-th question is the n-th row of the table."""

    questions: Sequence[Question]
    table: CaptionTable
    regions: RegionTable
    """Of the pictures that the table's owners are."""


Pictures = Mapping[Path, Sequence[Question]]


@dataclass(frozen=True, eq=False)
class World:
    """What a model is trained and measured on."""

    tokenizer: Tokenizer
    classes: AnswerClasses
    train: Questions
    validation: Questions | None
    test: Questions | None

    @classmethod
    def open(cls, recipe: VQARecipe, data: Path, device: str) -> World:
        """Read what a recipe names, and look at every picture."""
        tokenizer = open_tokenizer(recipe.encoder)
        eyes = open_eyes(recipe.eyes, device)
        teller = None if recipe.objects is None else ObjectTeller(recipe.objects, device=device)
        pictures = _asked_of(recipe.train, data)
        learned, held = _held_out(pictures, recipe.held_out, recipe.loop.seed)
        questions = [question for asked in learned.values() for question in asked]
        classes = AnswerClasses.most_frequent(
            questions, most=recipe.answers.most, least=recipe.answers.least
        )
        languages = tuple(classes.by_language)

        def seen(some: Pictures, views: int | None = None) -> Questions | None:
            """In so many views to train on; None to measure on."""
            if not some:
                return None
            files = list(some)
            if views is None:
                regions = look_again(files, eyes, recipe.eyes)
            else:
                regions = look_at(files, eyes, recipe.eyes, views=views, seed=recipe.loop.seed)
            return questions_of(
                list(some.values()),
                tokenizer,
                languages,
                regions,
                longest=recipe.longest_text,
                told=None if teller is None else teller.tell(files),
            )

        train = seen(learned, recipe.eyes.views)
        assert train is not None
        test = _asked_of(recipe.test, data)
        return cls(tokenizer, classes, train, seen(held), seen(test))


def questions_of(
    by_picture: Sequence[Sequence[Question]],
    tokenizer: Tokenizer,
    languages: Sequence[str],
    regions: RegionTable,
    *,
    longest: int,
    told: Sequence[str] | None = None,
) -> Questions:
    """Questions with answers in these languages, the n-th ones about the n-th picture.

    With ``told`` they are read with what is in the picture, in words.
    """
    kept, records = [], []
    for number, asked in enumerate(by_picture):
        captions = {
            code: [q for q in asked if q.language == code and q.answers] for code in languages
        }
        seen = "" if told is None else told[number]
        read = {c: tuple(with_objects(q.text, seen) for q in qs) for c, qs in captions.items()}
        records.append(Record(captions={c: texts for c, texts in read.items() if texts}))
        kept += [question for some in captions.values() for question in some]
    table = CaptionTable.build(records, tokenizer, languages=languages, longest=longest)
    if len(table) != len(kept):
        raise PolyglanceError("the tokenizer leaves nothing of some questions: choose another")
    return Questions(kept, table, regions)


def _asked_of(files: Sequence[Asked], data: Path) -> dict[Path, list[Question]]:
    """The questions of files by their picture, in order."""
    found: dict[Path, list[Question]] = {}
    for file in files:
        path = data / file.manifest
        for record in read_all(file.format, path):
            if record.image is not None and record.questions:
                found.setdefault(path.parent / record.image, []).extend(record.questions)
    if files and not found:
        names = ", ".join(file.manifest for file in files)
        raise PolyglanceError(f"{names}: there are no questions about pictures")
    return found


def _held_out(pictures: Pictures, share: float, seed: int) -> tuple[Pictures, Pictures]:
    """Pictures to learn from, and a share of them to choose the checkpoint by."""
    order = np.random.default_rng(seed).permutation(len(pictures))
    held = set(order[: round(share * len(pictures))].tolist())
    items = list(enumerate(pictures.items()))
    return (
        {path: asked for number, (path, asked) in items if number not in held},
        {path: asked for number, (path, asked) in items if number in held},
    )
