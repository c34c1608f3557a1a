"""Sequences of different lengths laid end to end, so that no padding is computed.

A batch of ``n`` sequences is one matrix of ``total`` rows and a `Packing` that
knows where each sequence begins:

    rows      a a a b c c        lengths     3 1 2
    position  0 1 2 0 0 1        boundaries  0 3 4 6
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    """Copy to ``device`` asynchronously (through pinned memory on CUDA); None leaves it in place.

    A copy out of pageable memory would wait until the accelerator has caught up, and the
    processor with it, instead of preparing the next step.
    """
    if device is None:
        return tensor
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each sequence of a packed batch begins and ends."""

    cu_seqlens: Tensor
    """``n + 1`` running totals of the lengths, int32, beginning with 0."""
    max_seqlen: int
    """The longest length, known ahead so that the accelerator need not be asked."""
    num_tokens: int
    """The number of rows, likewise."""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | NDArray[np.integer[Any]] | Tensor,
        device: torch.device | str | None = None,
    ) -> Packing:
        """The packing of sequences with these lengths."""
        counts = torch.as_tensor(lengths, dtype=torch.int32).cpu()
        boundaries = torch.zeros(len(counts) + 1, dtype=torch.int32)
        torch.cumsum(counts, 0, out=boundaries[1:])
        longest = int(counts.max()) if len(counts) else 0
        return cls(to_device(boundaries, device), longest, int(boundaries[-1]))

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence."""
        return self.cu_seqlens.diff()

    @cached_property
    def sequence_ids(self) -> Tensor:
        """For each row, the sequence it belongs to."""
        sequences = torch.arange(len(self), device=self.cu_seqlens.device)
        return torch.repeat_interleave(sequences, self.lengths, output_size=self.num_tokens)

    @cached_property
    def positions(self) -> Tensor:
        """For each row, its position within its own sequence, from 0."""
        rows = torch.arange(self.num_tokens, device=self.cu_seqlens.device)
        return rows - self.cu_seqlens[:-1][self.sequence_ids]

    @cached_property
    def mask(self) -> Tensor:
        """``(n, longest)``: true where a padded batch would hold a row."""
        steps = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        return steps < self.lengths[:, None]

    @cached_property
    def padded_positions(self) -> Tensor:
        """For each row, its number in a padded batch that is read sequence after sequence."""
        return self.sequence_ids * self.max_seqlen + self.positions

    @property
    def is_uniform(self) -> bool:
        """Whether all sequences have the same length, so that padding adds nothing."""
        return self.num_tokens == len(self) * self.max_seqlen

    def pad(self, rows: Tensor) -> Tensor:
        """Packed rows as a padded batch ``(n, longest, ...)``, zero where there is nothing."""
        shape = (len(self), self.max_seqlen, *rows.shape[1:])
        if self.is_uniform:
            return rows.reshape(shape)
        empty = rows.new_zeros((len(self) * self.max_seqlen, *rows.shape[1:]))
        return empty.index_copy(0, self.padded_positions, rows).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """The packed rows of a padded batch; what lies beyond the lengths is dropped."""
        rows = padded.flatten(0, 1)
        return rows if self.is_uniform else rows.index_select(0, self.padded_positions)

    def first(self, rows: Tensor) -> Tensor:
        """The first row of each sequence; sequences must not be empty."""
        return rows[self.cu_seqlens[:-1]]

    def mean(self, rows: Tensor) -> Tensor:
        """The mean row of each sequence, summed in float32; zero for an empty one."""
        sums = torch.zeros(len(self), *rows.shape[1:], device=rows.device, dtype=torch.float32)
        sums.index_add_(0, self.sequence_ids, rows.float())
        return (sums / self.lengths.clamp(min=1)[:, None]).to(rows.dtype)


def concat_packings(first: Packing, second: Packing) -> tuple[Packing, Tensor]:
    """Each sequence of ``first`` followed by the same one of ``second``.

    Returns the joint packing and an index such that
    ``torch.cat([rows_first, rows_second])[index]`` are the joint rows.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} sequences cannot be joined with {len(second)}")
    lengths = (first.lengths + second.lengths).to(torch.int32)
    boundaries = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    # The sum of the longest bounds the longest sum without asking the device.
    joint = Packing(
        boundaries, first.max_seqlen + second.max_seqlen, first.num_tokens + second.num_tokens
    )
    index = torch.empty(joint.num_tokens, dtype=torch.long, device=boundaries.device)
    at_first = boundaries[:-1][first.sequence_ids] + first.positions
    at_second = (
        boundaries[:-1][second.sequence_ids] + first.lengths[second.sequence_ids] + second.positions
    )
    rows = torch.arange(joint.num_tokens, device=boundaries.device)
    index[at_first] = rows[: first.num_tokens]
    index[at_second] = rows[first.num_tokens :]
    return joint, index
