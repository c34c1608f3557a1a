"""Sample the batches of the next steps in a background thread.

While the device computes a step, the thread draws, gathers and pins the batches that follow and
starts their copies on a stream of its own. Batches depend on seed and step alone, so that the
depth changes nothing but the speed.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch

from polyglance.batches.batch import Batch
from polyglance.training.mixture import Mixture, Task, step_generator

DEPTH = 3
"""Batches sampled ahead by default."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """The batch of one micro-batch of a step, with its task."""

    name: str
    task: Task
    batch: Batch
    copied: torch.cuda.Event | None = None
    """Completed once the copy to the device is."""

    def ready(self) -> PreparedBatch:
        """Make the device's current stream wait for the copy."""
        if self.copied is not None:
            # Of the batch's device, which need not be the current one.
            copies = [tensor for tensor in self.batch.tensors() if tensor.is_cuda]
            for device in {tensor.device for tensor in copies}:
                torch.cuda.current_stream(device).wait_event(self.copied)
            for tensor in copies:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return self


class Prefetcher:
    """Iterates over the batches of steps, sampled ahead in step order.

    Use as a context manager, which ends the thread. An error while sampling is raised where
    the batch is taken.
    """

    def __init__(
        self,
        mixture: Mixture,
        steps: range,
        *,
        seed: int,
        micro_batches: int = 1,
        device: torch.device | str = "cpu",
        depth: int = DEPTH,
    ) -> None:
        """Begin to sample.

        Args:
            mixture: Its task of each step samples.
            steps: The steps to sample.
            seed: Of the run.
            micro_batches: Batches a step.
            device: Where batches are copied to.
            depth: Batches to sample ahead; 0 samples a batch when it is taken.
        """
        self.mixture, self.steps, self.seed = mixture, steps, seed
        self.micro_batches, self.device = micro_batches, torch.device(device)
        # A batch is copied when the next one is sampled, which leaves a disk time to read it.
        self._source = self._copy_all(delay=min(depth, 1))
        self._stop = threading.Event()
        self._queue: queue.Queue[PreparedBatch | BaseException] | None = None
        self._thread: threading.Thread | None = None
        if depth > 0:
            self._queue = queue.Queue(max(1, depth - 1))  # the delayed batch is one of them
            self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[PreparedBatch]:
        return self

    def __next__(self) -> PreparedBatch:
        """Return the next batch; raises what sampling it raised."""
        if self._queue is None:
            return next(self._source).ready()
        item = self._queue.get()
        if isinstance(item, BaseException):
            self._queue.put(item)  # for whoever asks again
            raise item
        return item.ready()

    def close(self) -> None:
        """End the thread; batches sampled ahead are dropped."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _sample_all(self) -> Iterator[PreparedBatch]:
        for step in self.steps:
            name, task = self.mixture.choose(self.seed, step)
            for micro_batch in range(self.micro_batches):
                generator = step_generator(self.seed, step, micro_batch, self.micro_batches)
                yield PreparedBatch(name, task, task.sample(generator))

    def _copy_all(self, delay: int) -> Iterator[PreparedBatch]:
        """Yield batches on the device, the last ``delay`` of those sampled still being read."""
        cuda = self.device.type == "cuda"
        stream = torch.cuda.Stream(self.device) if cuda else None  # type: ignore[no-untyped-call]
        sampled: deque[PreparedBatch] = deque()
        failure: Exception | None = None
        source = self._sample_all()
        while failure is None:
            try:
                sampled.append(next(source))
            except StopIteration:
                break
            except Exception as error:  # raised once the batches before it are taken
                failure = error
            else:
                if len(sampled) > delay:
                    yield self._copy(sampled.popleft(), stream)
        for prepared in sampled:
            yield self._copy(prepared, stream)
        if failure is not None:
            raise failure

    def _copy(self, prepared: PreparedBatch, stream: torch.cuda.Stream | None) -> PreparedBatch:
        prepared.batch.wait()
        if stream is None:
            return prepared
        with torch.cuda.stream(stream):
            batch = prepared.batch.pin_memory().to(self.device)
            return replace(prepared, batch=batch, copied=stream.record_event())

    def _run(self) -> None:
        try:
            if self.device.type == "cuda" and self.device.index is not None:
                torch.cuda.set_device(self.device)
            for item in self._source:
                if not self._put(item):
                    return
            self._put(StopIteration())
        except BaseException as error:  # surfaces in the training loop
            self._put(error)

    def _put(self, item: PreparedBatch | BaseException) -> bool:
        """Wait until the queue takes a batch; False once the prefetcher is closed."""
        assert self._queue is not None
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
