"""Settings of a reader: its dual encoder, corpora of captions and questions, and training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.models.mmp import MMPConfig
from polyglance.models.uc2 import UC2Config
from polyglance.nn.encoder import EncoderConfig
from polyglance.recipes.run_folder import missing_files
from polyglance.training.loop import LoopConfig


@dataclass(frozen=True)
class ReaderCorpus:
    """Captions of, or questions about, images: a manifest inside the data folder."""

    manifest: str
    images: str | None = None
    """Folder inside the data folder that image names are relative to; None for the manifest's."""
    languages: tuple[str, ...] | None = None
    """Languages of captions to take; None for all."""
    max_images: int | None = None
    """Take the first so many images; None for all."""
    repeat: int = 1
    """Take each of its questions so many times: in training, among the held-out ones, and in the
    scores that make an answer a class. Of captions: sample its images, the matching ones, so many
    times as often; an image in several manifests has the number of the first. Of tests it must be
    1."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "max_images", "repeat")


@dataclass(frozen=True)
class ReaderCompression:
    """How long the reader with 4-bit weights is distilled from the trained ones."""

    steps: int = 400
    learning_rate: float = 1e-4
    warmup: int = 40
    transferred_questions: float = 0.0
    """Share of the questions that are asked about another image, one of the hard negatives of
    their own. No person answered them: they show what the trained readers would answer where they
    have learned nothing by heart."""

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "steps", "warmup")
        share = "transferred_questions"
        validate_fields(self, lambda value: 0 <= value <= 1, "a share from 0 to 1", share)
        validate_fields(self, lambda value: value > 0, "a number above 0", "learning_rate")


@dataclass(frozen=True)
class RetrievalConfig:
    """Matching with hard negatives from the dual encoder's ranking."""

    batch: int = 64
    """Matching pairs a step."""
    negatives: int = 3
    """Other images, and as many other captions, for each matching pair, if there are no groups."""
    group_size: int = 0
    """Matching pairs of a group, of which every caption is read beside every image, so that each
    has so many negatives less one of either kind; 0 for lists of ``negatives``."""
    hard_negative_pool: int = 32
    """Negatives of an image are drawn from so many that the dual encoder ranks highest for its
    captions; 0 for any."""
    hard_negative_gallery: int | None = None
    """It ranks so many images, drawn at random, as if they were a library; None for all."""
    hard_negatives_of_corpus: bool = False
    """It ranks images of the same manifest of captions, which are more alike than those of several
    ones, as those of a library are. An image is of the first manifest that names it. For images
    without captions, and in manifests of no more than ``hard_negative_pool``, it ranks all."""
    hard_negative_warmup: int = 500
    """Steps over which the share of these grows from 0 to 1."""
    language_alpha: float = 0.3
    """A language's probability is proportional to its captions to this power."""
    weight: float = 1.0
    candidates: int = 20
    """Hits that are re-ranked in evaluation."""

    def __post_init__(self) -> None:
        counts = ("batch", "negatives", "candidates")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        others = ("hard_negative_pool", "hard_negative_warmup", "weight")
        validate_fields(self, lambda value: value >= 0, "0 or more", *others)
        validate_fields(self, lambda value: value >= 2, "2 or more", "hard_negative_gallery")
        size = self.group_size
        validate_fields(
            self, lambda value: value == 0 or value >= 2, "0, or 2 or more", "group_size"
        )
        if size and self.batch % size:
            raise PolyglanceError(
                f"batch is {self.batch}, and groups have {size} pairs: make it a multiple of"
                " group_size"
            )


@dataclass(frozen=True)
class QuestionConfig:
    """Answering questions."""

    batch: int = 256
    max_answers: int = 1500
    """Classes of each language."""
    min_score: float = 3.0
    """What an answer must have scored in all of training."""
    language_alpha: float = 0.5
    """A language's probability is proportional to its questions to this power."""
    weight: float = 0.2
    """Beside matching; the loss is a sum over all answers."""
    held_out: float = 0.02
    """Share of the images with questions that choose the checkpoint."""
    head_dropout: float = 0.2
    lexicon_words: int = 2000
    """Words of each language that are kept to detect the language of questions."""

    def __post_init__(self) -> None:
        counts = ("batch", "max_answers", "lexicon_words")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        validate_fields(
            self, lambda value: 0 <= value < 1, "a share below 1", "held_out", "head_dropout"
        )


@dataclass(frozen=True)
class ReaderRecipe:
    """A training run of a reader."""

    dual_encoder: str = "polyglance-small"
    """The model whose words and cells it takes, by name or folder."""
    initialise_from: str | None = None
    """Begin with the reader of this model, by name or folder, and with its answers, whatever
    ``answering`` says of their number; None for layers of the dual encoder. Its shape must be the
    recipe's. No layer is new then, so that all learn at the same rate."""
    text_layers: int = 0
    """So many layers of the dual encoder's text encoder, frozen, read a text before the reader
    does; 0 for its word embeddings, as in UC2."""
    layers: int = 6
    """The layers of the dual encoder's text encoder that follow, so many, begin the reader's; where
    fewer follow, its last ones."""
    image_layers: bool = False
    """Whether the layers of the dual encoder's visual pooling, copied, read an image's cells before
    these join the text."""
    image_size: int | None = None
    """Pixels a side of the images that the reader is given when it is used; None for the dual
    encoder's. Re-ranking at another size also averages the library's cosine with that of the dual
    encoder's vector at this size."""
    training_image_size: int | None = None
    """Pixels a side of the images that it is trained on; None for the dual encoder's. Networks that
    are trained on crops read larger images better than those of training (Touvron et al. 2019)."""
    max_text_tokens: int = 40
    dropout: float = 0.1
    min_crop_area: float = 0.5
    """Augmentation keeps at least this share of an image's area."""
    drop_cells: float = 0.3
    """Augmentation leaves out up to this share of an image's cells, as explanations do."""
    stored_views: int = 0
    """Compute the cells of so many views of each training image beforehand, of which the first is
    the whole image, instead of cropping and encoding images in each step; 0 for the latter."""
    captions: tuple[ReaderCorpus, ...] = ()
    questions: tuple[ReaderCorpus, ...] = ()
    validation: ReaderCorpus | None = None
    test: ReaderCorpus | None = None
    question_tests: tuple[ReaderCorpus, ...] = ()
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    answering: QuestionConfig = field(default_factory=QuestionConfig)
    head_lr_multiplier: float = 5.0
    """Learning-rate multiplier for newly initialised layers."""
    itm_only_steps: int = 0
    """Steps of matching alone that come first, as `polyglance.recipes.stages` explains: beside
    other tasks, matching is slow to leave chance."""
    seeds: int = 1
    """Train so many readers, with the loop's seed and those that follow. The compressed one learns
    the mean of their scores and of their answers' probabilities (Hinton et al. 2015)."""
    loop: LoopConfig = field(
        default_factory=lambda: LoopConfig(learning_rate=1e-4, betas=(0.9, 0.98))
    )
    compression: ReaderCompression = field(default_factory=ReaderCompression)

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 1, "1 or more", "layers", "seeds")
        validate_fields(self, lambda value: value >= 3, "3 or more", "max_text_tokens")
        sizes = ("image_size", "training_image_size")
        validate_fields(self, lambda value: value >= 32, "32 or more", *sizes)
        validate_fields(
            self,
            lambda value: value >= 0,
            "0 or more",
            "stored_views",
            "itm_only_steps",
            "text_layers",
        )
        shares = ("dropout", "drop_cells")
        validate_fields(self, lambda value: 0 <= value < 1, "a share below 1", *shares)
        others = (self.validation, self.test, *self.question_tests)
        if any(corpus is not None and corpus.repeat > 1 for corpus in others):
            raise PolyglanceError("repeat is for what is learned, not for tests: leave it out")
        if not self.captions or not self.questions:
            raise PolyglanceError(
                "a reader learns from captions and questions: name manifests of both"
            )

    def model_config(self, encoder: EncoderConfig, dual: MMPConfig) -> UC2Config:
        """Return the shape of the reader.

        Args:
            encoder: of its own layers.
            dual: of the dual encoder.
        """
        config = UC2Config(encoder, dual.visual_width)
        if not self.image_layers:
            return config
        layers = dual.visual_pooling_layers or dual.pooling_layers
        return replace(config, image_layers=layers, image_heads=dual.pooling_heads)

    def missing_files(self, data: Path) -> list[str]:
        """Name what training needs and the data folder lacks, one sentence for each kind."""
        others = [one for one in (self.validation, self.test) if one is not None]
        corpora = (*self.captions, *self.questions, *others, *self.question_tests)
        return missing_files(data, [corpus.manifest for corpus in corpora])
