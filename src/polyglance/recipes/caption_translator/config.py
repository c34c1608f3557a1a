"""Settings of the caption translator."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.languages import is_language_code
from polyglance.text.translation.network import NetworkConfig
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class PairCorpus:
    """Sentences with their translations, in a file of the data folder."""

    path: str
    """JSON lines with a text by language, ``{"en": "A dog.", "de": "Ein Hund."}``, or Tatoeba's
    tab-separated lines of language, sentence and English sentence; also ``.gz`` and ``.xz``."""
    name: str
    """Held-out sentences are reported under it; several files may have the same."""
    weight: float = 1.0
    """How often a pair is drawn, relative to the other corpora."""
    held_out: int = 0
    """Sentences, or pictures where lines name an ``image``, that are kept from training and that
    translations are tested on; half as many more are for validation."""
    skip: tuple[str, ...] = ()
    """Languages or scripts of the file that are left out, as they are written there."""
    only: tuple[str, ...] = ()
    """If given, the only languages taken from this file."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value > 0, "a number above 0", "weight")
        validate_fields(self, lambda value: value >= 0, "0 or more", "held_out")


@dataclass(frozen=True)
class VocabularyConfig:
    """The sub-words that all languages share."""

    size: int = 20_000
    file: str | None = None
    """A vocabulary of an earlier run, inside the data folder; None to learn one."""
    max_sentences: int = 40_000
    """Sentences of each language that it is learned from; of the source five times as many."""
    character_coverage: float = 0.9995

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "size", "max_sentences")
        bounds = "a number above 0 and at most 1"
        validate_fields(self, lambda value: 0 < value <= 1, bounds, "character_coverage")


@dataclass(frozen=True)
class CaptionTranslatorRecipe:
    """Languages, parallel text, network and training."""

    corpora: tuple[PairCorpus, ...]
    languages: tuple[str, ...]
    """Languages to translate into."""
    source: str = "en"
    from_targets: float = 0.25
    """Share of the training pairs that are translated into the source language: for checks by
    translating back. 0 for one direction alone."""
    language_alpha: float = 0.5
    """Languages of a corpus are drawn in proportion to their pairs to this power."""
    plain_share: float = 0.2
    """Share of source sentences that are lowercased and lose their full stop, as captions often
    are written; translations stay as they are."""
    batch_tokens: int = 24_000
    """Target tokens a step, padding counted."""
    label_smoothing: float = 0.1
    num_beams: int = 5
    min_round_trip: float = 0.8
    """The quality check of languages without held-out captions: chrF of held-out captions
    translated there and back, relative to the mean of the languages that have some. Those below
    are refused by ``polyglance data translate``."""
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch_tokens", "num_beams")
        shares = ("from_targets", "plain_share", "label_smoothing")
        bounds = "a number from 0 to less than 1"
        validate_fields(self, lambda value: 0 <= value < 1, bounds, *shares)
        share = "a number from 0 to 1"
        validate_fields(self, lambda value: 0 <= value <= 1, share, "language_alpha")
        validate_fields(self, lambda value: value >= 0, "0 or more", "min_round_trip")
        if not self.corpora or not self.languages:
            raise PolyglanceError("give one or more corpora and languages")
        if self.source in self.languages:
            raise PolyglanceError(
                f"{self.source} is the source: leave it out of the languages to translate into"
            )
        for code in (self.source, *self.languages):
            if not is_language_code(code):
                raise PolyglanceError(f"there is no language {code!r}: give a code such as 'de'")
        if not any(corpus.held_out for corpus in self.corpora):
            raise PolyglanceError(
                "no corpus has held_out sentences, without which nothing can be measured: set"
                " held_out of one"
            )
