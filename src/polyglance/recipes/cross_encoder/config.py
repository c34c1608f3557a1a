"""Settings that UC2, M3P and any other cross-encoder have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from polyglance.config import validate_fields
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.recipes.run_folder import missing_files, name_missing
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class CaptionFile:
    """Further captions of the same images, inside the data folder."""

    manifest: str
    """A dataset's file or folder, in its published format."""
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""
    splits: tuple[str, ...] | None = None
    """Only images of these splits of the file; None for all."""
    languages: tuple[str, ...] | None = None
    """Only captions in these languages; None for all."""
    language: str | None = None
    """Of captions whose file names none, in place of the format's own."""
    images: str = ""
    """The folder of the images, put before their names; relative to that of the manifest."""


@dataclass(frozen=True)
class CaptionedImages:
    """Images with captions, and a feature store of their regions, inside the data folder."""

    manifest: str
    """A manifest or, with ``format``, a dataset's own file or folder."""
    features: str = ""
    """Not read by a recipe with an image backbone."""
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""
    splits: tuple[str, ...] | None = None
    """Only images of these splits, such as ``[train, restval]``; None for all."""
    languages: tuple[str, ...] | None = None
    """Only captions in these languages; None for all."""
    language: str | None = None
    """Of captions whose file names none, in place of the format's own."""
    images: str = ""
    """The folder of the images, put before their names; relative to that of the manifest."""
    merge: tuple[CaptionFile, ...] = ()
    """Captions of the same images from other files, matched by id or else by file name."""
    tars: str | None = None
    """Tars with the images, for a recipe with an image backbone: a folder, a tar, a pattern such
    as ``train-{000000..000099}.tar``, or an address; None for files beside the manifest."""
    skip_missing: bool = False
    """Leave out images without stored regions, such as the dead links of Conceptual Captions."""
    fold_images: int | None = None
    """Evaluate in folds of so many images and average the recalls: 1,000 for the 1K protocol of
    MSCOCO on its 5,000 test images. None for all at once."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 2, "2 or more", "fold_images")


@dataclass(frozen=True)
class TextFile:
    """Sentences without images."""

    manifest: str
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""


@dataclass(frozen=True)
class ContrastiveStage:
    """A first stage that encodes images and captions separately, with a contrastive loss.

    See `polyglance.recipes.cross_encoder.contrastive`.
    """

    batch: int = 512
    """Images a step, each with one caption."""
    temperature: float = 0.05
    steps: int = 1000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 2, "2 or more", "batch")
        validate_fields(self, lambda value: value >= 1, "1 or more", "steps")
        rates = ("temperature", "learning_rate")
        validate_fields(self, lambda value: value > 0, "a number above 0", *rates)


@dataclass(frozen=True)
class WordHeadStage:
    """A first stage that trains the head for masked words on captions without images.

    See `polyglance.recipes.cross_encoder.word_head`.
    """

    batch: int = 256
    """Captions a step."""
    steps: int = 500
    learning_rate: float = 1e-3
    warmup: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "steps")
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")


@dataclass(frozen=True)
class DistillationStage:
    """A stage before fine-tuning that learns a dual encoder's scores of pairs.

    See `polyglance.recipes.cross_encoder.distillation`.
    """

    model: str | None = None
    """The teacher: a model folder of MMP, or a name; None for the default model."""
    texts: tuple[TextFile, ...] = ()
    """Sentences besides the training captions; they need no image."""
    batch: int = 512
    near_share: float = 0.7
    """The share of pairs that the teacher finds similar."""
    nearest: int = 3000
    """How many sentences of each image count as similar; nearer ones are sampled more often."""
    steps: int = 2000
    learning_rate: float = 1e-4
    warmup: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "nearest", "steps")
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", "near_share")
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")


@dataclass(frozen=True)
class RerankingConfig:
    """Evaluation by re-ranking a dual encoder's candidates."""

    dual_embeddings: str
    """The dual encoder's embeddings of the test split, a folder inside the data folder:
    ``pictures.npy`` and a file a language, as `polyglance evaluate` takes them."""
    validation_embeddings: str | None = None
    """The same for the validation split, on which ``dual_weight`` is tuned."""
    candidates: int = 50
    """How many are re-ranked."""
    dual_weight: float = 0.0
    """Weight of the dual encoder's own score, where validation does not tune it: see
    `polyglance.evaluation.pair_scores.Candidates`."""
    projection_heads: str | None = None
    """The dual encoder's projection heads, a folder as `polyglance weights split` writes beside
    the image backbone (not inside the data folder). With them, candidates are also encoded with
    test-time augmentation and compared with the dual encoder's vector of the caption."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "candidates")

    def missing_files(self, data: Path) -> list[str]:
        """Name the embeddings that do not exist."""
        names = (self.dual_embeddings, self.validation_embeddings)
        folders = [data / name for name in names if name is not None]
        return name_missing(
            [folder for folder in folders if not folder.is_dir()],
            "there are no embeddings of the dual encoder; make them with"
            " python -m polyglance.reproduce.dual_embeddings, or set reranking to null",
        )


@dataclass(frozen=True)
class CrossEncoderRecipe:
    """Initial weights, data, stages and evaluation of a cross-encoder."""

    init_from_dual_encoder: str | None = None
    """A dual encoder, by name or folder, whose text encoder, image backbone and projection heads
    to begin with; it is split into RUN/dual_encoder. None for ``encoder``,
    ``image_backbone.backbone`` and ``reranking.projection_heads``."""
    encoder: str = "e5-small"
    """A name of `polyglance weights list`, or a folder as transformers saves XLM-R or mBERT."""
    dropout: float | None = 0.1
    max_text_tokens: int = 64
    max_regions: int = 50
    prepend_global: bool = True
    """Use the whole image's vector as first region."""
    image_backbone: ImageBackboneConfig | None = None
    """Compute regions from pixels, without labels; None to read stored features."""
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    """How training corpora larger than memory are read."""
    train: CaptionedImages = field(
        default_factory=lambda: CaptionedImages("train.jsonl", "features")
    )
    extra_train: tuple[CaptionedImages, ...] = ()
    """Further training images."""
    validation: CaptionedImages | None = None
    test: CaptionedImages | None = None
    extra_validation: tuple[CaptionedImages, ...] = ()
    """Further validation sets; each language's score is the mean over the sets that have it."""
    extra_test: tuple[CaptionedImages, ...] = ()
    """Further test sets, such as COCO-CN's for Chinese; likewise."""
    word_head: WordHeadStage | None = None
    """Used if masked words are predicted and the encoder is no masked language model, whose own
    head would be loaded; None to begin such an encoder with an untrained head."""
    contrastive_stage: ContrastiveStage | None = None
    """None, as in the papers, to leave it out."""
    distillation: DistillationStage | None = None
    """None, as in the papers, to leave it out."""
    initialise_from: str | None = None
    """A checkpoint, the folder of another run's stage such as RUN/pretraining, or the file of a
    published checkpoint (see `polyglance.recipes.cross_encoder.build`). M3P's languages may
    differ: those that both know keep their embeddings."""
    allow_missing_heads: bool = False
    """Start from a published checkpoint that lacks heads (pooler, matching, words, regions), as
    fine-tuned ones do; they are newly initialised. Otherwise that is an error."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=5e-5, betas=(0.9, 0.98))
    )
    """Of fine-tuning; the other stages have their own steps and learning rate."""
    head_lr_multiplier: float = 1.0
    """Learning-rate multiplier for newly initialised layers."""
    validation_images: int = 200
    """Validation images that choose the checkpoint, with one caption in every language."""
    test_images: int | None = None
    """Test images; None for all."""
    all_pairs: bool = True
    """Evaluate by scoring every pair of the test split."""
    reranking: RerankingConfig | None = None
    """Evaluate by re-ranking a dual encoder's candidates; None to leave it out."""

    def __post_init__(self) -> None:
        counts = ("max_regions", "validation_images", "test_images")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        validate_fields(self, lambda value: value > 0, "a number above 0", "head_lr_multiplier")
        if self.init_from_dual_encoder is not None and self.image_backbone is None:
            raise PolyglanceError(
                "init_from_dual_encoder brings its own image backbone: configure it under"
                " image_backbone"
            )
        folds = self.test is not None and self.test.fold_images
        if self.reranking is not None and (self.extra_test or folds):
            raise PolyglanceError(
                "reranking has embeddings of one test set: leave out extra_test and fold_images,"
                " or set reranking to null"
            )
        heads = self.reranking is not None and self.reranking.projection_heads
        if heads and self.image_backbone is None:
            raise PolyglanceError(
                "reranking.projection_heads needs image_backbone, the dual encoder's own"
            )

    @property
    def image_files(self) -> tuple[CaptionedImages, ...]:
        """All splits that the recipe names."""
        splits = (self.train, *self.extra_train, self.validation, self.test)
        further = (*self.extra_validation, *self.extra_test)
        return tuple(split for split in (*splits, *further) if split is not None)

    @property
    def files(self) -> tuple[str, ...]:
        """All files inside the data folder that training reads."""
        merged = (file.manifest for split in self.image_files for file in split.merge)
        return (*(split.manifest for split in self.image_files), *merged)

    @property
    def predicts_words(self) -> bool:
        """Whether any stage predicts masked words."""
        return False

    def check_trainable(self) -> None:
        """Refuse contradictory settings; only training does, old runs with them still open."""

    def missing_files(self, data: Path) -> list[str]:
        """Name what training needs and the data folder lacks, one sentence for each kind."""
        stores = {split.features for split in self.image_files if self.image_backbone is None}
        stores = {name for name in stores if "://" not in name}
        missing = missing_files(data, self.files) + name_missing(
            [data / name for name in sorted(stores) if not (data / name / "store.json").is_file()],
            "there is no feature store; make it with 'polyglance features extract', or import a"
            " detector's regions with 'polyglance features regions', as the recipe's first lines"
            " say",
        )
        if self.reranking is not None:
            missing += self.reranking.missing_files(data)
        return missing
