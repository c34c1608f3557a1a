"""Settings of SMALR and of the word models that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.consistency import Initialisation
from polyglance.models.smalr_baselines import WORD_MODELS
from polyglance.objectives.top_triplets import TripletRule
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class FeatureSplit:
    """Images with captions, and their features; paths are inside the data folder."""

    manifest: str
    features: str
    """A feature store, or vectors of another program: ``.npz``, ``.npy``, ``.h5`` (see
    `polyglance.recipes.smalr.features`). An image is its global vector, or the mean of all."""


@dataclass(frozen=True)
class CaptionSource:
    """A dataset in its published format, inside the data folder."""

    format: str
    """One of `polyglance.data.readers.FORMATS`."""
    path: str
    languages: tuple[str, ...] | None = None
    """Languages to take; None for all."""
    images: str = ""
    """Put before image names; features are found by these names or by the file name alone."""


@dataclass(frozen=True)
class PublishedCorpus:
    """Published datasets that are merged by image, split, and completed by translation."""

    sources: tuple[CaptionSource, ...]
    features: str
    """As in `FeatureSplit`, for all splits."""
    train: tuple[str, ...] = ("train",)
    """Names of splits in the files; likewise the next two."""
    validation: tuple[str, ...] = ("val",)
    test: tuple[str, ...] = ("test",)
    held_out: int = 0
    """Draw so many images for validation and for test each, whatever the files say, and train on
    the others: MULE's splits of MSCOCO."""
    held_out_languages: tuple[str, ...] = ()
    """Drawn images have captions in all of these."""
    seed: int = 0
    """Of the draw."""
    min_captions: int = 5
    """Add translations of English captions by ``translators`` until an image has so many in each
    language; in validation and test only where it has none. 0 for human captions alone."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "held_out", "min_captions")


@dataclass(frozen=True)
class PretrainingConfig:
    """Pre-training on sentences, before images: see `SentenceAlignmentTask`."""

    steps: int = 300
    learning_rate: float = 1e-3
    batch: int = 256
    """Images whose captions are compared in a step."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        validate_fields(self, lambda value: value >= 0, "0 or more", "steps")
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")


@dataclass(frozen=True)
class SMALRRecipe:
    """A word model, its data and its training."""

    model: str = "smalr"
    """One of `WORD_MODELS`."""
    model_config: dict[str, Any] = field(default_factory=dict)
    """Settings of `SMALRConfig` that differ from the named model's."""
    objective: dict[str, Any] = field(default_factory=dict)
    """Settings of `SMALRObjective`, other than triplets, that differ from the named model's."""
    triplets: TripletRule = field(default_factory=TripletRule)
    hard_negative_warmup: float = 0.0
    """Fraction of the steps over which the number of negatives falls from all of a batch to
    that of ``triplets``."""
    languages: tuple[str, ...] = ("en",)
    human_languages: tuple[str, ...] = ()
    """Languages with captions by people: their mean mR is HA in the paper's tables; none for no
    such column."""
    min_count: int = 1
    """Words with fewer occurrences in training are dropped (frequency thresholding)."""
    dictionary_min_count: int = 0
    """Non-English words with fewer occurrences in training are replaced by an English
    translation (dictionary mapping)."""
    translate_to: str | None = None
    """Train on this language alone, and translate the captions of all others into it."""
    word_vectors: str = "e5-small"
    """Initial word vectors: see `polyglance.training.word_vectors.vectors_for`."""
    word_vector_dim: int = 300
    dictionaries: str | None = None
    """Dictionary files inside the data folder, with {source} and {target} for language codes, or
    "learned": from ``parallel_text``, training captions and FreeDict, into the cache."""
    parallel_text: str | None = None
    """Sentences with translations inside the data folder, for learned dictionaries."""
    translators: tuple[str, ...] = ()
    """Machine translators for ``translate_to``, ``consistency`` and ``corpus``, as ``polyglance
    data translate --translator`` takes them; folders of models are inside the data folder."""
    corpus: PublishedCorpus | None = None
    """Published datasets, which take the place of ``train``, ``validation`` and ``test``."""
    train: FeatureSplit = field(default_factory=lambda: FeatureSplit("train.jsonl", "features"))
    validation: FeatureSplit = field(default_factory=lambda: FeatureSplit("val.jsonl", "features"))
    test: FeatureSplit = field(default_factory=lambda: FeatureSplit("test.jsonl", "features"))
    batch: int = 450
    """Images a step."""
    captions_per_language: int = 2
    """Captions drawn for each image and language."""
    languages_per_step: int | None = None
    """Languages drawn in a step; None for all."""
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    """Before images: of latent tokens where the model has them, else of the projections into the
    universal space. Models with neither train that many steps longer, so that all have the same
    number."""
    loop: LoopConfig = field(default_factory=LoopConfig)
    consistency: bool = False
    """Whether CLC-A and CLC-C are evaluated after training, with translations of queries by
    ``translators`` or word by word with ``dictionaries``."""
    clc_initialisation: Initialisation = "random"
    """Of CLC-C, see `LearnedConsistency`."""
    clc_iterations: int = 30
    """Full-batch steps that train CLC-C."""
    clc_networks: Literal["shared", "language"] = "shared"
    """Which CLC-C is saved with the model for search: the paper's one for all queries, or one for
    the queries of each language. Both are evaluated."""
    evaluate_test: bool = True
    """False while hyper-parameters are chosen."""
    cache_dir: str | None = None
    """Folder for tokenised captions, word vectors and latent tokens, which runs share."""

    def __post_init__(self) -> None:
        validate_fields(
            self, lambda value: value >= 1, "1 or more", "batch", "min_count", "word_vector_dim"
        )
        validate_fields(
            self, lambda value: value >= 0, "0 or more", "dictionary_min_count", "clc_iterations"
        )
        bounds = "a number from 0 to 1"
        validate_fields(self, lambda value: 0 <= value <= 1, bounds, "hard_negative_warmup")
        if self.model not in WORD_MODELS:
            raise PolyglanceError(
                f"there is no word model {self.model!r}: choose from {', '.join(WORD_MODELS)}"
            )
        if self.needs_dictionaries and self.dictionaries is None:
            raise PolyglanceError(
                "dictionary_min_count, translate_to and consistency need dictionaries: name"
                " files such as dictionaries/{source}-{target}.tsv, or translators for the last two"
            )
        if self.translate_to is not None and self.translate_to not in self.languages:
            raise PolyglanceError(f"translate_to is {self.translate_to}: give one of languages")

    @property
    def needs_dictionaries(self) -> bool:
        """Whether words are translated by dictionaries, not sentences by machine."""
        queries = self.translate_to is not None or self.consistency
        return self.dictionary_min_count > 0 or (queries and not self.translators)
