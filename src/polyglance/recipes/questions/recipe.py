"""The settings of question answering: what is asked, which answers there are, how to learn."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.models.uc2 import Form
from polyglance.objectives.answering import AnswerLoss
from polyglance.recipes.pairs.region_splits import Eyes
from polyglance.recipes.questions.object_words import ObjectWords
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class Asked:
    """A file of questions about pictures, inside the data folder; pictures lie beside it."""

    manifest: str
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""


@dataclass(frozen=True)
class Answers:
    """Which answers are classes; the paper has 3,129 for VQA v2, and 3,000 in Japanese."""

    most: int = 3000
    """Of each language."""
    least: float = 2.0
    """What an answer must have scored in all of training."""
    meanings: bool = True
    """Let answers begin as what the text encoder makes of them; False for all alike."""
    seen: bool = True
    """Look for answers in the picture, if it is known where the towers meet."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "most")
        check(self, lambda value: value > 0, "a number above 0", "least")


@dataclass(frozen=True)
class VQARecipe:
    """Everything that makes a run."""

    towers: str | None = None
    """A model whose encoder and eyes to begin with, by name or folder; it is taken apart into
    RUN/towers. None for ``encoder``, ``eyes.backbone`` and ``meeting``."""
    encoder: str = "e5-small"
    """Known weights, or a folder as transformers saves XLM-R or mBERT."""
    eyes: Eyes = field(default_factory=Eyes)
    meeting: str | None = None
    """Where the encoder and the eyes meet, a folder such as `polyglance weights unpack` writes;
    None if they never met."""
    objects: ObjectWords | None = None
    """Objects that a detector finds, told behind each question; None for none."""
    form: Form = "paper"
    initialise_from: str | None = None
    """A UC2 checkpoint, or the folder of a stage of a run, such as RUN/pretraining: of the same
    encoder, eyes and form."""
    dropout: float | None = 0.1
    head_dropout: float = 0.1
    longest_text: int = 40
    train: tuple[Asked, ...] = (Asked("train.jsonl"),)
    test: tuple[Asked, ...] = ()
    held_out: float = 0.05
    """The share of training pictures that choose the checkpoint; 0 for the last one."""
    answers: Answers = field(default_factory=Answers)
    loss: AnswerLoss = "binary"
    batch: int = 128
    smoothing: float = 1.0
    """Languages are drawn by their questions to this power: 1 as they are, 0 all alike."""
    new_rate: float = 1.0
    """How many times faster than the encoder all that is new beside it learns."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=5e-5, betas=(0.9, 0.98))
    )

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: value >= 3, "3 or more", "longest_text")
        check(self, lambda value: value > 0, "a number above 0", "new_rate")
        check(self, lambda value: 0 <= value < 1, "a share below 1", "held_out", "head_dropout")
        check(self, lambda value: 0 <= value <= 1, "a number from 0 to 1", "smoothing")
        if not self.train:
            raise PolyglanceError("train names no questions to learn from")
