"""Multiply a probe up to a whole run: hours, memory, disk, and the arithmetic behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

import torch

from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.recipes import Recipe
from polyglance.recipes.cross_encoder.config import CrossEncoderRecipe
from polyglance.recipes.mmp.config import MMPPhotoRecipe, MMPRecipe
from polyglance.recipes.plan import mmp
from polyglance.recipes.plan.probe import StageProbe, probe_stage
from polyglance.recipes.plan.synthetic import (
    CorpusShape,
    SyntheticRun,
    build_run,
    stage_batch,
    with_batch_limit,
)
from polyglance.recipes.stages import Stage
from polyglance.training.loop import LoopConfig
from polyglance.training.throughput import measure_peak

SYSTEMS = ("uc2", "m3p", "mmp", "mmp_photos")
IMAGES = {
    "conceptual-captions": 3_318_333,
    "flickr30k": 29_000,
    "flickr8k": 6_000,
    "mscoco": 113_287,
    "coco": 113_287,
}
"""Training images by the folder of the manifest."""
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
    mean_tokens: int = 18
    regions: int | None = None
    """Regions of an image; None for 36 of a detector, or for all cells of a grid."""
    region_width: int | None = None
    """Of a region's vector; None for 2,048, and for 1,024 of a clip's second (MMP)."""
    bandwidth: float = 100.0
    """Of the gradients' exchange, in GB/s for each accelerator."""
    probe_batch: int | None = None
    """The largest batch to probe with; None for an accelerator's share, and for 4 on a CPU."""
    warmup: int | None = None
    """Steps of each task before those that are timed; None for 5, and for 1 on a CPU."""
    steps: int | None = None
    """Steps of each task that are timed; None for 10, and for 1 on a CPU."""

    def __post_init__(self) -> None:
        counts = ("gpus", "images", "regions", "region_width", "steps")
        validate_fields(self, lambda value: value >= 1, "1 or more", *counts)
        validate_fields(self, lambda value: value >= 2, "2 or more", "probe_batch")
        validate_fields(self, lambda value: value >= 0, "0 or more", "warmup")
        validate_fields(self, lambda value: value > 0, "a number above 0", "bandwidth")


@dataclass(frozen=True)
class Memory:
    """Bytes on one accelerator."""

    weights: float
    gradients: float
    optimiser: float
    activations: float
    """Of the task that takes most."""

    @property
    def total(self) -> float:
        """The sum."""
        return self.weights + self.gradients + self.optimiser + self.activations


@dataclass(frozen=True)
class StagePlan:
    """What a stage takes."""

    name: str
    steps: int
    batch: int
    """Of all accelerators, as in the recipe."""
    micro_batches: int
    pairs_per_step: float
    """Pairs that a step encodes on all accelerators, negatives included."""
    compute_seconds: float
    """Of a step on an accelerator."""
    exchange_seconds: float
    """Of a step's gradients."""
    memory: Memory
    checkpoint_bytes: float
    """Of all checkpoints that the stage keeps."""
    flops_per_pair: float
    tflops: float
    """A second, of one accelerator while it computes."""
    peak_share: float | None
    """That by the measured peak; None without CUDA."""

    @property
    def pairs_per_second(self) -> float:
        """Of all accelerators together."""
        return self.pairs_per_step / (self.compute_seconds + self.exchange_seconds)

    @property
    def hours(self) -> float:
        """Of all steps."""
        return self.steps * (self.compute_seconds + self.exchange_seconds) / 3600


@dataclass(frozen=True)
class Plan:
    """What a recipe takes."""

    system: str
    gpus: int
    device: str
    """What was probed."""
    stages: tuple[StagePlan, ...]
    images: int | None
    feature_bytes: float | None
    """Of the feature store; None where the number of images is not known."""
    assumptions: tuple[str, ...]

    @property
    def hours(self) -> float:
        """Of all stages."""
        return sum(stage.hours for stage in self.stages)

    @property
    def checkpoint_bytes(self) -> float:
        """Of all stages."""
        return sum(stage.checkpoint_bytes for stage in self.stages)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain = asdict(self)
        for entry, stage in zip(plain["stages"], self.stages, strict=True):
            entry |= {"pairs_per_second": stage.pairs_per_second, "hours": stage.hours}
            entry["memory"]["total"] = stage.memory.total
        return plain | {"hours": self.hours, "checkpoint_bytes": self.checkpoint_bytes}


def plan_recipe(recipe: Recipe, options: PlanOptions, *, device: str = "cpu") -> Plan:
    """Probe a recipe on this machine and estimate its run.

    Args:
        recipe: of UC2, M3P or MMP.
        options: the number of accelerators, the corpus, and how long to probe.
        device: a device of torch.

    Returns:
        The plan, with the assumptions that it rests on.
    """
    if recipe.system not in SYSTEMS:
        raise PolyglanceError(
            f"plan knows recipes of {', '.join(SYSTEMS)} only, not of {recipe.system}: time"
            " some steps with 'polyglance train' and --set loop.steps=20, which logs pairs a second"
        )
    cuda = torch.device(device).type == "cuda"
    limit = options.probe_batch or (None if cuda else 4)
    warmup = options.warmup if options.warmup is not None else (5 if cuda else 1)
    steps = options.steps or (10 if cuda else 1)
    torch.set_float32_matmul_precision("high")
    build = _prepare_mmp if recipe.system.startswith("mmp") else _prepare_cross_encoder
    prepared = build(recipe.settings, options, limit, device)
    peak = measure_peak(device, _dtype(recipe.settings.loop)) if cuda else None
    stages = tuple(
        _estimate(
            stage,
            probe_stage(prepared.run.model, stage, warmup=warmup, steps=steps),
            batch=prepared.batches[stage.name],
            probe_batch=prepared.probe_batches[stage.name],
            options=options,
            validates=stage.name == prepared.validated,
            peak=peak,
        )
        for stage in prepared.run.stages
    )
    images, per_image = prepared.images, prepared.bytes_per_image
    return Plan(
        recipe.system,
        options.gpus,
        torch.cuda.get_device_name(device) if cuda else "CPU",
        stages,
        images,
        None if images is None else images * per_image,
        (*prepared.assumptions, *_assumptions(options, limit, cuda=cuda)),
    )


@dataclass(frozen=True, eq=False)
class _Prepared:
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
) -> _Prepared:
    corpus = corpus_shape(settings, options)
    limited = with_batch_limit(settings, options.gpus, limit)
    run = build_run(limited, corpus, device)
    names = [stage.name for stage in run.stages]
    said = (
        f"captions of {corpus.mean_tokens} sub-words and images of {corpus.regions} regions of"
        f" width {corpus.region_width:,}, random; weights random",
        "pairs count negatives; word_head counts sentences and early_adaptation regions",
    )
    return _Prepared(
        run,
        {name: stage_batch(settings, name) for name in names},
        {name: stage_batch(limited, name) for name in names},
        None if settings.validation is None else "fine_tuning",
        options.images or _known_images(settings),
        # Regions of pixels are computed before training and lie in memory.
        0.0 if settings.image_backbone is not None else bytes_per_image(corpus),
        said,
    )


def _prepare_mmp(
    settings: MMPRecipe | MMPPhotoRecipe, options: PlanOptions, limit: int | None, device: str
) -> _Prepared:
    shape = mmp.MMPShape(options.mean_tokens, options.region_width or 1024, options.regions)
    limited = mmp.with_batch_limit(settings, options.gpus, limit)
    said, per_image = "photos; names of classes and compression come on top", 0.0
    if isinstance(settings, MMPRecipe):
        steps = min(options.regions or settings.max_visual_tokens, settings.max_visual_tokens)
        per_image = bytes_per_image(CorpusShape(3, steps, shape.feature_width))
        said = f"clips of {steps} features of width {shape.feature_width:,}, random"
    return _Prepared(
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


def corpus_shape(recipe: CrossEncoderRecipe, options: PlanOptions) -> CorpusShape:
    """Return the shape of captions and regions that a recipe trains on."""
    regions = options.regions
    backbone = recipe.image_backbone
    if regions is None and backbone is not None and backbone.grid is not None:
        regions = backbone.grid**2 + 1
    elif regions is None:  # cells of a grid with the whole image, or a detector's regions
        regions = recipe.max_regions if recipe.prepend_global else 36
    adapts = getattr(recipe, "early_adaptation", None) is not None
    return CorpusShape(
        min(options.mean_tokens, recipe.max_text_tokens),
        min(regions, recipe.max_regions),
        options.region_width or 2048,
        labels_per_region=_SOFT_LABELS if adapts else 1,
    )


def bytes_per_image(corpus: CorpusShape) -> int:
    """Return the bytes of an image in a feature store of int8 vectors."""
    region = corpus.region_width + _REGION_BYTES + _LABEL_BYTES * corpus.labels_per_region
    return corpus.regions * region + corpus.region_width + _IMAGE_BYTES


def exchange_seconds(gradient_bytes: float, gpus: int, bandwidth: float, sharding: str) -> float:
    """Return the time of a step's exchange, nothing of it hidden behind computing.

    A ring all-reduce sends ``2 (N - 1) / N`` times the gradients; sharded weights are gathered
    twice and their gradients scattered once, ``3 (N - 1) / N``.

    Args:
        gradient_bytes: of the trained parameters.
        gpus: N.
        bandwidth: GB/s of each.
        sharding: ``ddp`` or ``fsdp``.
    """
    factor = 3 if sharding == "fsdp" else 2
    return factor * (gpus - 1) / gpus * gradient_bytes / (bandwidth * 1e9)


def _estimate(
    stage: Stage,
    probe: StageProbe,
    *,
    batch: int,
    probe_batch: int,
    options: PlanOptions,
    validates: bool,
    peak: float | None,
) -> StagePlan:
    loop, gpus = stage.loop, options.gpus
    scale, micro = -(-batch // gpus) / probe_batch, loop.grad_accumulation_steps
    compute = pairs = flops = 0.0
    for task in probe.tasks:
        compute += task.share * (micro * scale * task.compute_seconds + task.update_seconds)
        pairs += task.share * micro * scale * task.pairs
        flops += task.share * micro * scale * task.flops
    sharded = gpus if loop.sharding == "fsdp" else 1
    averages = 0 if loop.ema_decay is None else 1
    moments = 2 * probe.gradient_bytes
    memory = Memory(
        (probe.weight_bytes + averages * probe.gradient_bytes) / sharded,
        probe.gradient_bytes / sharded,
        moments / sharded,
        scale * max(task.activation_bytes for task in probe.tasks),
    )
    kept = loop.keep_checkpoints + (1 if validates else 0)
    checkpoint = probe.weight_bytes + averages * probe.gradient_bytes + moments
    rate = flops / compute
    return StagePlan(
        stage.name, loop.steps, batch, micro, pairs * gpus, compute,
        exchange_seconds(probe.gradient_bytes, gpus, options.bandwidth, loop.sharding),
        memory, kept * checkpoint, flops / pairs, rate / 1e12,
        None if peak is None else rate / peak,
    )  # fmt: skip


def _known_images(recipe: CrossEncoderRecipe) -> int | None:
    corpora = (recipe.train, *recipe.extra_train)
    stores = {corpus.features or corpus.manifest for corpus in corpora}
    counts = [IMAGES.get(PurePosixPath(name).parts[0]) for name in stores]
    return None if None in counts else sum(count for count in counts if count is not None)


def _dtype(loop: LoopConfig) -> torch.dtype:
    return torch.bfloat16 if loop.precision == "bfloat16" else torch.float32


def _assumptions(options: PlanOptions, limit: int | None, *, cuda: bool) -> tuple[str, ...]:
    said = [
        "hours are of training steps: reading, validation and evaluation come on top",
        "checkpoints: weights and two moments in float32, keep_checkpoints of each stage; while"
        " one is written there is one more",
    ]
    if options.gpus > 1:
        said.append(
            f"an accelerator computes 1/{options.gpus} of each batch; gradients are exchanged by a"
            f" ring at {options.bandwidth:g} GB/s, nothing of it hidden behind computing"
        )
    if limit is not None:
        said.append(
            f"probed with batches of at most {limit}: time and activations of a batch are taken"
            " to grow in proportion"
        )
    if not cuda:
        said.append(
            "probed on this machine's CPU: hours and pairs/s are of CPUs like it; activations are"
            " what the backward pass keeps, weights, gradients and disk hold anywhere"
        )
    return tuple(said)
