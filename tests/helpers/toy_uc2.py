"""The toy dataset for UC2: corpora, label names and a small model to train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch

from helpers.text_encoder import unigram_tokenizer
from helpers.toy_regions import WIDTH, first_region_records, first_regions, records_in, region_table
from polyglance.data.captions import CaptionTable
from polyglance.data.toy import Picture, Thing, ToyDataset
from polyglance.data.toy.grammars import GRAMMARS
from polyglance.data.toy.semantics import COLOURS, SHAPES
from polyglance.models.uc2 import UC2, UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.objectives.masked_language import TokenMasking
from polyglance.recipes.cross_encoder.captions import LanguageBalancedSampler
from polyglance.recipes.uc2.aligned_captions import AlignedCaptions, align_captions
from polyglance.recipes.uc2.labels import LabelTokens
from polyglance.recipes.uc2.tasks import ImageTextCorpus
from polyglance.records import Record
from polyglance.text.tokenizer import Tokenizer

LANGUAGES = ("en", "de")


@dataclass(frozen=True)
class ToyUC2:
    """Toy pictures for training and for evaluation, with a tokenizer of their captions."""

    train_pictures: Sequence[Picture]
    test_pictures: Sequence[Picture]
    tokenizer: Tokenizer

    @property
    def masking(self) -> TokenMasking:
        assert self.tokenizer.mask_id is not None
        return TokenMasking(self.tokenizer.mask_id, (4, self.tokenizer.mask_id))

    def table(self, records: Sequence[Record]) -> CaptionTable:
        return CaptionTable.build(records, self.tokenizer)

    def single_region_corpus(self, *languages: str) -> ImageTextCorpus:
        """Return images of one region, captioned by its label."""
        records = first_region_records(self.train_pictures, *languages)
        return ImageTextCorpus(
            first_regions(self.train_pictures), LanguageBalancedSampler(self.table(records))
        )

    def scene_corpus(self, *languages: str) -> ImageTextCorpus:
        """Return images of two regions, with captions of the whole scene."""
        records = records_in(self.train_pictures, *languages)
        return ImageTextCorpus(
            region_table(self.train_pictures), LanguageBalancedSampler(self.table(records))
        )

    def model(self, *, layers: int = 1, width: int = 32, **changes: Any) -> UC2:
        """Build an untrained model with large weights, which learns in few steps."""
        torch.manual_seed(0)
        encoder = EncoderConfig(
            vocab_size=self.tokenizer.vocab_size, hidden_size=width, num_layers=layers, num_heads=4,
            intermediate_size=2 * width, max_position_embeddings=66, dropout=0.0,
        )  # fmt: skip
        model = UC2(UC2Config(encoder, WIDTH, **changes))
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                is_embedding = name in ("encoder.words.weight", "encoder.positions.weight")
                torch.nn.init.normal_(parameter, std=0.3 if is_embedding else 0.1)
        return model

    @property
    def label_tokens(self) -> LabelTokens:
        return LabelTokens({code: toy_labels(code) for code in LANGUAGES}, self.tokenizer)

    def aligned_captions(self, records: Sequence[Record], table: CaptionTable) -> AlignedCaptions:
        aligned = {("en", "de"): align_captions(records, "en", "de", min_lift=2.5)}
        return AlignedCaptions.from_links(records, table, self.tokenizer, aligned)


def toy_labels(language: str) -> list[str]:
    """Return the names of the regions' labels, in the order of the labels."""
    grammar = GRAMMARS[language]
    things = (Thing(shape, colour) for shape, colour in product(SHAPES, COLOURS))
    return [grammar.join(grammar.label(thing)) for thing in things]


@cache
def make_toy_uc2() -> ToyUC2:
    """Build the data; test pictures show combinations that no training picture has."""
    dataset = ToyDataset(seed=0, languages=LANGUAGES, captions_per_language=1)
    pictures = list(dataset.pictures(400))
    texts = [
        text
        for record in [
            *first_region_records(pictures, *LANGUAGES),
            *records_in(pictures, *LANGUAGES),
        ]
        for captions in record.captions.values()
        for text in captions
    ]
    test_pictures = list(dataset.pictures(60, "test"))
    return ToyUC2(pictures, test_pictures, unigram_tokenizer(texts, pieces=300))
