"""The toy dataset for SMALR: captions as word ids, word vectors, one vector per image."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from polyglance.batches.inputs import FeatureTable, pack_captions
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Picture, ToyDataset
from polyglance.data.toy.semantics import Colour, Shape
from polyglance.evaluation.retrieval import evaluate_retrieval
from polyglance.models.smalr import SMALR
from polyglance.records import Record

COLOURS: tuple[Colour, ...] = ("red", "green", "blue", "yellow")
SHAPES: tuple[Shape, ...] = ("circle", "square", "triangle")
VECTORS = 24
VISUAL = 4 * len(COLOURS) * len(SHAPES)


class Numbers:
    """A text is its ids."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[int(number) for number in text.split()] for text in texts]


@dataclass(frozen=True, eq=False)
class ToySMALRData:
    """Training and test images with captions as word ids."""

    languages: tuple[str, ...]
    words: list[str]
    vectors: Tensor
    language_of: Tensor
    rank_in_language: Tensor
    train: CaptionTable
    train_visuals: FeatureTable
    test: CaptionTable
    test_visuals: FeatureTable

    @torch.no_grad()
    def recall(self, model: SMALR, language: str) -> float:
        """Return mean recall among the test images, in percent."""
        model.eval()
        pictures = model.encode_visual(
            *self.test_visuals.rows(np.arange(self.test.num_records), None)
        )
        rows = self.test.rows_in_language(language)
        text = pack_captions(self.test, rows, torch.device("cpu"))
        number = torch.full((len(rows),), self.languages.index(language))
        sentences = model.encode_text(text.ids, text.packing, number)
        found = evaluate_retrieval(pictures.numpy(), sentences.numpy(), self.test.record_ids[rows])
        return found.mean_recall


@lru_cache
def toy_smalr_data(
    languages: tuple[str, ...] = ("en", "de", "fr"), pictures: int = 240
) -> ToySMALRData:
    """Return a small dataset; word vectors depend on the first letters, in each language."""
    dataset = ToyDataset(
        seed=0, languages=languages, colours=COLOURS, shapes=SHAPES, captions_per_language=2
    )
    train = list(dataset.pictures(pictures, "train"))
    test = list(dataset.pictures(60, "train", start=pictures))
    counts = {
        language: Counter(
            w for p in train for c in p.captions[language] for w in split_words(c.text)
        )
        for language in languages
    }
    words, language_of, ranks = ["<pad>", "<mask>"], [-1, -1], [-1, -1]
    for number, language in enumerate(languages):
        common = sorted(counts[language], key=lambda w: (-counts[language][w], w))
        words += common
        language_of += [number] * len(common)
        ranks += range(len(common))
    numbers = {
        (languages[language], word): number
        for number, (word, language) in enumerate(zip(words, language_of, strict=True))
        if language >= 0
    }
    stems: dict[tuple[int, str], Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    vectors = torch.zeros(len(words), VECTORS)
    for number, (word, language) in enumerate(zip(words, language_of, strict=True)):
        stem = stems.setdefault((language, word[:4]), torch.randn(VECTORS, generator=generator))
        vectors[number] = stem + 0.3 * torch.randn(VECTORS, generator=generator)

    def encode(text: str, language: str) -> str:
        words = [(language, word) for word in split_words(text)]
        return " ".join(str(numbers[word]) for word in words if word in numbers)

    def captions(pictures: Sequence[Picture]) -> CaptionTable:
        records = [
            Record(
                captions={
                    language: tuple(encode(c.text, language) for c in p.captions[language])
                    for language in languages
                }
            )
            for p in pictures
        ]
        return CaptionTable.build(records, Numbers(), languages=languages)

    def features(some: Sequence[Picture]) -> FeatureTable:
        return FeatureTable(
            torch.stack([detector_features(p) for p in some]), np.ones(len(some), np.int64)
        )

    return ToySMALRData(
        languages, words, vectors, torch.tensor(language_of), torch.tensor(ranks),
        captions(train), features(train), captions(test), features(test),
    )  # fmt: skip


def detector_features(picture: Picture) -> Tensor:
    """Return the features of an ideal detector: presence and place of each kind of object."""
    kinds = torch.zeros(len(COLOURS), len(SHAPES), 4)
    for placed in picture.scene.things:
        colour, shape = COLOURS.index(placed.thing.colour), SHAPES.index(placed.thing.shape)
        found = (1.0, 2 * placed.x - 1, 2 * placed.y - 1, 4 * placed.radius)
        kinds[colour, shape] += torch.tensor(found)
    return kinds.flatten()


def split_words(text: str) -> list[str]:
    """Return the words of a sentence."""
    return re.findall(r"\w+", text.lower())
