"""The settings of M3P: its stages, and what they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.models.m3p import Layout
from polyglance.recipes.common import not_there
from polyglance.recipes.pairs.recipe import PairRecipe
from polyglance.recipes.pairs.region_splits import ENGLISH, Sentences
from polyglance.text.dictionaries import dictionary_is_there
from polyglance.training.m3p_tasks import (
    PairTask,
)


@dataclass(frozen=True)
class CodeSwitching:
    """How captions are code-switched (section 3.1)."""

    dictionaries: str = "dictionaries/{source}-{target}.tsv"
    """Files inside the data folder, with {source} and {target} for the codes of languages."""
    languages: tuple[str, ...] = ()
    """Those that English words are switched to."""
    alpha: float = 0.5
    """The share of captions that are switched."""
    beta: float = 0.5
    """The share of words that are, in those."""
    preference: float = 2.0
    """For the first translations of a word; 0 draws evenly among all, as the paper does."""
    one_a_sentence: bool = False
    """One word a sentence instead, as the published code pre-trains."""
    variants: int = 4
    refresh: int = 2000

    def file(self, language: str) -> str:
        """The dictionary from English to a language, inside the data folder."""
        return self.dictionaries.replace("{source}", ENGLISH).replace("{target}", language)


@dataclass(frozen=True)
class Pretraining:
    """The first stage: English pairs, some code-switched, and text in all languages."""

    batch: int = 256
    """Pairs of each task a step."""
    tasks: tuple[PairTask, ...] = ("words", "regions", "matching")
    text_batch: int = 256
    """Sentences of xMLM a step; 0 leaves it out."""
    negatives: int = 1
    switched: bool = True
    """Whether captions are code-switched (MCT)."""
    matching_first: int = 0
    """Steps of matching alone, before all else: see `polyglance.recipes.stages`."""
    steps: int = 1000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "negatives", "steps")
        check(self, lambda value: value >= 0, "0 or more", "text_batch", "matching_first", "warmup")
        check(self, lambda value: value > 0, "a number above 0", "learning_rate")


@dataclass(frozen=True)
class FineTuning:
    """The second stage: matching alone, three negatives a positive."""

    batch: int = 128
    negatives: int = 3
    languages: tuple[str, ...] | None = None
    """Of the captions; None for all that the corpus has."""
    smoothing: float = 1.0
    """A language is drawn by the number of its captions to this power: 1 for all captions alike,
    as merged data have them; 0 for all languages."""
    switched: bool = False
    """Fine-tune on code-switched English instead (Table 6)."""
    lookalikes: int = 0
    """Draw negatives among so many pictures that look most alike; 0 for among all, as the paper."""
    easy_share: float = 0.5
    """The share of steps in which negatives go from any pictures to lookalikes alone."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "negatives")
        check(self, lambda value: value >= 0, "0 or more", "lookalikes", "smoothing")
        check(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "easy_share")


@dataclass(frozen=True)
class M3PRecipe(PairRecipe):
    """Everything that makes a run."""

    layout: Layout = "paper"
    labels: int = 1000
    """Classes of the store's labels: ImageNet's for features of our own extraction."""
    texts: tuple[Sentences, ...] = ()
    switching: CodeSwitching = field(default_factory=CodeSwitching)
    pretraining: Pretraining | None = field(default_factory=Pretraining)
    fine_tuning: FineTuning | None = field(default_factory=FineTuning)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, lambda value: value >= 1, "1 or more", "labels")

    @property
    def files(self) -> tuple[str, ...]:
        """Texts too."""
        return (*self.manifests, *(text.manifest for text in self.texts))

    @property
    def switches(self) -> bool:
        """Whether any stage reads code-switched captions."""
        return any(stage.switched for stage in (self.pretraining, self.fine_tuning) if stage)

    def check_trainable(self) -> None:
        """See `PairRecipe.check_trainable`."""
        stage = self.fine_tuning
        if stage is not None and stage.switched and stage.languages not in (None, (ENGLISH,)):
            raise PolyglanceError(
                "fine_tuning.switched is of English captions: leave fine_tuning.languages out"
            )

    def missing(self, data: Path) -> list[str]:
        """Dictionaries too, where words are switched by them."""
        languages = self.switching.languages if self.switches else ()
        paths = [data / self.switching.file(language) for language in languages]
        return super().missing(data) + not_there(
            [path for path in paths if not dictionary_is_there(path)],
            "there is no dictionary; learn one from translations by polyglance text align"
            " --dictionary, or leave its language out of switching.languages",
        )
