"""UC2's settings: its stages and the data that they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polyglance.config import as_plain, validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import Variant
from polyglance.models.uc2 import TLMPositions
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe, TextFile
from polyglance.recipes.cross_encoder.corpora import read_corpus
from polyglance.recipes.cross_encoder.data import ENGLISH
from polyglance.recipes.run_folder import missing_files
from polyglance.recipes.uc2.aligned_captions import Pairing
from polyglance.recipes.uc2.labels import LabelNamesConfig, missing_dictionaries
from polyglance.recipes.uc2.tasks import RetrievalLoss
from polyglance.text.alignment import AlignerSettings
from polyglance.training.loop import LoopConfig

AlignerName = Literal["fast_align", "hmm"]


@dataclass(frozen=True)
class Translations:
    """Captions of one image in English and another language, for VTLM."""

    languages: tuple[str, ...] | None = None
    """Those besides English; None for all languages with captions."""
    pairing: Pairing = "closest"
    """``same-place`` where the k-th caption translates the k-th English one; ``marked`` where a
    file beside the manifest says which, as `polyglance data translate` writes it."""
    texts: tuple[TextFile, ...] = ()
    """Further sentences with translations that the word aligner learns from."""
    aligner: AlignerName = "fast_align"
    """``fast_align`` as in the paper, or ``hmm``: IBM model 1, fast_align's model and an HMM whose
    two directions are trained to agree, one after the other."""
    min_lift: float = 0.0
    """Drop links between words that are linked less than so many times as often as by chance, such
    as articles, which are in every caption; 0 keeps all links, as in the paper."""
    cache_dir: str | None = None
    """A folder inside the data folder that keeps word alignments from run to run."""
    part_images: int = 200_000
    """A corpus that is read from disk is aligned in parts of about so many images, each from the
    words of its own part; about 2 GB of memory for 100,000 captions."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "min_lift")
        validate_fields(self, lambda value: value >= 1, "1 or more", "part_images")

    @property
    def aligner_settings(self) -> AlignerSettings:
        """The settings of the word aligner."""
        return AlignerSettings.fast_align() if self.aligner == "fast_align" else AlignerSettings()


@dataclass(frozen=True)
class EarlyAdaptationConfig:
    """The first stage: regions are aligned with frozen word embeddings (section 3.3.2)."""

    batch: int = 1024
    """Regions a step."""
    temperature: float = 1.0
    languages: tuple[str, ...] = (ENGLISH,)
    """Of the labels' names."""
    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "steps")
        rates = ("temperature", "learning_rate")
        validate_fields(self, lambda value: value > 0, "a number above 0", *rates)


@dataclass(frozen=True)
class ObjectiveWeights:
    """Relative frequencies of the objectives, those of the published code; 0 leaves one out."""

    itm: float = 9
    mlm: float = 12
    mrtm: float = 9
    vtlm: float = 3

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "itm", "mlm", "mrtm", "vtlm")
        if not any(as_plain(self).values()):
            raise PolyglanceError("a mixture needs at least one objective above 0")


@dataclass(frozen=True)
class Pretraining:
    """The second stage: one objective a step, drawn from the mixture."""

    batch: int = 256
    """Pairs a step, of whichever objective."""
    mixture: ObjectiveWeights = field(default_factory=ObjectiveWeights)
    languages: tuple[str, ...] | None = None
    """Of all captions, those of VTLM and TLM included; None for all."""
    pivot: Literal["image", "english"] = "image"
    """``english``: images with English captions only, and other languages with English but
    without images, any words masked (TLM), as in Table 4."""
    masked: float = 0.8
    """The share of chosen words that become the mask; 1 in the paper's text."""
    random: float = 0.1
    """The share that become another word, as in BERT and the published code; 0 in the text."""
    mask_at_least_one: bool | None = None
    """Mask the first word of a caption, and any region of an image, in which chance masks none, as
    the published code does: 18.5 % of the words of short captions instead of 15 %. None for true
    in the reference variant and false in the paper's."""
    co_masked: float = 1.0
    """The share of VTLM's pairs with aligned words masked together; 0.5 in the published code."""
    tlm_positions: TLMPositions | None = None
    """Positions of a translation without an image (``pivot: english``): ``restart`` as in XLM, or
    ``continue``; None for ``restart`` in the paper's variant and ``continue`` in the reference."""
    itm_only_steps: int = 0
    """Steps of ITM alone, before the mixture: see `polyglance.recipes.stages`."""
    steps: int = 1000
    learning_rate: float = 4e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 2, "2 or more", "batch")
        validate_fields(self, lambda value: value >= 1, "1 or more", "steps")
        validate_fields(self, lambda value: value >= 0, "0 or more", "itm_only_steps")
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "co_masked")

    def masks_at_least_one(self, variant: Variant) -> bool:
        """Return whether at least one word or region of each item is chosen."""
        chosen = self.mask_at_least_one
        return variant == "reference" if chosen is None else chosen


@dataclass(frozen=True)
class FineTuning:
    """The third stage: matching pairs are ranked above others."""

    batch: int = 64
    """Matching pairs a step."""
    negatives: int = 1
    """Negatives of each kind (other image, other caption) for each matching pair."""
    margin: float = 0.2
    loss: RetrievalLoss = "triplet"
    """``matching`` classifies pairs with cross-entropy, as M3P does."""
    languages: tuple[str, ...] | None = None
    """Of the captions: ``[en]``, any other, or None for all."""
    language_alpha: float = 1.0
    """A language's probability is proportional to its captions to this power: 1 treats all
    captions alike, as merged data do; 0 all languages."""
    epochs: float | None = None
    """How often to go through the captions of these languages, which sets the steps in place of
    ``loop.steps``: the same for one language and for all."""
    hard_negative_pool: int = 0
    """Sample negatives from so many most similar images; 0 for from all."""
    hard_negative_warmup: float = 0.5
    """The share of steps over which negatives go from any images to hard ones alone."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "negatives")
        numbers = ("hard_negative_pool", "margin", "language_alpha")
        validate_fields(self, lambda value: value >= 0, "0 or more", *numbers)
        validate_fields(self, lambda value: value is None or value > 0, "above 0", "epochs")
        share = "hard_negative_warmup"
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", share)


@dataclass(frozen=True)
class UC2Recipe(CrossEncoderRecipe):
    """A training run of UC2."""

    variant: Variant = "paper"
    max_text_tokens: int = 60
    labels: LabelNamesConfig = field(default_factory=LabelNamesConfig)
    translations: Translations = field(default_factory=Translations)
    early_adaptation: EarlyAdaptationConfig | None = field(default_factory=EarlyAdaptationConfig)
    pretraining: Pretraining | None = field(default_factory=Pretraining)
    fine_tuning: FineTuning | None = field(default_factory=FineTuning)
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=1e-4, betas=(0.9, 0.98))
    )
    translate_test: str | None = None
    """Also evaluate with test captions translated into English by: a model folder of `polyglance
    data translate` or dictionaries, inside the data folder, with {source} and {target} for
    language codes; or ``apertium``."""

    @property
    def uses_label_names(self) -> bool:
        """Whether any stage needs the names of labels."""
        stage = self.pretraining
        return self.early_adaptation is not None or (stage is not None and stage.mixture.mrtm > 0)

    @property
    def predicts_words(self) -> bool:
        """Whether pre-training has an objective over the vocabulary: MLM, MRTM or VTLM."""
        mixture = None if self.pretraining is None else self.pretraining.mixture
        return mixture is not None and mixture.mlm + mixture.mrtm + mixture.vtlm > 0

    @property
    def files(self) -> tuple[str, ...]:
        """Manifests, and label names and texts for the word aligner where they are used."""
        stage = self.pretraining
        labels = [self.labels.names] if self.uses_label_names and self.labels.names else []
        texts = self.translations.texts if stage and stage.mixture.vtlm > 0 else ()
        return (*super().files, *labels, *(text.manifest for text in texts))

    def check_trainable(self) -> None:
        """Refuse English among the languages that it is paired with."""
        if ENGLISH in (self.translations.languages or ()):
            raise PolyglanceError(
                "translations.languages are those besides English: leave en out of them"
            )

    def missing_files(self, data: Path) -> list[str]:
        """Name missing files, and dictionaries that label names of some language need."""
        missing = super().missing_files(data)
        needed = self.uses_label_names and self.labels.dictionaries is not None
        if needed and not missing_files(data, self.files):
            corpora = (self.train, *self.extra_train)
            records = (record for corpus in corpora for record in read_corpus(corpus, data))
            languages = sorted(set().union(*(record.captions for record in records)))
            missing += missing_dictionaries(self.labels, languages, data)
        return missing
