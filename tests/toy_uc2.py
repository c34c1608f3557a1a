"""The toy world for UC2: corpora, label names and a small model to try its objectives on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Picture, Thing, ToyWorld
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.meaning import COLOURS, SHAPES
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import WordMasking
from polyglance.records import Record
from polyglance.text.tokenizer import Tokenizer
from polyglance.training.caption_pairs import CaptionPairs
from polyglance.training.even_captions import EvenCaptions
from polyglance.training.label_words import LabelWords
from polyglance.training.linked_captions import link_captions
from polyglance.training.uc2_tasks import Corpus
from toy_model import unigram_tokenizer
from toy_regions import WIDTH, first_regions, one_thing_each, only, region_table

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class World:
    """Pictures to learn from and pictures to be found, and a tokenizer of what is said of them."""

    pictures: Sequence[Picture]
    gallery: Sequence[Picture]
    tokenizer: Tokenizer

    @property
    def masking(self) -> WordMasking:
        assert self.tokenizer.mask_id is not None
        return WordMasking(self.tokenizer.mask_id, (4, self.tokenizer.mask_id))

    def table(self, records: Sequence[Record]) -> CaptionTable:
        return CaptionTable.build(records, self.tokenizer)

    def things(self, *languages: str) -> Corpus:
        """A thing a picture, and what it is called."""
        records = one_thing_each(self.pictures, *languages)
        return Corpus(first_regions(self.pictures), EvenCaptions(self.table(records)))

    def scenes(self, *languages: str) -> Corpus:
        """Two things a picture, and how they lie."""
        records = only(self.pictures, *languages)
        return Corpus(region_table(self.pictures), EvenCaptions(self.table(records)))

    def model(self, *, layers: int = 1, width: int = 32, **changes: Any) -> UC2:
        """Untrained, and lively: these tests have no time for a slow start."""
        torch.manual_seed(0)
        encoder = EncoderConfig(
            vocabulary=self.tokenizer.vocab_size, width=width, layers=layers, heads=4,
            inner=2 * width, positions=66, dropout=0.0,
        )  # fmt: skip
        model = UC2(UC2Config(encoder, WIDTH, **changes))
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                of_table = name in ("encoder.words.weight", "encoder.positions.weight")
                torch.nn.init.normal_(parameter, std=0.3 if of_table else 0.1)
        return model

    @property
    def label_words(self) -> LabelWords:
        return LabelWords({code: toy_labels(code) for code in LANGUAGES}, self.tokenizer)

    def pairs(self, records: Sequence[Record], table: CaptionTable) -> CaptionPairs:
        linked = {("en", "de"): link_captions(records, "en", "de")}
        return CaptionPairs.of(records, table, self.tokenizer, linked)


def toy_labels(language: str) -> list[str]:
    """What the regions' labels are called, in their order."""
    grammar = GRAMMARS[language]
    things = (Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS))
    return [grammar.join(grammar.label(thing)) for thing in things]


def make_world() -> World:
    """Both languages, and pictures of combinations that training never shows."""
    toy = ToyWorld(seed=0, languages=LANGUAGES, captions=1)
    pictures = list(toy.pictures(400))
    texts = [
        text
        for record in [*one_thing_each(pictures, *LANGUAGES), *only(pictures, *LANGUAGES)]
        for captions in record.captions.values()
        for text in captions
    ]
    gallery = list(toy.pictures(60, "test"))  # combinations that training never showed
    return World(pictures, gallery, unigram_tokenizer(texts, pieces=300))
