"""The settings of models of whole words, SMALR's and those that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.models.word_baselines import WORD_MODELS
from polyglance.objectives.top_triplets import TripletRule
from polyglance.recipes.smalr.pretraining import Pretraining
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class Pictured:
    """Pictures with captions, and their features; paths are inside the data folder."""

    manifest: str
    features: str
    """A feature store or a ``.npz``; a picture is its vector of the whole, or the mean of all."""


@dataclass(frozen=True)
class WordRecipe:
    """Everything that makes a run."""

    model: str = "smalr"
    """One of `WORD_MODELS`."""
    shape: dict[str, Any] = field(default_factory=dict)
    """Settings of `SMALRConfig` that differ from the named model's."""
    objective: dict[str, Any] = field(default_factory=dict)
    """Settings of `SMALRObjective` that differ from the named model's; its triplets apart."""
    triplets: TripletRule = field(default_factory=TripletRule)
    easy_share: float = 0.0
    """Over which share of the steps the negatives that count become as few as triplets says; before
    that there are more, at first all of a batch."""
    languages: tuple[str, ...] = ("en",)
    min_count: int = 1
    """Words seen less often in training are dropped (frequency thresholding)."""
    dictionary_below: int = 0
    """Words of other languages than English seen less often than this become an English word that
    translates them (dictionary mapping)."""
    translate_to: str | None = None
    """Train on this language alone, and translate the captions of all others into it."""
    word_vectors: str = "e5-small"
    """Where words have their vectors from: see `polyglance.training.word_vectors.vectors_for`."""
    vectors_width: int = 300
    dictionaries: str | None = None
    """Files inside the data folder, with {source} and {target} for the codes of languages, or
    "learned": from translations (parallel), training captions and FreeDict, into the cache."""
    parallel: str | None = None
    """Sentences with translations inside the data folder, for dictionaries that are learned."""
    train: Pictured = field(default_factory=lambda: Pictured("train.jsonl", "features"))
    validation: Pictured = field(default_factory=lambda: Pictured("val.jsonl", "features"))
    test: Pictured = field(default_factory=lambda: Pictured("test.jsonl", "features"))
    batch: int = 450
    """Pictures a step."""
    sentences_each: int = 2
    """Sentences a picture and language."""
    languages_each: int | None = None
    """Languages drawn a step; None for all."""
    pretraining: Pretraining = field(default_factory=Pretraining)
    """Before pictures are seen: of latent tokens in models that have them, else of the projections
    into the universal space. Models with neither train as many steps longer, so that all have the
    same number."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    consistency: bool = False
    """Whether CLC-A and CLC-C are measured after training; they need dictionaries."""
    measure_test: bool = True
    """Not while hyper-parameters are chosen."""
    cache: str | None = None
    """A folder for cut captions, word vectors and latent tokens that runs share."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "min_count", "vectors_width")
        check(self, lambda value: value >= 0, "0 or more", "dictionary_below")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "easy_share")
        if self.model not in WORD_MODELS:
            raise PolyglanceError(
                f"there is no model {self.model!r} of words: choose from {', '.join(WORD_MODELS)}"
            )
        needs = self.dictionary_below > 0 or self.translate_to or self.consistency
        if needs and self.dictionaries is None:
            raise PolyglanceError(
                "dictionary_below, translate_to and consistency need dictionaries:"
                " name their files, such as dictionaries/{source}-{target}.tsv"
            )
        if self.translate_to is not None and self.translate_to not in self.languages:
            raise PolyglanceError(f"translate_to is {self.translate_to}: give one of languages")
