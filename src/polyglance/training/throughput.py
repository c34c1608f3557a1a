"""How fast training goes: pairs a second, and on an accelerator the share of its peak."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from polyglance.nn.compilation import uncompiled
from polyglance.training.distributed import world_size

_PROBE_SIZE, _PROBE_REPEATS = 8192, 16


class Throughput:
    """Adds up the work of steps, and divides it by the time since the last report."""

    def __init__(
        self,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin to measure.

        Args:
            device: On CUDA operations are counted too, and compared with the measured peak.
            dtype: Of matrix products.
            clock: Returns seconds.
        """
        self.device, self.dtype, self.clock = torch.device(device), dtype, clock
        self.flops: dict[str, float] = {}
        self.peak: float | None = None
        self._start, self._pairs, self._operations = clock(), 0, 0.0

    def must_count(self, task: str) -> bool:
        """Return whether the operations of a task are still to be counted by `count`."""
        return self.device.type == "cuda" and task not in self.flops

    def count(self, task: str, forward: Callable[[], Any]) -> None:
        """Count the operations of a task's forward and backward pass, from its forward pass.

        A packed batch of the same task has about as many. The time that this takes does not
        count.
        """
        before = self.clock()
        try:
            self.flops[task] = count_training_flops(forward)
        except Exception as error:  # a run must not end because its speed is unknown
            self.flops[task] = 0.0
            print(f"operations of {task} cannot be counted: {error}", file=sys.stderr)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._start += self.clock() - before

    def add(self, task: str, pairs: int, micro_batches: int = 1) -> None:
        """Add a step of ``micro_batches`` batches, of so many pairs on all processes together."""
        self._pairs += pairs * micro_batches
        self._operations += self.flops.get(task, 0.0) * micro_batches

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent on steps, such as that of a validation."""
        self._start += seconds

    def report(self) -> dict[str, float]:
        """Return the speed since the last report.

        Returns:
            ``pairs_per_second`` of all processes together; on CUDA also ``tflops`` (a second,
            of one accelerator) and ``peak_share``, that by what large matrix products reach, if
            there was memory to measure it.
        """
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = max(self.clock() - self._start, 1e-9)
        rates = {"pairs_per_second": self._pairs / seconds}
        if self._operations:
            rates["tflops"] = self._operations / seconds / 1e12
            if self.peak is None:
                self.peak = self._measure_peak()
            if self.peak:
                rates["peak_share"] = rates["tflops"] * 1e12 / self.peak
        self._start, self._pairs, self._operations = self.clock(), 0, 0.0
        return rates

    def _measure_peak(self) -> float:
        """Return the measured peak, or 0 where training leaves no memory for it."""
        try:
            return measure_peak(self.device, self.dtype)
        except torch.OutOfMemoryError:  # a run must not end because its speed is unknown
            print("too little memory is left to measure the accelerator's peak", file=sys.stderr)
            return 0.0


def describe_speed(rates: dict[str, float]) -> str:
    """Return a report as a few words for the progress bar."""
    words = f"{rates['pairs_per_second']:,.0f} pairs/s"
    if "tflops" in rates:
        each = " each" if world_size() > 1 else ""
        words += f", {rates['tflops']:,.0f} TFLOP/s{each}"
    if "peak_share" in rates:
        words += f" ({rates['peak_share']:.0%} of peak)"
    return words


def count_flops(function: Callable[[], Any]) -> float:
    """Return the floating-point operations of a computation's matrix products and attention.

    Compiled parts run uncompiled, where operations can be seen. Those of kernels of our own
    cannot: short attention, which has about one in a hundred.
    """
    with uncompiled(), FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
        function()
    return float(counter.get_total_flops())


def count_training_flops(forward: Callable[[], Any]) -> float:
    """Return the operations of a forward and backward pass, from the forward pass alone.

    The backward pass of a matrix product is two products of its size. It is not made here:
    uncompiled it would take more memory than training does.
    """
    with torch.no_grad():
        return 3 * count_flops(forward)


def _addmm_flops(total: Any, left: Any, right: Any, *args: Any, **kwargs: Any) -> int:
    """Return the operations of ``total + left @ right``; torch's formula refuses a dtype."""
    return 2 * int(left[0]) * int(left[1]) * int(right[1])


_FORMULAS = {torch.ops.aten.addmm: _addmm_flops}


def measure_peak(device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> float:
    """Return the operations a second of large square matrix products on a CUDA device."""
    left, right = (
        torch.randn(_PROBE_SIZE, _PROBE_SIZE, device=device, dtype=dtype) for _ in range(2)
    )
    for _ in range(3):  # clocks and kernels warm up
        torch.mm(left, right)
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(_PROBE_REPEATS):
        torch.mm(left, right)
    torch.cuda.synchronize(device)
    return 2.0 * _PROBE_SIZE**3 * _PROBE_REPEATS / (time.perf_counter() - start)


def pairs_of(task: Any) -> int:
    """Return how many pairs a batch of a task has, on all processes together; 0 if unknown.

    Tasks have ``batch``; those that combine or wrap others have ``tasks`` or ``task``, and those
    that draw one of others have ``choices``, of which it is the mean.
    """
    if hasattr(task, "choices"):
        parts = [pairs_of(part) for part, _ in task.choices.values()]
        return round(sum(parts) / len(parts))
    if hasattr(task, "tasks"):
        return sum(pairs_of(part) for _, part, _ in task.tasks)
    if hasattr(task, "task"):
        return pairs_of(task.task)
    return int(getattr(task, "batch", 0))
