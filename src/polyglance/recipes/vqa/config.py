"""Settings of visual question answering: questions, answers, and how to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polyglance.config import validate_fields
from polyglance.cross_encoders.object_tags import ObjectTagsConfig
from polyglance.cross_encoders.regions import ImageBackboneConfig
from polyglance.errors import PolyglanceError
from polyglance.models.cross_encoder import Variant
from polyglance.objectives.vqa import AnswerLoss
from polyglance.recipes.cross_encoder.streaming import StreamingConfig
from polyglance.recipes.run_folder import missing_files, name_missing
from polyglance.training.loop import LoopConfig

AnswerRanking = Literal["score", "majority"]


@dataclass(frozen=True)
class QuestionFile:
    """Questions about images, inside the data folder."""

    manifest: str
    """A file or folder; image paths are relative to it."""
    format: str = "jsonl"
    """One of `polyglance.data.readers.FORMATS`."""
    features: str = ""
    """A feature store of the images' regions, which a recipe without an image backbone reads: a
    folder inside the data folder, or an address."""
    tars: str | None = None
    """Tars with the images, for a recipe with an image backbone: a folder, a tar, a pattern such
    as ``train-{000000..000099}.tar``, or an address; None for files beside the manifest."""
    language: str | None = None
    """Of questions whose file names none, in place of the format's own: ``en`` for Visual
    Genome's own questions."""
    images: str = ""
    """The folder of the images, put before their names."""
    image_list: str | None = None
    """A file inside the data folder with the images to keep, one id or name a line; or, with
    ``image_folder``, Visual Genome's ``image_data.json``."""
    image_folder: str | None = None
    """Of the images in ``image_data.json``, those whose address has this folder: UC2 trains on
    ``VG_100K`` and tests on ``VG_100K_2`` (its authors, github.com/zmykevin/UC2/issues/3)."""
    part: tuple[float, float] | None = None
    """The part of the images to keep, in the order of a hash of their names: ``[0, 0.67]`` and
    ``[0.67, 1]`` split a dataset without published splits two to one."""
    train_unmatched: bool = False
    """Also train on questions none of whose answers is a class, as UNITER's code does with VQA
    v2: all classes are then wrong."""

    def __post_init__(self) -> None:
        if self.part is not None and not 0 <= self.part[0] < self.part[1] <= 1:
            raise PolyglanceError(
                f"part must be two rising shares from 0 to 1, not {list(self.part)}"
            )
        if self.image_folder is not None and self.image_list is None:
            raise PolyglanceError(
                "image_folder chooses among the images of a list: name Visual Genome's"
                " image_data.json as image_list"
            )


@dataclass(frozen=True)
class AnswerConfig:
    """Which answers are classes, and what the classifier knows of them.

    The paper has 3,129 classes for VQA v2 and 3,000 in Japanese, and a classifier alone.
    """

    classes: str | None = None
    """A published list inside the data folder, ``{"answer": class}``, as UC2 and UNITER have it
    in ``ans2label.json``; its answers are in the language of the training questions. None
    chooses from these."""
    max_answers: int = 3000
    """Of each language."""
    min_score: float = 2.0
    """What an answer must have scored in all of training."""
    rank_by: AnswerRanking = "score"
    """``score`` adds up VQA scores; ``majority`` counts the questions whose most frequent answer
    it is, as the published code does (of VQA v2, 3,129 answers have 9 or more)."""
    embeddings: bool = True
    """Compare a predicted vector with one of each answer; False for a classifier alone."""
    init_from_text: bool = True
    """Initialise each answer with the text encoder's vector; False for all alike."""
    init_bias: bool = True
    """Begin with each answer's mean score; False for zero."""
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
    image_backbone: ImageBackboneConfig | None = field(default_factory=ImageBackboneConfig)
    """Compute regions from pixels; None to read the stored ``features`` of each file."""
    max_regions: int = 100
    """Of stored features."""
    prepend_global: bool = False
    """Of stored features, use the whole image's vector as first region."""
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    """How regions and images of corpora larger than memory are read."""
    projection_heads: str | None = None
    """The dual encoder's projection heads, a folder as `polyglance weights split` writes."""
    object_tags: ObjectTagsConfig | None = None
    """Append a detector's object tags to each question; None for none."""
    variant: Variant = "paper"
    initialise_from: str | None = None
    """The folder of a UC2 run's stage such as RUN/pretraining, with the same encoder, features and
    variant; or the file of a published checkpoint of UC2, UNITER or VOLTA, with ``variant``
    reference. A published head for answers is loaded if ``answers.classes`` names its list."""
    published_task: str | None = None
    """Of VOLTA's checkpoints with several tasks, the one whose head to load, such as TASK1."""
    dropout: float | None = 0.1
    head_dropout: float = 0.1
    max_text_tokens: int = 40
    train: tuple[QuestionFile, ...] = (QuestionFile("train.jsonl"),)
    test: tuple[QuestionFile, ...] = ()
    translate_test: str | None = None
    """Translate test questions into English, as `UC2Recipe.translate_test` does with captions, for
    a model that was trained in English (translate-test, Table 2)."""
    test_classes: str | None = None
    """With ``translate_test``: a list like ``answers.classes`` with the same classes in the
    language of the test questions, in which answers are then given."""
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
        validate_fields(self, lambda value: value >= 1, "1 or more", "batch", "max_regions")
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        validate_fields(self, lambda value: value > 0, "a number above 0", "head_lr_multiplier")
        shares = ("held_out", "head_dropout")
        validate_fields(self, lambda value: 0 <= value < 1, "a share below 1", *shares)
        alpha = "language_alpha"
        validate_fields(self, lambda value: 0 <= value <= 1, "a number from 0 to 1", alpha)
        if not self.train:
            raise PolyglanceError("train names no questions: add a file")
        if self.test_classes is not None and (
            self.translate_test is None or self.answers.classes is None
        ):
            raise PolyglanceError(
                "test_classes names the classes of translated tests in another language: set"
                " translate_test and answers.classes too"
            )
        pixels = ("init_from_dual_encoder", "projection_heads", "object_tags")
        if self.image_backbone is None:
            for name in pixels:
                if getattr(self, name) is not None:
                    raise PolyglanceError(
                        f"{name} needs pixels, and image_backbone is null: configure one, or set"
                        f" {name} to null"
                    )

    def missing_files(self, data: Path) -> list[str]:
        """Name what training needs and the data folder lacks, one sentence for each kind."""
        files = (*self.train, *self.test)
        lists = (self.answers.classes, self.test_classes, *(file.image_list for file in files))
        named = [name for name in lists if name is not None]
        used = {file.features for file in files if self.image_backbone is None}
        stores = [data / name for name in sorted(used) if "://" not in name]
        return missing_files(data, (*(file.manifest for file in files), *named)) + name_missing(
            [store for store in stores if not (store / "store.json").is_file()],
            "there is no feature store; import a detector's regions with 'polyglance features"
            " regions', or configure an image_backbone",
        )
