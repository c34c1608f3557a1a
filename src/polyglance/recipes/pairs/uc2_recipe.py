"""The settings of UC2: its stages, and what they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polyglance.config import as_plain, check
from polyglance.data.readers import read_all
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import Form
from polyglance.recipes.common import files_missing
from polyglance.recipes.pairs.label_names import Labels, missing_dictionaries
from polyglance.recipes.pairs.recipe import PairRecipe
from polyglance.recipes.pairs.region_splits import (
    ENGLISH,
    Sentences,
)
from polyglance.training.linked_captions import (
    Pairing,
)
from polyglance.training.loop import LoopConfig
from polyglance.training.uc2_tasks import (
    RankingLoss,
)


@dataclass(frozen=True)
class Translations:
    """Captions of one picture in two languages, one of them English, for VTLM."""

    languages: tuple[str, ...] | None = None
    """Those beside English; None for all that captions are in."""
    pairing: Pairing = "closest"
    """``same-place`` where the k-th caption is the translation of the k-th in English."""
    texts: tuple[Sentences, ...] = ()
    """More sentences with translations, for the word aligner to learn from."""
    keep: str | None = None
    """A folder inside the data folder for the links of words, which are found once."""


@dataclass(frozen=True)
class Adaptation:
    """The first stage: regions are brought among words, which stay (section 3.3.2)."""

    batch: int = 1024
    """Regions a step."""
    temperature: float = 1.0
    languages: tuple[str, ...] = (ENGLISH,)
    """Of the label words."""
    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 0

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "steps")
        check(self, lambda value: value > 0, "a number above 0", "temperature", "learning_rate")


@dataclass(frozen=True)
class Shares:
    """How often each objective is drawn; the published code's. 0 leaves one out."""

    itm: float = 9
    mlm: float = 12
    mrtm: float = 9
    vtlm: float = 3

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 0, "0 or more", "itm", "mlm", "mrtm", "vtlm")
        if not any(as_plain(self).values()):
            raise PolyglanceError("a mixture needs one objective at least that is drawn")


@dataclass(frozen=True)
class Pretraining:
    """The second stage: one objective a step, drawn from the mixture."""

    batch: int = 256
    """Pairs a step, of whichever objective."""
    mixture: Shares = field(default_factory=Shares)
    languages: tuple[str, ...] | None = None
    """Of all captions, those of VTLM and TLM too; None for all."""
    pivot: Literal["image", "english"] = "image"
    """``english``: pictures beside English captions alone, and languages beside English
    without pictures, any words hidden (TLM), as in Table 4."""
    masked: float = 0.8
    """The share of chosen words that become the mask; 1 in the paper's text."""
    random: float = 0.1
    """The share that become another word, as in BERT and the published code; 0 in the text."""
    co_masked: float = 1.0
    """The share of VTLM's pairs that lose a word in both captions; 0.5 in the published code."""
    matching_first: int = 0
    """Steps of ITM alone, before the mixture: see `polyglance.recipes.stages`."""
    steps: int = 1000
    learning_rate: float = 4e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 2, "2 or more", "batch")
        check(self, lambda value: value >= 1, "1 or more", "steps")
        check(self, lambda value: value >= 0, "0 or more", "matching_first")
        check(self, lambda value: value > 0, "a number above 0", "learning_rate")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "co_masked")


@dataclass(frozen=True)
class FineTuning:
    """The third stage: true pairs before false ones."""

    batch: int = 64
    """True pairs a step."""
    negatives: int = 1
    """False pairs of a true one with another picture, and as many with another caption."""
    margin: float = 0.2
    loss: RankingLoss = "triplet"
    """``matching`` tells true pairs from false ones by cross-entropy, as M3P does."""
    languages: tuple[str, ...] | None = None
    """Of the captions: ``[en]``, any other one, or None for all."""
    smoothing: float = 1.0
    """A language is drawn by the number of its captions to this power: 1 for all captions alike,
    as merged data have them; 0 for all languages."""
    lookalikes: int = 0
    """Draw false pairs among so many pictures that look most alike; 0 for among all."""
    easy_share: float = 0.5
    """The share of steps in which false pairs go from any pictures to lookalikes alone."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "negatives")
        check(self, lambda value: value >= 0, "0 or more", "lookalikes", "margin", "smoothing")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "easy_share")


@dataclass(frozen=True)
class UC2Recipe(PairRecipe):
    """Everything that makes a run."""

    form: Form = "paper"
    longest_text: int = 60
    labels: Labels = field(default_factory=Labels)
    translations: Translations = field(default_factory=Translations)
    adaptation: Adaptation | None = field(default_factory=Adaptation)
    pretraining: Pretraining | None = field(default_factory=Pretraining)
    fine_tuning: FineTuning | None = field(default_factory=FineTuning)
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=1e-4, betas=(0.9, 0.98))
    )
    translate_test: str | None = None
    """How captions of the test become English, which is then measured again: a model's folder as
    `polyglance data translate` takes it, or dictionaries, inside the data folder, with {source}
    and {target} for codes; or apertium."""

    @property
    def names_labels(self) -> bool:
        """Whether any stage asks what regions are called."""
        stage = self.pretraining
        return self.adaptation is not None or (stage is not None and stage.mixture.mrtm > 0)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of labels and texts for the word aligner too, where they are read."""
        stage = self.pretraining
        labels = [self.labels.names] if self.names_labels and self.labels.names else []
        texts = self.translations.texts if stage and stage.mixture.vtlm > 0 else ()
        return (*self.manifests, *labels, *(text.manifest for text in texts))

    def check_trainable(self) -> None:
        """See `PairRecipe.check_trainable`."""
        if ENGLISH in (self.translations.languages or ()):
            raise PolyglanceError(
                "translations.languages are those beside English: leave en out of them"
            )

    def missing(self, data: Path) -> list[str]:
        """Dictionaries of labels too, for the languages that captions are in."""
        found = super().missing(data)
        asked = self.names_labels and self.labels.dictionaries is not None
        if asked and not files_missing(data, self.files):
            parts = (self.train, *self.more)
            records = (r for part in parts for r in read_all("jsonl", data / part.manifest))
            languages = sorted(set().union(*(record.captions for record in records)))
            found += missing_dictionaries(self.labels, languages, data)
        return found
