"""Multiply a probe up to a whole run: hours, memory, disk, and the arithmetic behind them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from polyglance.recipes import Recipe
from polyglance.recipes.plan.prepare import PlanOptions, cpu_batch, prepare
from polyglance.recipes.plan.probe import StageProbe, probe_stage
from polyglance.recipes.stages import Stage
from polyglance.training.loop import LoopConfig
from polyglance.training.throughput import measure_peak


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
        recipe: of any system.
        options: the number of accelerators, the corpus, and how long to probe.
        device: a device of torch.

    Returns:
        The plan, with the assumptions that it rests on.
    """
    cuda = torch.device(device).type == "cuda"
    limit = options.probe_batch or (None if cuda else cpu_batch(recipe.system))
    warmup = options.warmup if options.warmup is not None else (5 if cuda else 1)
    steps = options.steps or (10 if cuda else 1)
    torch.set_float32_matmul_precision("high")
    prepared = prepare(recipe, options, limit, device)
    peak = measure_peak(device, _dtype(recipe.settings.loop)) if cuda else None
    stages = tuple(
        _estimate(
            stage,
            probe_stage(prepared.run.model_of(stage), stage, warmup=warmup, steps=steps),
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
