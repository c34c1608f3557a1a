"""M3P's settings: its stages and the data that they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.languages import is_language_code
from polyglance.models.cross_encoder import Variant
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe, TextFile
from polyglance.recipes.cross_encoder.data import ENGLISH
from polyglance.recipes.m3p.tasks import TASK_NAMES, MCTaskName
from polyglance.recipes.run_folder import name_missing
from polyglance.text.dictionaries import dictionary_exists


@dataclass(frozen=True)
class CodeSwitching:
    """How captions are code-switched (section 3.1)."""

    dictionaries: str = "dictionaries/{source}-{target}.tsv"
    """Files inside the data folder, with {source} and {target} for language codes."""
    languages: tuple[str, ...] | None = ()
    """The languages that English words are replaced by; None for all that have a dictionary."""
    alpha: float = 0.5
    """The share of captions that are code-switched."""
    beta: float = 0.5
    """The share of their words that are replaced."""
    rank_exponent: float = 2.0
    """The n-th translation of a word is sampled in proportion to n to minus this power; 0 samples
    all equally often, as in the paper."""
    one_word_per_sentence: bool = False
    """Replace one word a sentence instead, as the published code pre-trains."""
    variants: int = 4
    """Code-switched variants of each caption."""
    refresh: int = 2000
    """Steps after which the variants are replaced; 0 for never."""

    def file(self, language: str) -> str:
        """Return the dictionary from English to a language, inside the data folder."""
        return self.dictionaries.replace("{source}", ENGLISH).replace("{target}", language)

    def languages_in(self, data: Path) -> tuple[str, ...]:
        """Return the languages to switch to, all with a dictionary where none are named."""
        if self.languages is not None:
            return self.languages
        start, _, end = self.file("\0").partition("\0")
        found = (path.relative_to(data).as_posix() for path in sorted(data.glob(self.file("*"))))
        codes = (name.removeprefix(start).removesuffix(end) for name in found)
        return tuple(code for code in codes if is_language_code(code) and code != ENGLISH)


@dataclass(frozen=True)
class Pretraining:
    """The first stage: English pairs, some code-switched, and text in all languages."""

    batch: int = 256
    """Pairs of each task a step."""
    tasks: tuple[MCTaskName, ...] = TASK_NAMES
    text_batch: int = 256
    """Sentences of xMLM a step; 0 leaves it out."""
    negatives: int = 1
    code_switched: bool = True
    """Whether captions are code-switched (MCT)."""
    mask_at_least_one: bool | None = None
    """Predict the first word of a caption and the last region of an image, in which chance chooses
    none, as the published code does. None for true in the reference variant and false in the
    paper's."""
    skip_background: bool = False
    """Never choose regions of class 0 in MC-MRM, as the published code: true where the store's
    class 0 is the background, as in M3P's own files."""
    itm_only_steps: int = 0
    """Steps of MC-VLM alone, before all else: see `polyglance.recipes.stages`."""
    steps: int = 1000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        counts = ("batch", "negatives", "steps")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        optional = ("text_batch", "itm_only_steps", "warmup")
        validate_fields(self, lambda value: value >= 0, "0 or more", *optional)
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")

    def masks_at_least_one(self, variant: Variant) -> bool:
        """Return whether at least one word or region of each item is chosen."""
        chosen = self.mask_at_least_one
        return variant == "reference" if chosen is None else chosen


@dataclass(frozen=True)
class FineTuning:
    """The second stage: MC-VLM alone, with three negatives for each matching pair."""

    batch: int = 128
    negatives: int = 3
    languages: tuple[str, ...] | None = None
    """Of the captions; None for all that the corpus has."""
    language_alpha: float = 1.0
    """A language's probability is proportional to its captions to this power: 1 treats all
    captions alike, as merged data do; 0 all languages."""
    code_switched: bool = False
    """Fine-tune on code-switched English instead (Table 6)."""
    epochs: float | None = None
    """How often to go through the captions of these languages, which sets the steps in place of
    ``loop.steps``: the same for one language and for all."""
    hard_negative_pool: int = 0
    """Sample negatives from so many most similar images; 0 for from all, as in the paper."""
    hard_negative_warmup: float = 0.5
    """The share of steps over which negatives go from any images to hard ones alone."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "negatives")
        numbers = ("hard_negative_pool", "language_alpha")
        validate_fields(self, lambda value: value >= 0, "0 or more", *numbers)
        validate_fields(self, lambda value: value is None or value > 0, "above 0", "epochs")
        share = "hard_negative_warmup"
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", share)


@dataclass(frozen=True)
class M3PRecipe(CrossEncoderRecipe):
    """A training run of M3P."""

    variant: Variant = "paper"
    labels: int = 1000
    """Classes of the store's labels: ImageNet's for features of our own extraction."""
    texts: tuple[TextFile, ...] = ()
    """The corpus of xMLM."""
    code_switching: CodeSwitching = field(default_factory=CodeSwitching)
    pretraining: Pretraining | None = field(default_factory=Pretraining)
    fine_tuning: FineTuning | None = field(default_factory=FineTuning)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, lambda value: value >= 1, "1 or more", "labels")

    @property
    def files(self) -> tuple[str, ...]:
        """Manifests and texts."""
        return (*super().files, *(text.manifest for text in self.texts))

    @property
    def predicts_words(self) -> bool:
        """Whether pre-training has xMLM or MC-MLM."""
        stage = self.pretraining
        return stage is not None and (stage.text_batch > 0 or "mc_mlm" in stage.tasks)

    @property
    def predicts_labels(self) -> bool:
        """Whether pre-training has MC-MRM."""
        return self.pretraining is not None and "mc_mrm" in self.pretraining.tasks

    @property
    def uses_code_switching(self) -> bool:
        """Whether any stage reads code-switched captions."""
        return any(stage.code_switched for stage in (self.pretraining, self.fine_tuning) if stage)

    def check_trainable(self) -> None:
        """Refuse to code-switch captions in other languages than English."""
        stage = self.fine_tuning
        if stage is not None and stage.code_switched and stage.languages not in (None, (ENGLISH,)):
            raise PolyglanceError(
                "fine_tuning.code_switched takes English captions: leave fine_tuning.languages out"
            )

    def missing_files(self, data: Path) -> list[str]:
        """Name missing files, and dictionaries if captions are code-switched."""
        languages = self.code_switching.languages_in(data) if self.uses_code_switching else ()
        paths = [data / self.code_switching.file(language) for language in languages]
        return super().missing_files(data) + name_missing(
            [path for path in paths if not dictionary_exists(path)],
            "there is no dictionary; learn one from translations with 'polyglance text align"
            " --dictionary', or leave its language out of code_switching.languages",
        )
