"""Settings of MMP: `MMPRecipe` trains on extracted features, `MMPPhotoRecipe` on photos."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPObjective
from polyglance.recipes.image_sources import PixelStreaming
from polyglance.training.loop import LoopConfig

BACKBONE_MODULE = "image_backbone"
"""Name of the image backbone in a model's state dict."""

_WEIGHT = "a number above 0, or remove the corpus"


@dataclass(frozen=True)
class ClipSampling:
    """How clips are cut out of videos: lengths are drawn evenly between two bounds.

    Equal bounds give clips of one length.
    """

    min_seconds: float = 1.0
    max_seconds: float = 128.0
    """At most 128 features a clip, at one a second (appendix C)."""
    features_per_second: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.min_seconds <= self.max_seconds or self.features_per_second <= 0:
            raise PolyglanceError(
                "min_seconds, max_seconds and features_per_second must be above 0, and min_seconds"
                " at most max_seconds"
            )


@dataclass(frozen=True)
class FeatureSplit:
    """Clips or images with captions, and their features; paths are inside the data folder."""

    manifest: str
    features: str | tuple[str, ...]
    """A feature store or a ``.npz``; several are concatenated, vector by vector."""
    split: str | None = None
    """Only records of this split, where a manifest holds several."""
    names: str | None = None
    """Only clips or images on this list: a text file, an ``.npy`` of names, or a ``.csv``."""
    translations: str | None = None
    """A manifest with captions of the same records in other languages (translate-train)."""
    translation_languages: tuple[str, ...] | None = None
    """Languages taken from the translations; None for all."""
    all_captions: str | None = None
    """A manifest whose captions of the same clips replace those listed: MSR-VTT's 20-caption
    protocol, in place of one query a clip. The report calls it ``test_all_captions``."""


@dataclass(frozen=True)
class TrainingCorpus(FeatureSplit):
    """A corpus of extracted features to train on."""

    batch: int = 128
    weight: float = 1.0
    """Weight of its losses beside those of other corpora in the same step."""
    max_records: int | None = None
    """Train on so many of its clips or images that have features and captions in the languages
    trained on, drawn at random, the same with every seed; a smaller number draws some of those of
    a larger one. None for all."""
    subtitles: ClipSampling | None = None
    """Pre-training (section 5.3): clips cut out of videos, with subtitles instead of captions."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "max_records")
        if self.subtitles is not None and self.max_records is not None:
            raise PolyglanceError("max_records is for captions, not subtitles: leave one out")
        validate_fields(self, lambda value: value > 0, _WEIGHT, "weight")


@dataclass(frozen=True)
class MMPRecipe:
    """MMP on extracted features; defaults are the paper's (section 5.2, appendix C)."""

    encoder: str = "e5-small"
    """Name of known weights, or a folder in the format of transformers (XLM-R, mBERT)."""
    text_layer: int | None = 12
    frozen_layers: int = 9
    width: int = 1024
    pooling_layers: int = 2
    visual_pooling_layers: int | None = None
    """Depth of the visual pooling head where it differs (Table 2); None for the same."""
    pooling_heads: int = 4
    share_pooling: bool = False
    """One pooling head for text and visuals (the starred row of Table 2)."""
    dropout: float = 0.3
    encoder_dropout: float | None = None
    """None for the dropout that the encoder was pre-trained with."""
    encoder_lr_multiplier: float = 1.0
    """Learning-rate multiplier of the text encoder."""
    visual_lr_multiplier: float = 1.0
    """Learning-rate multiplier of the linear layer on features; 2 in the image variant
    (section 5.6)."""
    initialise_from: str | None = None
    """Run folder or checkpoint to start from, such as a pre-trained one."""
    max_text_tokens: int = 96
    """Maximum number of sub-words of a caption."""
    max_visual_tokens: int = 36
    """Maximum number of seconds of a clip or regions of an image."""
    prepend_global: bool = False
    """Put an image's global vector, which a feature store has, before the others."""
    languages: tuple[str, ...] | None = None
    """Languages to train on; None for all, ``[en]`` for English only."""
    captions_per_image: int = 1
    """2 draws captions in two languages for each clip or image: equations 4 to 6."""
    corpora: tuple[TrainingCorpus, ...] = ()
    validation: FeatureSplit | None = None
    """Selects the checkpoint; None keeps the last one."""
    test: FeatureSplit | None = None
    extra_tests: dict[str, FeatureSplit] = field(default_factory=dict)
    """Further test sets by name, such as another dataset's (Table 12)."""
    objective: MMPObjective = field(default_factory=MMPObjective)
    loop: LoopConfig = field(default_factory=LoopConfig)

    def __post_init__(self) -> None:
        counts = ("captions_per_image", "max_visual_tokens")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        multipliers = ("encoder_lr_multiplier", "visual_lr_multiplier")
        validate_fields(self, lambda value: value >= 0, "0 or more", *multipliers)
        rates = ("dropout", "encoder_dropout")
        validate_fields(
            self, lambda value: 0 <= value < 1, "a number from 0 to less than 1", *rates
        )


@dataclass(frozen=True)
class ImageCorpus:
    """Captioned images to train on."""

    manifest: str
    tars: str | None = None
    """Tars with the images (WebDataset's layout, as 'polyglance data shard' writes): a folder, a
    tar, a pattern such as ``coco/train-{000000..000099}.tar``, or an address that fsspec
    understands. None for files beside the manifest."""
    extra_captions: str | None = None
    """A manifest of the same images with further captions to train on."""
    languages: tuple[str, ...] | None = None
    """None for all."""
    language_weights: dict[str, float] = field(default_factory=dict)
    """How often captions in a language are drawn where those in others are drawn once, such as
    ``{en: 4}``."""
    batch: int = 512
    captions_per_image: int = 2
    weight: float = 1.0
    held_out: int = 0
    """Number of images at the end of the manifest that are held out for validation."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "captions_per_image")
        validate_fields(self, lambda value: value > 0, _WEIGHT, "weight")
        validate_fields(
            self,
            lambda weights: all(weight > 0 for weight in weights.values()),
            "numbers above 0; leave a language out with languages",
            "language_weights",
        )


@dataclass(frozen=True)
class TextCorpus:
    """Sentences with translations to train on."""

    manifest: str
    format: str = "jsonl"
    """Format of the file, one of those that ``polyglance data formats`` lists."""
    languages: tuple[str, ...] | None = None
    """None for all."""
    batch: int = 512
    weight: float = 1.0
    temperature: float = 0.1
    in_turns: bool = False
    """Take turns with other small tasks, one of them a step, instead of being in every step."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        validate_fields(self, lambda value: value > 0, _WEIGHT, "weight")
        validate_fields(self, lambda value: value > 0, "a number above 0", "temperature")


@dataclass(frozen=True)
class ClassNameConfig:
    """Learning the names of the image backbone's classes: see `ClassNameTask`."""

    words: str | None = None
    """A manifest of words, for names in more languages than the labels have."""
    batch: int = 128
    weight: float = 0.2
    english_weight: float = 4.0
    """How much more often an English name is drawn than one of another language."""
    in_turns: bool = False
    """Take turns with other small tasks, one of them a step, instead of being in every step."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        validate_fields(
            self, lambda value: value > 0, "a number above 0", "weight", "english_weight"
        )


@dataclass(frozen=True)
class LabelNameConfig:
    """Learning the names of labels that people gave pictures: see `LabelNameTask`."""

    languages: tuple[str, ...] | None = None
    """Of the names; None for all that COCO's classes have names in."""
    batch: int = 256
    weight: float = 0.3
    temperature: float = 0.05
    in_turns: bool = False
    """Take turns with other small tasks, one of them a step, instead of being in every step."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch")
        validate_fields(self, lambda value: value > 0, "a number above 0", "weight", "temperature")


@dataclass(frozen=True)
class CompressionConfig:
    """How small the trained model becomes, and how long it is distilled afterwards."""

    name: str = "model"
    """Name of the exported model."""
    parts: int = 32
    """Bytes per sub-word in the embedding table."""
    finer_parts: int = 32
    """Additional bytes for each frequent sub-word."""
    frequent: int = 100_000
    """Number of frequent sub-words."""
    steps: int = 400
    learning_rate: float = 3e-4
    batch: int = 512
    view_sizes: tuple[int, ...] = ()
    """Sides in pixels at which the teacher sees each whole image, as it is and mirrored: the
    small model learns the mean vector of these views from one view. Empty for the teacher's
    vector of the same crop."""
    min_crop_area: float = 0.8
    """Smallest share of an image that the small model sees where ``view_sizes`` are given."""


@dataclass(frozen=True)
class MMPPhotoRecipe:
    """MMP's image variant on photos, with the image backbone trained along."""

    encoder: str = "e5-small"
    image_backbone: str = "efficientnet-lite2"
    """A name of EfficientNet-Lite, or a folder of a vision model of transformers: ViT, ConvNeXt,
    DINOv2, SigLIP ..., with its ``preprocessor_config.json``."""
    image_size: int = 224
    width: int = 384
    pooling_layers: int = 2
    pooling_heads: int = 6
    text_pooling: Literal["transformer", "mean"] = "transformer"
    dropout: float = 0.1
    text_layer: int | None = None
    frozen_layers: int = 0
    max_text_tokens: int = 40
    encoder_lr_multiplier: float = 0.3
    backbone_lr_multiplier: float = 0.1
    """Learning-rate multiplier of the image backbone; 0 leaves it frozen."""
    initialise_from: str | None = None
    """A compressed model of the same architecture, by name or folder, to continue from; None for
    the pretrained encoder and backbone alone."""
    average_with: tuple[str, ...] = ()
    """Further models like it: training begins with the mean of all their weights ("model soups",
    https://arxiv.org/abs/2203.05482), which works for models that continue the same one."""
    min_crop_area: float = 0.5
    early_image_size: int | None = None
    """Pixels per side of images in the first steps, which are the faster for it; None for
    ``image_size``."""
    early_share: float = 0.6
    """Share of the steps that are early."""
    image_corpora: tuple[ImageCorpus, ...] = ()
    text_corpora: tuple[TextCorpus, ...] = ()
    class_names: ClassNameConfig | None = None
    """Learn the names of the image backbone's classes; None to skip this."""
    label_names: LabelNameConfig | None = None
    """Learn the names of the pictures' labels, COCO's classes; None to skip this."""
    validation: str = "flickr8k/val.jsonl"
    test: str | None = None
    objective: MMPObjective = field(default_factory=MMPObjective)
    loop: LoopConfig = field(default_factory=LoopConfig)
    streaming: PixelStreaming = field(default_factory=PixelStreaming)
    compression: CompressionConfig | None = None
    """Compress and export the trained model; None to leave it as it is."""

    def __post_init__(self) -> None:
        sizes = ("image_size", "early_image_size", "width", "max_text_tokens")
        validate_fields(self, lambda value: value >= 1, "1 or more", *sizes)
        validate_fields(self, lambda value: 0 <= value <= 1, "a share", "early_share")
        if self.average_with and self.initialise_from is None:
            raise PolyglanceError(
                "average_with adds models to that of initialise_from: name one there as well"
            )
