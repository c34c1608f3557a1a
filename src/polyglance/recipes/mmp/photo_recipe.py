"""The settings of MMP on captioned pictures: corpora, shape and training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from polyglance.config import check
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.mmp.compressing import (
    Compression,
)
from polyglance.training.loop import LoopConfig

_OR_OUT = "a number above 0, or take the corpus out"


@dataclass(frozen=True)
class PictureCorpus:
    """Captioned pictures to train on."""

    manifest: str
    more_captions: str | None = None
    """A manifest of the same pictures with captions to train on beside theirs."""
    languages: tuple[str, ...] | None = None
    """None for all that it has."""
    batch: int = 512
    captions_each: int = 2
    weight: float = 1.0
    hold_out: int = 0
    """So many of its last pictures are kept from training, to measure on."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch", "captions_each")
        check(self, lambda value: value > 0, _OR_OUT, "weight")


@dataclass(frozen=True)
class TextCorpus:
    """Sentences with translations to train on."""

    manifest: str
    format: str = "jsonl"
    """The format of the file, as ``polyglance data formats`` lists them."""
    languages: tuple[str, ...] | None = None
    """None for all that it has."""
    batch: int = 512
    weight: float = 1.0
    temperature: float = 0.1

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: value > 0, _OR_OUT, "weight")
        check(self, lambda value: value > 0, "a number above 0", "temperature")


@dataclass(frozen=True)
class ClassNaming:
    """Names of the classes that the backbone was trained to tell apart: see `NamedClasses`."""

    words: str | None = None
    """A manifest of words, for names in more languages than the labels have."""
    batch: int = 128
    weight: float = 0.2
    english: float = 4.0
    """How often an English name is drawn for one of any other language."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "batch")
        check(self, lambda value: value > 0, "a number above 0", "weight", "english")


@dataclass(frozen=True)
class PhotoRecipe:
    """Everything that makes a run; a file of these names is all that is needed to repeat it."""

    encoder: str = "e5-small"
    backbone: str = "efficientnet-lite2"
    size: int = 224
    width: int = 384
    pooling_layers: int = 2
    pooling_heads: int = 6
    text_pooling: Literal["transformer", "mean"] = "transformer"
    dropout: float = 0.1
    text_layer: int | None = None
    frozen_layers: int = 0
    longest: int = 40
    encoder_rate: float = 0.3
    backbone_rate: float = 0.1
    smallest_crop: float = 0.5
    pictures: tuple[PictureCorpus, ...] = ()
    texts: tuple[TextCorpus, ...] = ()
    class_names: ClassNaming | None = None
    """Whether the names of what the backbone tells apart are learned; None for not."""
    validation: str = "flickr8k/val.jsonl"
    test: str | None = None
    objective: MMPObjective = field(default_factory=MMPObjective)
    loop: LoopConfig = field(default_factory=LoopConfig)
    compression: Compression | None = None
    """How the trained model is made small; None to leave it as it is."""

    def __post_init__(self) -> None:
        check(self, lambda value: value >= 1, "1 or more", "size", "width", "longest")
