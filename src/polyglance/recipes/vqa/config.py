"""Settings of visual question answering: questions, answers, and how to train."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyglance.config import validate_fields
from polyglance.cross_encoders.object_tags import ObjectTagsConfig
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import Variant
from polyglance.objectives.vqa import AnswerLoss
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class QuestionFile:
    """Questions about images, inside the data folder; image paths are relative to the file."""

    manifest: str
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""


@dataclass(frozen=True)
class AnswerConfig:
    """Which answers are classes; the paper has 3,129 for VQA v2, and 3,000 in Japanese."""

    max_answers: int = 3000
    """Of each language."""
    min_score: float = 2.0
    """What an answer must have scored in all of training."""
    init_from_text: bool = True
    """Initialise each answer with the text encoder's vector; False for all alike."""
    image_similarity: bool = True
    """Compare answers with the image in a dual encoder's space, if projection heads are given."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "max_answers")
        validate_fields(self, lambda value: value > 0, "a number above 0", "min_score")


@dataclass(frozen=True)
class VQARecipe:
    """A training run of visual question answering."""

    init_from_dual_encoder: str | None = None
    """A dual encoder, by name or folder, whose text encoder, image backbone and projection heads
    to begin with; it is split into RUN/dual_encoder. None for ``encoder``,
    ``image_backbone.backbone`` and ``projection_heads``."""
    encoder: str = "e5-small"
    """A name of `polyglance weights list`, or a folder as transformers saves XLM-R or mBERT."""
    image_backbone: ImageBackboneConfig = field(default_factory=ImageBackboneConfig)
    projection_heads: str | None = None
    """The dual encoder's projection heads, a folder as `polyglance weights split` writes."""
    object_tags: ObjectTagsConfig | None = None
    """Append a detector's object tags to each question; None for none."""
    variant: Variant = "paper"
    initialise_from: str | None = None
    """A UC2 checkpoint, or the folder of a run's stage such as RUN/pretraining, with the same
    encoder, image backbone and variant."""
    dropout: float | None = 0.1
    head_dropout: float = 0.1
    max_text_tokens: int = 40
    train: tuple[QuestionFile, ...] = (QuestionFile("train.jsonl"),)
    test: tuple[QuestionFile, ...] = ()
    held_out: float = 0.05
    """The share of training images that choose the checkpoint; 0 keeps the last one."""
    answers: AnswerConfig = field(default_factory=AnswerConfig)
    loss: AnswerLoss = "binary"
    batch: int = 128
    language_alpha: float = 1.0
    """A language's probability is proportional to its questions to this power: 1 treats all
    questions alike, 0 all languages."""
    head_lr_multiplier: float = 1.0
    """Learning-rate multiplier for newly initialised layers."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=5e-5, betas=(0.9, 0.98))
    )

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        validate_fields(self, lambda value: value > 0, "a number above 0", "head_lr_multiplier")
        shares = ("held_out", "head_dropout")
        validate_fields(self, lambda value: 0 <= value < 1, "a share below 1", *shares)
        alpha = "language_alpha"
        validate_fields(self, lambda value: 0 <= value <= 1, "a number from 0 to 1", alpha)
        if not self.train:
            raise PolyglanceError("train names no questions: add a file")
