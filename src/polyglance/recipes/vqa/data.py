"""The data of a question-answering run: questions, answer classes, and regions of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.batches.regions import RegionSource
from polyglance.cross_encoders.object_tags import ObjectTagger, append_tags
from polyglance.data.captions import CaptionTable
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.data import ENGLISH, SplitReader
from polyglance.recipes.image_sources import JoinedImages, open_images
from polyglance.recipes.uc2.data import open_test_translator
from polyglance.recipes.vqa.config import VQARecipe
from polyglance.recipes.vqa.questions import (
    ByImage,
    QuestionImage,
    build_answer_vocabulary,
    read_answer_classes,
    read_questions,
    split_held_out,
)
from polyglance.records import Question, Record
from polyglance.text import Tokenizer, open_tokenizer
from polyglance.text.translation.batches import translate_all
from polyglance.text.translation.cache import TranslationCache
from polyglance.training.distributed import rank
from polyglance.vision.decoding import Source


@dataclass(frozen=True, eq=False)
class QuestionSplit:
    """Questions about images; the n-th question is the n-th row of the table."""

    questions: Sequence[Question]
    table: CaptionTable
    """The questions in sub-words; their record ids are the images."""
    regions: RegionSource


@dataclass(frozen=True, eq=False)
class VQAData:
    """Everything that a question-answering model is trained and evaluated on."""

    tokenizer: Tokenizer
    vocabulary: AnswerVocabulary
    train: QuestionSplit
    validation: QuestionSplit | None
    tests: tuple[QuestionSplit, ...]
    """One for each test file of the recipe."""
    train_unmatched: NDArray[np.bool_]
    """``(questions,)``: whether a training question is used without a scoring class."""


def load_data(recipe: VQARecipe, data: Path, device: str) -> VQAData:
    """Read the questions that the recipe names, and the regions of every image.

    Args:
        recipe: names files, and an image backbone and detector or feature stores.
        data: the data folder.
        device: where regions shall lie.

    Returns:
        The data. Images that a backbone encodes have augmented views in training, and test-time
        augmentation in evaluation. Only test questions may lack answers.
    """
    tokenizer = open_tokenizer(recipe.encoder)
    by_image = read_questions(recipe.train, data)
    learned, held_out = split_held_out(by_image, recipe.held_out, recipe.loop.seed)
    vocabulary = _answer_classes(recipe, learned, data)
    reader = _QuestionReader(recipe, data, tokenizer, tuple(vocabulary.by_language), device)
    train = reader.read(learned, train=True)
    even_unmatched = [file for file in recipe.train if file.train_unmatched]
    kept = {question for some in read_questions(even_unmatched, data).values() for question in some}
    return VQAData(
        tokenizer,
        vocabulary,
        train,
        reader.read(held_out) if held_out else None,
        tuple(reader.read_test(read_questions([file], data)) for file in recipe.test),
        np.array([question in kept for question in train.questions], bool),
    )


def _answer_classes(recipe: VQARecipe, learned: ByImage, data: Path) -> AnswerVocabulary:
    """Read the published list of classes, or choose classes from the training questions."""
    questions = [question for some in learned.values() for question in some]
    answers = recipe.answers
    if answers.classes is None:
        return build_answer_vocabulary(
            questions,
            max_answers=answers.max_answers,
            min_score=answers.min_score,
            rank_by=answers.rank_by,
        )
    languages = sorted({question.language for question in questions})
    if len(languages) != 1:
        raise PolyglanceError(
            f"answers.classes lists answers of one language, and questions are in"
            f" {', '.join(languages)}: train on one, or set answers.classes to null"
        )
    return read_answer_classes(data / answers.classes, languages[0])


class _QuestionReader:
    """Tokenizes questions and reads or encodes their images, in a recipe's way."""

    def __init__(
        self,
        recipe: VQARecipe,
        data: Path,
        tokenizer: Tokenizer,
        languages: Sequence[str],
        device: str,
    ) -> None:
        self.recipe, self.tokenizer, self.device = recipe, tokenizer, device
        self.languages, self.data = languages, data
        self.tagger = None
        if recipe.object_tags is not None:
            self.tagger = ObjectTagger(recipe.object_tags, device=device)

    def read(self, images: ByImage, *, train: bool = False, test: bool = False) -> QuestionSplit:
        """Build a split; questions of training and validation need answers."""
        regions: RegionSource
        files: Sequence[Source] = ()
        # Images of one store or of the same tars next to each other, since they are read so.
        if self.recipe.image_backbone is None:
            order = sorted(images, key=lambda image: image.features)
            regions = self._stored_regions(order)
        else:
            order, files = self._open_images(sorted(images, key=lambda image: image.tars or ""))
            regions = self._splits.encoded_regions(files, train=train)
        return build_split(
            [images[image] for image in order],
            self.tokenizer,
            self.languages,
            regions,
            max_tokens=self.recipe.max_text_tokens,
            tags=None if self.tagger is None else self.tagger.tag(files),
            unanswered=test,
        )

    def read_test(self, images: ByImage) -> QuestionSplit:
        """Build a test split, of translated questions if the recipe says so."""
        if self.recipe.translate_test is None:
            return self.read(images, test=True)
        translated = self._translate(images, self.recipe.translate_test)
        split = self.read(translated, test=True)
        originals = {
            id(new): old
            for image, questions in images.items()
            for new, old in zip(translated[image], questions, strict=True)
        }
        return replace(split, questions=[originals[id(q)] for q in split.questions])

    def _translate(self, images: ByImage, translator: str) -> dict[QuestionImage, list[Question]]:
        """Return the questions in English, in the same order."""
        texts: dict[str, list[str]] = {}
        for questions in images.values():
            for question in questions:
                texts.setdefault(question.language, []).append(question.text)
        english: dict[tuple[str, str], str] = {}
        for language, some in sorted(texts.items()):
            if language != ENGLISH:
                to_english = open_test_translator(translator, language, self._splits)
                with TranslationCache.open() as cache:
                    found = translate_all(to_english, some, cache, quiet=rank() > 0).texts
                english |= {(language, text): new for text, new in found.items() if new}
        return {
            image: [
                replace(q, text=english.get((q.language, q.text), q.text), language=ENGLISH)
                for q in questions
            ]
            for image, questions in images.items()
        }

    @cached_property
    def _splits(self) -> SplitReader:
        return SplitReader(
            self.data,
            self.tokenizer,
            max_text_tokens=self.recipe.max_text_tokens,
            max_regions=self.recipe.max_regions,
            prepend_global=self.recipe.prepend_global,
            image_backbone=self.recipe.image_backbone,
            seed=self.recipe.loop.seed,
            device=self.device,
            streaming=self.recipe.streaming,
        )

    def _open_images(
        self, images: Sequence[QuestionImage]
    ) -> tuple[list[QuestionImage], Sequence[Source]]:
        """Find the images of each set of tars, and files; damaged ones may be left out."""
        kept, sources = [], []
        for tars, group in groupby(images, key=lambda image: image.tars):
            some = list(group)
            # Images are files of several folders, named in full.
            records = [
                Record(image=str(image.path.absolute()) if tars is None else image.name)
                for image in some
            ]
            found = open_images(records, self.data, "images", tars, self.recipe.streaming.pixels)
            left = {id(record) for record in found.records}
            places = zip(some, records, strict=True)
            kept += [image for image, record in places if id(record) in left]
            sources.append(found.sources)
        return kept, JoinedImages(sources)

    def _stored_regions(self, images: Sequence[QuestionImage]) -> RegionSource:
        return self._splits.stored_regions(
            [
                (features, [Record(image=image.name) for image in some])
                for features, some in groupby(images, key=lambda image: image.features)
            ]
        )


def build_split(
    by_image: Sequence[Sequence[Question]],
    tokenizer: Tokenizer,
    languages: Sequence[str],
    regions: RegionSource,
    *,
    max_tokens: int,
    tags: Sequence[str] | None = None,
    unanswered: bool = False,
) -> QuestionSplit:
    """Tokenize the questions in these languages.

    Args:
        by_image: the n-th questions are about the n-th image.
        tokenizer: of the questions.
        languages: those of the answer classes.
        regions: of the images.
        max_tokens: longer questions are truncated.
        tags: object tags of each image, appended to its questions.
        unanswered: keep questions without answers, as a test to submit has them; a question in
            another language is then an error, since it would go unanswered.

    Returns:
        The questions in the table's order.
    """
    kept, records = [], []
    for number, questions in enumerate(by_image):
        others = sorted({question.language for question in questions} - set(languages))
        if unanswered and others:
            raise PolyglanceError(
                f"test questions are in {', '.join(others)}, and the model has answers in"
                f" {', '.join(languages)} alone: train on the others too, or leave them out"
            )
        asked = {
            code: [q for q in questions if q.language == code and (q.answers or unanswered)]
            for code in languages
        }
        image_tags = "" if tags is None else tags[number]
        texts = {
            code: tuple(append_tags(question.text, image_tags) for question in some)
            for code, some in asked.items()
            if some
        }
        records.append(Record(captions=texts))
        kept += [question for some in asked.values() for question in some]
    table = CaptionTable.build(records, tokenizer, languages=languages, max_tokens=max_tokens)
    if len(table) != len(kept):
        raise PolyglanceError("the tokenizer has no token for some questions: choose another")
    return QuestionSplit(kept, table, regions)
