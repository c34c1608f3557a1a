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

from polyglance.nn.sending import sent


@dataclass(frozen=True, eq=False)
class Packing:
    """Where each sequence of a packed batch begins and ends."""

    boundaries: Tensor
    """``n + 1`` running totals of the lengths, int32, beginning with 0."""
    longest: int
    """The longest length, known ahead so that the accelerator need not be asked."""
    total: int
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
        return cls(sent(boundaries, device), longest, int(boundaries[-1]))

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence."""
        return self.boundaries.diff()

    @cached_property
    def owners(self) -> Tensor:
        """For each row, the sequence it belongs to."""
        sequences = torch.arange(len(self), device=self.boundaries.device)
        return torch.repeat_interleave(sequences, self.lengths, output_size=self.total)

    @cached_property
    def positions(self) -> Tensor:
        """For each row, its position within its own sequence, from 0."""
        rows = torch.arange(self.total, device=self.boundaries.device)
        return rows - self.boundaries[:-1][self.owners]

    @cached_property
    def mask(self) -> Tensor:
        """``(n, longest)``: true where a padded batch would hold a row."""
        steps = torch.arange(self.longest, device=self.boundaries.device)
        return steps < self.lengths[:, None]

    @cached_property
    def places(self) -> Tensor:
        """For each row, its number in a padded batch that is read sequence after sequence."""
        return self.owners * self.longest + self.positions

    @property
    def even(self) -> bool:
        """Whether all sequences have the same length, so that padding adds nothing."""
        return self.total == len(self) * self.longest

    def pad(self, rows: Tensor) -> Tensor:
        """Packed rows as a padded batch ``(n, longest, ...)``, zero where there is nothing."""
        shape = (len(self), self.longest, *rows.shape[1:])
        if self.even:
            return rows.reshape(shape)
        empty = rows.new_zeros((len(self) * self.longest, *rows.shape[1:]))
        return empty.index_copy(0, self.places, rows).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """The packed rows of a padded batch; what lies beyond the lengths is dropped."""
        rows = padded.flatten(0, 1)
        return rows if self.even else rows.index_select(0, self.places)

    def first(self, rows: Tensor) -> Tensor:
        """The first row of each sequence; sequences must not be empty."""
        return rows[self.boundaries[:-1]]

    def mean(self, rows: Tensor) -> Tensor:
        """The mean row of each sequence, summed in float32; zero for an empty one."""
        sums = torch.zeros(len(self), *rows.shape[1:], device=rows.device, dtype=torch.float32)
        sums.index_add_(0, self.owners, rows.float())
        return (sums / self.lengths.clamp(min=1)[:, None]).to(rows.dtype)


def join(first: Packing, second: Packing) -> tuple[Packing, Tensor]:
    """Each sequence of ``first`` followed by the same one of ``second``.

    Returns the joint packing and an index such that
    ``torch.cat([rows_first, rows_second])[index]`` are the joint rows.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} sequences cannot be joined with {len(second)}")
    lengths = (first.lengths + second.lengths).to(torch.int32)
    boundaries = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    # The sum of the longest bounds the longest sum without asking the device.
    joint = Packing(boundaries, first.longest + second.longest, first.total + second.total)
    index = torch.empty(joint.total, dtype=torch.long, device=boundaries.device)
    at_first = boundaries[:-1][first.owners] + first.positions
    at_second = boundaries[:-1][second.owners] + first.lengths[second.owners] + second.positions
    rows = torch.arange(joint.total, device=boundaries.device)
    index[at_first] = rows[: first.total]
    index[at_second] = rows[first.total :]
    return joint, index
