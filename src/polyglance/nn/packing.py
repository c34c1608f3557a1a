"""Sequences of different lengths laid end to end, so that no padding is computed.

A batch of ``n`` sequences is one matrix of ``num_tokens`` rows and a `Packing` with the
boundaries of the sequences:

    rows        a a a b c c        lengths      3 1 2
    positions   0 1 2 0 0 1        cu_seqlens   0 3 4 6
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
    """Copy to ``device`` asynchronously (pinned memory on CUDA); None leaves it where it is.

    Copying from pageable memory would make the CPU wait for the accelerator instead of
    preparing the next step.
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
    """``(n + 1,)`` cumulative lengths, int32, starting with 0."""
    max_seqlen: int
    """The greatest length, stored so that nobody waits for the accelerator to read it."""
    num_tokens: int
    """The number of rows, likewise."""

    @classmethod
    def of(
        cls,
        lengths: Sequence[int] | NDArray[np.integer[Any]] | Tensor,
        device: torch.device | str | None = None,
    ) -> Packing:
        """Build the packing of sequences with these lengths."""
        counts = torch.as_tensor(lengths, dtype=torch.int32).cpu()
        cu_seqlens = torch.zeros(len(counts) + 1, dtype=torch.int32)
        torch.cumsum(counts, 0, out=cu_seqlens[1:])
        longest = int(counts.max()) if len(counts) else 0
        return cls(to_device(cu_seqlens, device), longest, int(cu_seqlens[-1]))

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence, ``(n,)``."""
        return self.cu_seqlens.diff()

    @cached_property
    def sequence_ids(self) -> Tensor:
        """For each row, the sequence it belongs to."""
        sequences = torch.arange(len(self), device=self.cu_seqlens.device)
        return torch.repeat_interleave(sequences, self.lengths, output_size=self.num_tokens)

    @cached_property
    def positions(self) -> Tensor:
        """For each row, its position within its sequence, from 0."""
        rows = torch.arange(self.num_tokens, device=self.cu_seqlens.device)
        return rows - self.cu_seqlens[:-1][self.sequence_ids]

    @cached_property
    def mask(self) -> Tensor:
        """``(n, max_seqlen)``: true where a padded batch holds a row."""
        steps = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        return steps < self.lengths[:, None]

    @cached_property
    def padded_positions(self) -> Tensor:
        """For each row, its index in a padded batch flattened to ``(n * max_seqlen, ...)``."""
        return self.sequence_ids * self.max_seqlen + self.positions

    @property
    def is_uniform(self) -> bool:
        """Whether all sequences have the same length, so that padding adds nothing."""
        return self.num_tokens == len(self) * self.max_seqlen

    def pad(self, rows: Tensor) -> Tensor:
        """Return packed rows as a padded batch ``(n, max_seqlen, ...)``, filled with zeros."""
        shape = (len(self), self.max_seqlen, *rows.shape[1:])
        if self.is_uniform:
            return rows.reshape(shape)
        empty = rows.new_zeros((len(self) * self.max_seqlen, *rows.shape[1:]))
        return empty.index_copy(0, self.padded_positions, rows).view(shape)

    def unpad(self, padded: Tensor) -> Tensor:
        """Return the packed rows of a padded batch, without the padding."""
        rows = padded.flatten(0, 1)
        return rows if self.is_uniform else rows.index_select(0, self.padded_positions)

    def first(self, rows: Tensor) -> Tensor:
        """Return the first row of each sequence, ``(n, ...)``; no sequence may be empty."""
        return rows[self.cu_seqlens[:-1]]

    def mean(self, rows: Tensor) -> Tensor:
        """Return the mean row of each sequence, summed in float32; zero for an empty one."""
        sums = torch.zeros(len(self), *rows.shape[1:], device=rows.device, dtype=torch.float32)
        sums.index_add_(0, self.sequence_ids, rows.float())
        return (sums / self.lengths.clamp(min=1)[:, None]).to(rows.dtype)


def join_packings(packings: Sequence[Packing]) -> Packing:
    """Return the packing of all sequences of the first, then all of the second, and so on."""
    parts, total = [packings[0].cu_seqlens], packings[0].num_tokens
    for packing in packings[1:]:
        parts.append(packing.cu_seqlens[1:] + total)
        total += packing.num_tokens
    return Packing(torch.cat(parts), max(one.max_seqlen for one in packings), total)


def concat_packings(first: Packing, second: Packing) -> tuple[Packing, Tensor]:
    """Concatenate the n-th sequence of ``first`` with the n-th of ``second``.

    Returns:
        The joint packing, and an index such that
        ``torch.cat([rows_first, rows_second])[index]`` are the joint rows.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} sequences cannot be joined with {len(second)}")
    lengths = (first.lengths + second.lengths).to(torch.int32)
    cu_seqlens = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    # The sum of the greatest lengths bounds the greatest sum, without waiting for the device.
    joint = Packing(
        cu_seqlens, first.max_seqlen + second.max_seqlen, first.num_tokens + second.num_tokens
    )
    index = torch.empty(joint.num_tokens, dtype=torch.long, device=cu_seqlens.device)
    at_first = cu_seqlens[:-1][first.sequence_ids] + first.positions
    at_second = (
        cu_seqlens[:-1][second.sequence_ids] + first.lengths[second.sequence_ids] + second.positions
    )
    rows = torch.arange(joint.num_tokens, device=cu_seqlens.device)
    index[at_first] = rows[: first.num_tokens]
    index[at_second] = rows[first.num_tokens :]
    return joint, index
