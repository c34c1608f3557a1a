"""Format a plan for people."""

from __future__ import annotations

from collections.abc import Iterator

from polyglance.recipes.plan.estimate import Plan


def plan_lines(plan: Plan) -> Iterator[str]:
    """Format a plan for people."""
    unit = "accelerator" if plan.gpus == 1 else "accelerators"
    yield f"{plan.gpus} {unit}, probed on {plan.device}"
    yield ""
    yield (
        f"{'stage':18} {'steps':>9} {'batch':>7} {'pairs/step':>10} {'pairs/s':>9} {'hours':>9}"
        f" {'GFLOP/pair':>10} {'TFLOP/s':>8} {'of peak':>7}"
    )
    for stage in plan.stages:
        micro = f"{stage.micro_batches}x" if stage.micro_batches > 1 else ""
        peak = "-" if stage.peak_share is None else f"{stage.peak_share:.0%}"
        yield (
            f"{stage.name:18} {stage.steps:9,} {f'{micro}{stage.batch:,}':>7}"
            f" {stage.pairs_per_step:10,.0f} {stage.pairs_per_second:9,.0f} {stage.hours:9,.2f}"
            f" {stage.flops_per_pair / 1e9:10.3g} {stage.tflops:8.3g} {peak:>7}"
        )
    yield f"{'all':18} {'':48} {plan.hours:8,.2f}"
    yield ""
    yield (
        f"{'GiB/accelerator':18} {'weights':>9} {'gradients':>10} {'optimiser':>10}"
        f" {'activations':>12} {'total':>8}"
    )
    for stage in plan.stages:
        memory = stage.memory
        parts = (memory.weights, memory.gradients, memory.optimiser, memory.activations)
        weights, gradients, optimiser, activations = (part / 2**30 for part in parts)
        yield (
            f"{stage.name:18} {weights:9.2f} {gradients:10.2f} {optimiser:10.2f}"
            f" {activations:12.2f} {memory.total / 2**30:8.2f}"
        )
    yield ""
    features = "not known: give --images"
    if plan.images == 0:
        features = "none"
    elif plan.feature_bytes is not None:
        features = f"{plan.feature_bytes / 1e9:,.1f} GB for {plan.images or 0:,} images"
    yield f"disk: features {features}; checkpoints {plan.checkpoint_bytes / 1e9:,.1f} GB"
    yield from _arithmetic(plan)
    for assumption in plan.assumptions:
        yield f"- {assumption}"


def _arithmetic(plan: Plan) -> Iterator[str]:
    for stage in plan.stages:
        yield (
            f"{stage.name}: {stage.steps:,} steps x ({stage.compute_seconds * 1000:,.1f} ms"
            f" computing + {stage.exchange_seconds * 1000:,.1f} ms exchange) ="
            f" {stage.hours:,.2f} h; {stage.pairs_per_step:,.0f} pairs x"
            f" {stage.flops_per_pair / 1e9:.3g} GFLOP / {plan.gpus} /"
            f" {stage.compute_seconds * 1000:,.1f} ms = {stage.tflops:.3g} TFLOP/s"
        )
