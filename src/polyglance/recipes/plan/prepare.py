"""Build what is probed of a recipe: its stages on random data, and what multiplies them up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Protocol

from polyglance.config import validate_fields
from polyglance.recipes import SYSTEMS, Recipe
from polyglance.recipes.caption_translator.config import CaptionTranslatorRecipe
from polyglance.recipes.compact_reader.config import ReaderRecipe
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe
from polyglance.recipes.fine_tune.config import FineTuneRecipe
from polyglance.recipes.mmp.config import MMPPhotoRecipe, MMPRecipe
from polyglance.recipes.plan import compact_reader, fine_tune, mmp, smalr, translator, vqa
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    SyntheticRun,
    build_run,
    limited_batch,
    stage_batch,
    with_batch_limit,
)
from polyglance.recipes.smalr.config import SMALRRecipe
from polyglance.recipes.vqa.config import VQARecipe

_SUBWORDS, _WORDS_OF_CAPTION = 18, 12
IMAGES = {
    "conceptual-captions": 3_318_333,
    "flickr30k": 29_000,
    "flickr8k": 6_000,
    "mscoco": 113_287,
    "coco": 113_287,
}
"""Training images by the folder of the manifest."""
VQA_IMAGES = {"mscoco": 123_287, "visual-genome": 108_249}
"""Images with questions by the folder of the store: VQA v2's two training splits, Visual Genome."""
_SOFT_LABELS = 100
"""Labels of a region that early adaptation learns from, as its recipes extract them."""
_REGION_BYTES = 4 + 16 + 8
"""Of a region besides its features and labels: the scale, the box, the span in time."""
_LABEL_BYTES = 2 + 2
"""Of a label: its number and probability."""
_IMAGE_BYTES = 4 + 8
"""Of an image besides its regions and global vector: that one's scale, the number of regions."""


@dataclass(frozen=True)
class PlanOptions:
    """What a plan is for, and how it is probed."""

    gpus: int = 1
    images: int | None = None
    """Training images; None for those of the recipe's dataset, if that is known."""
    mean_tokens: int | None = None
    """Of a caption or question; None for 18 sub-words, and for 12 words of SMALR's models."""
    regions: int | None = None
    """Regions of an image; None for 36 of a detector, or for all cells of a grid."""
    region_width: int | None = None
    """Of a region's vector; None for 2,048, and for 1,024 of a clip's second (MMP)."""
    words: int = 7_000
    """Of each language's lexicon, for SMALR's models; Flickr8k's captions have about as many."""
    bandwidth: float = 100.0
    """Of the gradients' exchange, in GB/s for each accelerator."""
    probe_batch: int | None = None
    """The largest batch to probe with; None for an accelerator's share, and for `cpu_batch`."""
    warmup: int | None = None
    """Steps of each task before those that are timed; None for 5, and for 1 on a CPU."""
    steps: int | None = None
    """Steps of each task that are timed; None for 10, and for 1 on a CPU."""

    def __post_init__(self) -> None:
        counts = ("gpus", "images", "regions", "region_width", "words", "steps")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        validate_fields(self, lambda value: value >= 2, "2 or more", "probe_batch")
        validate_fields(self, lambda value: value >= 3, "3 or more", "mean_tokens")
        validate_fields(self, lambda value: value >= 0, "0 or more", "warmup")
        validate_fields(self, lambda value: value > 0, "a number above 0", "bandwidth")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run to probe, and what multiplies it up."""

    run: SyntheticRun
    batches: dict[str, int]
    """Of the recipe, by stage."""
    probe_batches: dict[str, int]
    validated: str | None
    """The stage that keeps a best checkpoint too."""
    images: int | None
    bytes_per_image: float
    assumptions: tuple[str, ...]


def _prepare_cross_encoder(
    settings: CrossEncoderRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    corpus = corpus_shape(settings, options)
    limited = with_batch_limit(settings, options.gpus, limit)
    run = build_run(limited, corpus, device)
    names = [stage.name for stage in run.stages]
    said = (
        f"captions of {corpus.mean_tokens} sub-words and images of {corpus.regions} regions of"
        f" width {corpus.region_width:,}, random; weights random",
        "pairs count negatives; word_head counts sentences and early_adaptation regions",
    )
    return Prepared(
        run,
        {name: stage_batch(settings, name) for name in names},
        {name: stage_batch(limited, name) for name in names},
        None if settings.validation is None else "fine_tuning",
        options.images or _known_images((settings.train, *settings.extra_train), IMAGES),
        # Regions of pixels are computed before training and lie in memory.
        0.0 if settings.image_backbone is not None else bytes_per_image(corpus),
        said,
    )


def _prepare_mmp(
    settings: MMPRecipe | MMPPhotoRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    tokens = options.mean_tokens or _SUBWORDS
    shape = mmp.MMPShape(tokens, options.region_width or 1024, options.regions)
    limited = mmp.with_batch_limit(settings, options.gpus, limit)
    said, per_image = "photos; names of classes and compression come on top", 0.0
    if isinstance(settings, MMPRecipe):
        steps = min(options.regions or settings.max_visual_tokens, settings.max_visual_tokens)
        per_image = bytes_per_image(CorpusShape(3, steps, shape.feature_width))
        said = f"clips of {steps} features of width {shape.feature_width:,}, random"
    return Prepared(
        mmp.build_mmp_run(limited, shape, device),
        {mmp.STAGE: mmp.step_batch(settings)},
        {mmp.STAGE: mmp.step_batch(limited)},
        None if settings.validation is None else mmp.STAGE,
        options.images,
        per_image,
        (
            f"captions of {shape.mean_tokens} sub-words and {said}; weights random",
            "pairs are the items of all corpora: clips or images, and sentences of text corpora",
        ),
    )


def _prepare_vqa(
    settings: VQARecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    corpus = corpus_shape(settings, options)
    limited = replace(settings, batch=limited_batch(settings.batch, options.gpus, limit))
    answers = vqa.num_answers(settings)
    run = vqa.build_vqa_run(limited, corpus, answers, device)
    (stage,) = run.stages
    return Prepared(
        run,
        {stage.name: settings.batch},
        {stage.name: limited.batch},
        stage.name if settings.held_out > 0 else None,
        options.images or _known_images(settings.train, VQA_IMAGES),
        0.0 if settings.image_backbone is not None else bytes_per_image(corpus),
        (
            f"questions of {corpus.mean_tokens} sub-words, {answers:,} answers and images of"
            f" {corpus.regions} regions of width {corpus.region_width:,}, random; weights random",
            "pairs are questions; object tags and similarities of answers come on top",
        ),
    )


def _prepare_smalr(
    settings: SMALRRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    shape = smalr.SMALRShape(
        options.mean_tokens or _WORDS_OF_CAPTION, options.words, options.region_width or 2048
    )
    first = settings.pretraining
    limited = replace(
        settings,
        batch=limited_batch(settings.batch, options.gpus, limit),
        pretraining=replace(first, batch=limited_batch(first.batch, options.gpus, limit)),
    )
    run = smalr.build_smalr_run(limited, shape, device)

    def batches(recipe: SMALRRecipe) -> dict[str, int]:
        return {
            stage.name: recipe.pretraining.batch
            if stage.name == smalr.PRETRAINING
            else recipe.batch
            for stage in run.stages
        }

    return Prepared(
        run,
        batches(settings),
        batches(limited),
        None,  # checkpoints, the best one too, are removed at the end
        options.images,
        # One vector an image, in float16.
        2.0 * shape.feature_width,
        (
            f"captions of {shape.mean_tokens} words, {shape.words:,} words a language (--words) and"
            f" image features of width {shape.feature_width:,}, random; weights random",
            "pairs are images, each with its captions in all languages of a step",
        ),
    )


def _prepare_fine_tune(
    settings: FineTuneRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    tokens = min(options.mean_tokens or _SUBWORDS, settings.max_text_tokens)
    probed = replace(settings, batch=limited_batch(settings.batch, options.gpus, limit))
    run = fine_tune.build_fine_tune_run(probed, tokens, device)
    (stage,) = run.stages
    return Prepared(
        run,
        {stage.name: settings.batch},
        {stage.name: probed.batch},
        stage.name,
        0,
        0.0,
        (f"captions of {tokens} sub-words and pictures, random; the weights of the model",),
    )


def _prepare_translator(
    settings: CaptionTranslatorRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    tokens = min(options.mean_tokens or _SUBWORDS, settings.network.max_tokens - 2)
    share = -(-settings.batch_tokens // options.gpus)
    probed = share if limit is None else min(share, limit * 2 * tokens)
    run = translator.build_translator_run(replace(settings, batch_tokens=probed), tokens, device)
    (stage,) = run.stages
    return Prepared(
        run,
        {stage.name: settings.batch_tokens},
        {stage.name: probed},
        stage.name,
        0,
        0.0,
        (
            f"sentences of {tokens} sub-words and as long translations, random; weights random",
            "batch and pairs are target sub-words, those of the batch with padding",
        ),
    )


def _prepare_reader(
    settings: ReaderRecipe, options: PlanOptions, limit: int | None, device: str
) -> Prepared:
    tokens = min(options.mean_tokens or _SUBWORDS, settings.max_text_tokens)
    whole = settings.retrieval.group_size or 1
    pairs = limited_batch(settings.retrieval.batch, options.gpus, limit)
    retrieval = replace(settings.retrieval, batch=-(-pairs // whole) * whole)
    # In proportion, since one factor scales both.
    questions = round(retrieval.batch * settings.answering.batch / settings.retrieval.batch)
    answering = replace(settings.answering, batch=max(questions, 1))
    probed = replace(settings, answering=answering, retrieval=retrieval)
    run = compact_reader.build_reader_run(probed, tokens, device)
    (stage,) = run.stages
    return Prepared(
        run,
        {stage.name: settings.answering.batch},
        {stage.name: answering.batch},
        stage.name,
        0,
        0.0,
        (
            f"texts of {tokens} sub-words and images of 50 cells, random; weights random",
            "pairs are questions, each step's matching pairs come on top, encoding pixels and"
            " compression; steps are those of all seeds",
        ),
    )


def corpus_shape(recipe: CrossEncoderRecipe | VQARecipe, options: PlanOptions) -> CorpusShape:
    """Return the shape of captions and regions that a recipe trains on."""
    regions = options.regions
    backbone = recipe.image_backbone
    if regions is None and backbone is not None and backbone.grid is not None:
        regions = backbone.grid**2 + 1
    elif regions is None:  # cells of a grid with the whole image, or a detector's regions
        regions = recipe.max_regions if recipe.prepend_global else 36
    adapts = getattr(recipe, "early_adaptation", None) is not None
    return CorpusShape(
        min(options.mean_tokens or _SUBWORDS, recipe.max_text_tokens),
        min(regions, recipe.max_regions),
        options.region_width or 2048,
        labels_per_region=_SOFT_LABELS if adapts else 1,
    )


def bytes_per_image(corpus: CorpusShape) -> int:
    """Return the bytes of an image in a feature store of int8 vectors."""
    region = corpus.region_width + _REGION_BYTES + _LABEL_BYTES * corpus.labels_per_region
    return corpus.regions * region + corpus.region_width + _IMAGE_BYTES


class Corpus(Protocol):
    """A file of a recipe."""

    @property
    def manifest(self) -> str:
        """Captions or questions."""
        ...

    @property
    def features(self) -> str:
        """The feature store, or an empty string."""
        ...


def _known_images(corpora: Iterable[Corpus], images: Mapping[str, int]) -> int | None:
    stores = {corpus.features or corpus.manifest for corpus in corpora}
    counts = [images.get(PurePosixPath(name).parts[0]) for name in stores]
    return None if None in counts else sum(count for count in counts if count is not None)


Prepare = Callable[[Any, PlanOptions, int | None, str], Prepared]

_PREPARE: dict[str, Prepare] = {
    "uc2": _prepare_cross_encoder,
    "m3p": _prepare_cross_encoder,
    "mmp": _prepare_mmp,
    "mmp_photos": _prepare_mmp,
    "fine_tune": _prepare_fine_tune,
    "smalr": _prepare_smalr,
    "vqa": _prepare_vqa,
    "caption_translator": _prepare_translator,
    "compact_reader": _prepare_reader,
}
assert _PREPARE.keys() == SYSTEMS.keys()


def cpu_batch(system: str) -> int:
    """Return the largest batch to probe on a CPU; SMALR's steps are short, and mostly overhead."""
    return 32 if system == "smalr" else 4


def prepare(recipe: Recipe, options: PlanOptions, limit: int | None, device: str) -> Prepared:
    """Build a recipe's stages with random weights and data.

    Args:
        recipe: of any system.
        options: the number of accelerators and the corpus.
        limit: the largest batch to probe with; None for an accelerator's share.
        device: a device of torch.
    """
    return _PREPARE[recipe.system](recipe.settings, options, limit, device)
