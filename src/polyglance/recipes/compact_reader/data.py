"""The data of a reader: one table of pixels, and the captions and questions about its images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.batches.inputs import PixelTable
from polyglance.batches.occluded_regions import OccludedRegions
from polyglance.batches.stored_cells import CellTable
from polyglance.data.captions import CaptionTable
from polyglance.data.readers import ReadOptions, read_dataset
from polyglance.encoders.answers import AnswerVocabulary
from polyglance.encoders.model_folder import VOCABULARY, ModelFolder
from polyglance.encoders.vocabulary import Vocabulary
from polyglance.errors import DataError, PolyglanceError, Problems
from polyglance.export.to_torch import load_torch
from polyglance.models.mmp import MMP
from polyglance.recipes.compact_reader.config import ReaderCorpus, ReaderRecipe
from polyglance.recipes.compact_reader.pretrained import PretrainedReader
from polyglance.recipes.cross_encoder.data import Split
from polyglance.recipes.image_sources import PixelStreaming, read_many_pixels
from polyglance.recipes.vqa.data import QuestionSplit, build_split
from polyglance.recipes.vqa.questions import build_answer_vocabulary, hash_share
from polyglance.records import Question, Record
from polyglance.text.huggingface import FastTokenizer
from polyglance.weights.unigram import xlmr_tokenizer


@dataclass(frozen=True, eq=False)
class DualEncoder:
    """The dual encoder in torch, frozen, with the tokenizer that it was trained with."""

    folder: ModelFolder
    model: MMP
    tokenizer: FastTokenizer

    @classmethod
    def open(cls, name_or_folder: str, device: str) -> DualEncoder:
        """Open a model of sub-words and pictures by name or folder."""
        folder = ModelFolder.open(name_or_folder)
        if folder.description.pictures is None or folder.description.text != "sub-words":
            raise PolyglanceError(
                f"{folder.path} holds no compressed model of pictures, whose words and cells a"
                " reader takes: give another dual_encoder"
            )
        vocabulary = Vocabulary.from_bytes(folder.read_file(VOCABULARY))
        pieces = list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True))
        tokenizer = FastTokenizer(xlmr_tokenizer(pieces, vocabulary.charsmap))
        model = load_torch(folder.path).to(device).eval().requires_grad_(False)
        return cls(folder, model, tokenizer)


@dataclass(frozen=True, eq=False)
class EvaluationSplit:
    """Images and captions to evaluate retrieval on."""

    split: Split
    dual_regions: OccludedRegions | None
    """The images at the dual encoder's own size, where the reader's is another."""


@dataclass(frozen=True, eq=False)
class ReaderData:
    """Everything that a reader is trained and evaluated on."""

    dual: DualEncoder
    grid: int
    """Cells per side of an image at the size that the reader is given when it is used."""
    regions: OccludedRegions
    """All training images, augmented."""
    captions: CaptionTable
    """Of the training images; those without captions have none."""
    corpora: NDArray[np.int64]
    """``(images,)``: the first of the recipe's manifests of captions that names a training image;
    -1 for images without captions."""
    questions: QuestionSplit
    held_out: QuestionSplit | None
    """Questions about other images, which choose the checkpoint."""
    answers: AnswerVocabulary
    validation: EvaluationSplit | None
    test: EvaluationSplit | None
    question_tests: tuple[QuestionSplit, ...]
    pretrained: PretrainedReader | None
    """What training begins with, if the recipe names it."""

    def image_repeats(self, recipe: ReaderRecipe) -> NDArray[np.int64]:
        """Return how many times each training image counts in sampling."""
        repeats = np.array([corpus.repeat for corpus in recipe.captions])
        return np.where(self.corpora < 0, 1, repeats[self.corpora])


def load_data(recipe: ReaderRecipe, data: Path, device: str) -> ReaderData:
    """Read all that a recipe names; pixels lie on the device.

    Args:
        recipe: The settings.
        data: Folder that the recipe's paths are in.
        device: Where pixels lie.
    """
    dual = DualEncoder.open(recipe.dual_encoder, device)
    depth = dual.model.encoder.config.num_layers
    if max(recipe.layers, recipe.text_layers) > depth:
        raise PolyglanceError(
            f"the dual encoder's text encoder has {depth} layers: set layers and text_layers to so"
            " many or fewer"
        )
    pretrained = None
    if recipe.initialise_from is not None:
        pretrained = PretrainedReader.open(recipe.initialise_from, recipe)
    reader = _Reader(recipe, data, dual, device)
    share = recipe.answering.held_out
    tests = [one for one in (recipe.validation, recipe.test) if one is not None]
    # An image may be in several datasets under the same name.
    unseen = {
        path.name
        for corpus in (*tests, *recipe.question_tests)
        for path, _ in reader.records(corpus)
    }
    learned: dict[Path, Record] = {}
    corpus_of: dict[Path, int] = {}
    held: dict[Path, list[Question]] = {}
    by_image: dict[Path, list[Question]] = {}
    for corpus in recipe.questions:
        for path, record in reader.records(corpus):
            if path.name in unseen:
                continue
            target = held if hash_share(path.name) < share else by_image
            target.setdefault(path, []).extend(record.questions * corpus.repeat)
    # The same image may lie in another folder too.
    unseen |= {path.name for path in held}
    for number, corpus in enumerate(recipe.captions):
        for path, record in reader.records(corpus):
            known = learned.get(path, Record()).captions
            added = {
                code: (*known.get(code, ()), *texts)
                for code, texts in record.captions.items()
                if corpus.languages is None or code in corpus.languages
            }
            if added and path.name not in unseen:
                learned[path] = Record(captions={**known, **added})
                corpus_of.setdefault(path, number)
    paths = sorted({*learned, *by_image})
    captions = reader.captions([learned.get(path, Record()) for path in paths])
    regions = reader.regions(paths, train=True)
    asked = [question for some in by_image.values() for question in some]
    if pretrained is None:
        answers = build_answer_vocabulary(
            asked, max_answers=recipe.answering.max_answers, min_score=recipe.answering.min_score
        )
    else:
        answers = AnswerVocabulary(pretrained.config.answers)
    questions = reader.questions([by_image.get(path, []) for path in paths], answers, regions)
    held_out = None
    if held:
        others = sorted(held)
        held_out = reader.questions(
            [held[path] for path in others], answers, reader.regions(others)
        )
    return ReaderData(
        dual,
        reader.grid(reader.size),
        regions,
        captions,
        np.array([corpus_of.get(path, -1) for path in paths], np.int64),
        questions,
        held_out,
        answers,
        None if recipe.validation is None else reader.split(recipe.validation),
        None if recipe.test is None else reader.split(recipe.test),
        tuple(reader.question_test(corpus, answers) for corpus in recipe.question_tests),
        pretrained,
    )


class _Reader:
    """Reads manifests and pixels for a dual encoder's networks."""

    def __init__(self, recipe: ReaderRecipe, data: Path, dual: DualEncoder, device: str) -> None:
        self.recipe, self.data, self.dual, self.device = recipe, data, dual, device
        settings = dual.folder.description.pictures
        assert settings is not None
        self.settings, self.size = settings, recipe.image_size or settings.size
        self.network = dual.model.get_submodule("image_backbone")

    def records(self, corpus: ReaderCorpus) -> Iterator[tuple[Path, Record]]:
        """Yield the records of a manifest with the files of their images."""
        manifest = self.data / corpus.manifest
        folder = manifest.parent if corpus.images is None else self.data / corpus.images
        found = set[str]()
        for record in read_dataset("jsonl", manifest, ReadOptions(), Problems(strict=True)):
            if record.image is None:
                continue
            if record.image not in found and len(found) == corpus.max_images:
                break
            found.add(record.image)
            yield folder / record.image, record
        if not found:
            raise DataError(f"{manifest}: there are no images")

    def grid(self, size: int) -> int:
        """Return the number of cells per side of an image of a size."""
        with torch.no_grad():
            cells = self.network(torch.zeros(1, 3, size, size, device=self.device))
        return int(cells.shape[2])

    def regions(
        self, paths: Sequence[Path], *, train: bool = False, size: int | None = None
    ) -> OccludedRegions:
        """Read pixels to the device: training images at the size of training."""
        training_size = self.recipe.training_image_size or self.settings.size
        size = size or (training_size if train else self.size)
        mean, std = torch.tensor(self.settings.mean), torch.tensor(self.settings.std)
        table = PixelTable(
            read_many_pixels(paths, size, PixelStreaming()),
            self.network,
            mean,
            std,
            min_crop_area=self.recipe.min_crop_area,
            mirror=False,  # questions ask for left and right
            device=self.device,
        )
        views = self.recipe.stored_views if train else min(1, self.recipe.stored_views)
        images = CellTable(table, views, self.recipe.loop.seed) if views else table
        drop = self.recipe.drop_cells if train else 0.0
        return OccludedRegions(
            images, self.grid(size), self.dual.model.config.visual_width, drop_cells=drop
        )

    def captions(self, records: Sequence[Record]) -> CaptionTable:
        """Tokenise the captions of images."""
        return CaptionTable.build(
            records, self.dual.tokenizer, max_tokens=self.recipe.max_text_tokens
        )

    def questions(
        self,
        by_image: Sequence[Sequence[Question]],
        answers: AnswerVocabulary,
        regions: OccludedRegions,
        *,
        test: bool = False,
    ) -> QuestionSplit:
        """Tokenise questions; those of a test may lack answers."""
        return build_split(
            by_image,
            self.dual.tokenizer,
            tuple(answers.by_language),
            regions,
            max_tokens=self.recipe.max_text_tokens,
            unanswered=test,
        )

    def question_test(self, corpus: ReaderCorpus, answers: AnswerVocabulary) -> QuestionSplit:
        """Read the questions of a test file."""
        by_image: dict[Path, list[Question]] = {}
        for path, record in self.records(corpus):
            by_image.setdefault(path, []).extend(record.questions)
        paths = sorted(by_image)
        return self.questions([by_image[p] for p in paths], answers, self.regions(paths), test=True)

    def split(self, corpus: ReaderCorpus) -> EvaluationSplit:
        """Read images and captions to evaluate retrieval on."""
        found = [(path, record) for path, record in self.records(corpus) if record.captions]
        paths, records = [path for path, _ in found], [record for _, record in found]
        split = Split(records, self.regions(paths), self.captions(records), paths)
        own = None
        if self.size != self.settings.size:
            own = self.regions(paths, size=self.settings.size)
        return EvaluationSplit(split, own)
