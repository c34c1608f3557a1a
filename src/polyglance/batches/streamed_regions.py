"""Regions of a corpus larger than memory: rows of feature stores, read when they are sampled.

Features stay as they are stored (int8 with a scale a vector, or float16) until they are on the
device, which takes a quarter or half of float32's reads, copies and pinned memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch, PendingReads
from polyglance.batches.regions import first_rows
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.store_reader import Reads, StoreReader
from polyglance.vision.tokens import UNLABELLED

Indices = NDArray[np.int64]

RESIDENT_BYTES = 1 << 30
"""Boxes, labels and scales are kept in memory up to this size, and read with features beyond."""
_TORCH = {"int8": torch.int8, "float16": torch.float16}
_SMALL = ("scales", "boxes", "label_ids")


@dataclass(frozen=True, eq=False)
class StoredRegions(Batch):
    """Regions as they are stored."""

    values: Tensor
    """``(regions, width)`` int8 or float16."""
    scales: Tensor | None
    """``(regions,)`` factors of int8 values."""
    boxes: Tensor
    packing: Packing
    labels: Tensor
    global_rows: Tensor | None
    reads: tuple[PendingReads, ...] = ()

    def load(self) -> Regions:
        """Return the features in float32, where the batch was copied to."""
        self.wait()
        if self.scales is None:
            return Regions(self.values.float(), self.boxes, self.packing)
        # Rounded as in a table in memory, so that both train alike.
        features = (self.values * self.scales[:, None]).half().float()
        return Regions(features, self.boxes, self.packing)


class StreamedRegions:
    """A `RegionSource` over stores whose features stay on disk."""

    def __init__(
        self,
        stores: Sequence[tuple[StoreReader, Indices]],
        *,
        max_regions: int | None = None,
        prepend_global: bool = False,
        device: torch.device | str = "cpu",
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        """Prepare to read.

        Args:
            stores: Stores with the same width and dtype, each with the items of its images;
                images are numbered through all of them.
            max_regions: Keep the first so many regions of each image.
            prepend_global: Add the whole image's vector as first region, without a label.
            device: Where training computes.
            resident_bytes: The most that boxes, labels and scales may occupy in memory.
        """
        layouts = {(reader.info.width, reader.info.dtype) for reader, _ in stores}
        if len(layouts) != 1:
            raise ValueError(f"stores can be streamed together only with one layout: {layouts}")
        self._width, self._dtype = layouts.pop()
        self._device, self.prepend_global = torch.device(device), prepend_global
        self.views = 1
        self.readers = [reader for reader, _ in stores]
        self._items = np.concatenate([np.asarray(items, np.int64) for _, items in stores])
        counts = [len(items) for _, items in stores]
        self._store = np.repeat(np.arange(len(stores), dtype=np.int16), counts)
        counts_by_store = [reader.lengths[items] for reader, items in stores]
        lengths = np.concatenate(counts_by_store) + int(prepend_global)
        if max_regions is not None:
            lengths = np.minimum(lengths, max_regions)
        if not lengths.all():
            raise ValueError(f"image {int(np.argmin(lengths))} has no regions")
        self.lengths = lengths
        tokens = sum(int(reader.lengths.sum()) for reader in self.readers)
        self._small: list[dict[str, NDArray[np.generic]]] | None = None
        if tokens * _SMALL_BYTES <= resident_bytes:
            self._small = [
                {name: _read_small(reader, name) for name in _SMALL} for reader in self.readers
            ]
            self._token_start = [
                np.cumsum(reader.lengths) - reader.lengths for reader in self.readers
            ]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        return self._width

    @property
    def device(self) -> torch.device:
        """Where training computes with the regions."""
        return self._device

    @property
    def has_labels(self) -> bool:
        """Whether any region has a label."""
        return any(reader.info.labels for reader in self.readers)

    def max_label(self) -> int:
        """Return the greatest label of any region, or `NO_LABEL`; may read all of them once."""
        labels = [
            small["label_ids"]
            for small in self._small
            or ({"label_ids": _read_small(r, "label_ids")} for r in self.readers)
        ]
        highest = (some[some != UNLABELLED].max(initial=0) for some in labels if len(some))
        return max(map(int, highest), default=NO_LABEL)

    @property
    def is_local(self) -> bool:
        """Whether any image can be read at any time at little cost."""
        return all(reader.files.is_local for reader in self.readers)

    @property
    def image_bytes(self) -> int:
        """The mean size of an image's features on disk."""
        return int(self.lengths.mean() * self._width * _TORCH[self._dtype].itemsize)

    def select(self, images: Indices, draws: ItemDraws | None = None) -> StoredRegions:
        """Begin to read the regions of images into (pinned) memory; there are no views to draw.

        Features may still be on their way when this returns: batches wait for them when they
        are copied or loaded.
        """
        lengths = self.lengths[images]
        starts = np.cumsum(lengths) - lengths
        num_regions, pin = int(lengths.sum()), self._device.type == "cuda"
        values = torch.empty((num_regions, self._width), dtype=_TORCH[self._dtype], pin_memory=pin)
        scales = torch.ones(num_regions, pin_memory=pin)
        boxes = torch.empty((num_regions, 4), pin_memory=pin)
        labels = torch.full((num_regions,), NO_LABEL)
        out = {"features": values.numpy(), "scales": scales.numpy(), "boxes": boxes.numpy()}
        reads: list[Reads] = []
        for number in range(len(self.readers)):
            chosen = np.flatnonzero(self._store[images] == number)
            if len(chosen):
                items = self._items[images[chosen]]
                reads += self._read(
                    number, items, lengths[chosen], starts[chosen], out, labels.numpy()
                )
        labels[labels == UNLABELLED] = NO_LABEL
        return StoredRegions(
            values,
            scales if self._dtype == "int8" else None,
            boxes,
            Packing.of(lengths),
            labels,
            first_rows(lengths) if self.prepend_global else None,
            tuple(reads),
        )

    def soft_labels(self, images: Indices) -> tuple[Tensor, Tensor]:
        """Read the most probable labels of images' regions and their probabilities.

        Returns:
            ``(regions, k)`` each; `NO_LABEL` and 0 for regions without a label.
        """
        lengths, first = self.lengths[images], int(self.prepend_global)
        starts = np.cumsum(lengths) - lengths
        k = min(reader.info.labels for reader in self.readers)
        ids = np.full((int(lengths.sum()), k), NO_LABEL, np.int64)
        probabilities = np.zeros(ids.shape, np.float32)
        for number, reader in enumerate(self.readers):
            chosen = np.flatnonzero(self._store[images] == number)
            if not len(chosen):
                continue
            items, counts = self._items[images[chosen]], lengths[chosen] - first
            rows = ragged_arange(starts[chosen] + first, counts)
            places = np.cumsum(counts) - counts
            for name, target in (("label_ids", ids), ("label_probs", probabilities)):
                dtype = np.uint16 if name == "label_ids" else np.float16
                labels = np.empty((len(rows), reader.info.labels), dtype)
                reader.read(name, items, counts, labels, places)
                target[rows] = labels[:, :k]
        ids[ids == UNLABELLED] = NO_LABEL
        return torch.from_numpy(ids), torch.from_numpy(probabilities)

    def take(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Return the packed regions of images on the device, and their labels."""
        batch = self.select(images, draws).to(self._device)
        return batch.load(), to_device(batch.labels, self._device)

    def _read(
        self,
        store: int,
        items: Indices,
        lengths: Indices,
        starts: Indices,
        out: dict[str, NDArray[np.generic]],
        labels: NDArray[np.int64],
    ) -> list[Reads]:
        """Read images of one store to their places in the batch; features may still be read."""
        reader, first = self.readers[store], int(self.prepend_global)
        reads = []
        if first:
            ones = np.ones(len(items), np.int64)
            reads = [reader.start_read("wholes", items, ones, out["features"], starts)]
            if self._dtype == "int8":
                reads += [reader.start_read("whole_scales", items, ones, out["scales"], starts)]
            out["boxes"][starts] = (0, 0, 1, 1)
        counts, starts = lengths - first, starts + first
        reads += [reader.start_read("features", items, counts, out["features"], starts)]
        rows = ragged_arange(starts, counts)
        if self._small is not None:
            small = self._small[store]
            source = ragged_arange(self._token_start[store][items], counts)
            out["boxes"][rows] = small["boxes"][source]
            if self._dtype == "int8":
                out["scales"][rows] = small["scales"][source]
            if reader.info.labels:
                labels[rows] = small["label_ids"][source]
            return reads
        reader.read("boxes", items, counts, out["boxes"], starts)
        if self._dtype == "int8":
            reader.read("scales", items, counts, out["scales"], starts)
        if reader.info.labels:
            ids = np.empty((len(labels), reader.info.labels), np.uint16)
            reader.read("label_ids", items, counts, ids, starts)
            labels[rows] = ids[rows, 0]
        return reads


_SMALL_BYTES = 4 + 16 + 2
"""Of a region: its scale, box and most probable label."""


def _read_small(reader: StoreReader, name: str) -> NDArray[np.generic]:
    """Read an array of all regions; of labels the most probable ones."""
    if name != "label_ids":
        return reader.read_all(name)
    if not reader.info.labels:
        return np.zeros(0, np.uint16)
    return reader.read_all(name, columns=1)[:, 0]
