"""The regions of a corpus's images as flat tensors; a batch is one gather on their device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.batches.batch import Batch
from polyglance.errors import PolyglanceError
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.store import FeatureStore
from polyglance.vision.tokens import UNLABELLED

Indices = NDArray[np.int64]

_GLOBAL_BOX = np.array([0, 0, 1, 1], np.float32)
"""The box of the global region, which is the whole image."""
_READ_BATCH = 256
"""Images read from a store at a time."""


class RegionBatch(Protocol):
    """The regions of some images, sampled on the CPU; a frozen dataclass of tensors."""

    @property
    def packing(self) -> Packing:
        """One sequence per image."""
        ...

    @property
    def labels(self) -> Tensor:
        """``(regions,)`` labels, or `NO_LABEL`."""
        ...

    @property
    def global_rows(self) -> Tensor | None:
        """For each region the row of its image's global region, if images have one."""
        ...

    def load(self) -> Regions:
        """Return features in float32, and boxes, where the batch was copied to."""
        ...


class RegionSource(Protocol):
    """The regions of a corpus's images: a table in memory, or a store on disk."""

    lengths: Indices
    """``(images,)``: regions per image."""
    prepend_global: bool
    """Whether each image's first region is the whole image."""
    views: int
    """Augmented views of each image."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> torch.device:
        """Where training computes with the regions."""
        ...

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        ...

    @property
    def has_labels(self) -> bool:
        """Whether any region has a label."""
        ...

    def max_label(self) -> int:
        """Return the greatest label of any region, or `NO_LABEL`."""
        ...

    def select(self, images: Indices, draws: ItemDraws | None = None) -> RegionBatch:
        """Gather what a step needs of images, on the CPU; ``draws`` sample their views."""
        ...

    def take(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Return the packed regions of images on the device, and their labels."""
        ...


@dataclass(frozen=True, eq=False)
class IndexedRegions(Batch):
    """Regions of a `RegionTable` by their rows; loading is one gather on the table's device."""

    table: RegionTable
    rows: Tensor
    """``(regions,)``: of boxes."""
    feature_rows: Tensor
    """``(regions,)``: of features, in one of the views."""
    packing: Packing
    labels: Tensor
    global_rows: Tensor | None

    def load(self) -> Regions:
        """Gather features and boxes on the table's device."""
        device = self.table.device
        rows, feature_rows = to_device(self.rows, device), to_device(self.feature_rows, device)
        packing = Packing(
            to_device(self.packing.cu_seqlens, device),
            self.packing.max_seqlen,
            self.packing.num_tokens,
        )
        return Regions(self.table.features[feature_rows].float(), self.table.boxes[rows], packing)


class RegionTable:
    """Features, boxes and labels of regions, image after image.

    A table may hold several views of each image (augmentations), with the same boxes and
    labels; training samples one of them.
    """

    def __init__(
        self,
        features: Tensor,
        boxes: Tensor,
        labels: Tensor,
        lengths: Indices,
        device: torch.device | str = "cpu",
        *,
        views: int = 1,
        prepend_global: bool = False,
    ) -> None:
        """Move the tensors to ``device``.

        Args:
            features: ``(views * regions, width)``, view after view.
            boxes: ``(regions, 4)``.
            labels: ``(regions,)``, the most probable class of each region, or `NO_LABEL`.
            lengths: ``(images,)``, regions per image.
            device: where the table lies.
            views: how often all features are there.
            prepend_global: whether each image's first region is the whole image.
        """
        self.views, self.prepend_global = views, prepend_global
        self.features, self.boxes = features.to(device), boxes.to(device)
        self.labels = labels.to(device)
        self.lengths = np.asarray(lengths, np.int64)
        if not self.lengths.all():
            raise ValueError(f"image {int(np.argmin(self.lengths))} has no regions")
        self.starts = np.cumsum(self.lengths) - self.lengths

    @classmethod
    def from_store(
        cls,
        store: FeatureStore,
        keys: Sequence[str],
        *,
        max_regions: int | None = None,
        prepend_global: bool = False,
        device: torch.device | str = "cpu",
    ) -> RegionTable:
        """Read a feature store.

        Args:
            store: the store; without labels in it, no region has one.
            keys: the images, in this order.
            max_regions: keep the first so many of each image.
            prepend_global: add the whole image's vector as first region, without a label.
            device: where the table shall lie.

        Returns:
            The regions of all keys.
        """
        features, boxes, labels, lengths = [], [], [], []
        for start in range(0, len(keys), _READ_BATCH):
            tokens = store.gather(keys[start : start + _READ_BATCH])
            first = np.cumsum(tokens.lengths) - tokens.lengths
            dense, box = tokens.dense(), tokens.boxes
            label = np.full(len(dense), NO_LABEL, np.int64)
            if store.info.labels:
                label = tokens.label_ids[:, 0].astype(np.int64)
                label[label == UNLABELLED] = NO_LABEL
            counts = tokens.lengths
            if prepend_global:
                dense = np.insert(dense, first, tokens.dense_global(), axis=0)
                box = np.insert(box, first, _GLOBAL_BOX, axis=0)
                label = np.insert(label, first, NO_LABEL)
                first, counts = first + np.arange(len(first)), counts + 1
            if max_regions is not None:
                counts = np.minimum(counts, max_regions)
            rows = ragged_arange(first, counts)
            features.append(torch.from_numpy(dense[rows].astype(np.float16)))
            boxes.append(torch.from_numpy(box[rows]))
            labels.append(torch.from_numpy(label[rows]))
            lengths.append(counts)
        if not features:
            raise PolyglanceError(f"{store.path} holds no image of the corpus")
        return cls(
            torch.cat(features),
            torch.cat(boxes),
            torch.cat(labels),
            np.concatenate(lengths),
            device,
            prepend_global=prepend_global,
        )

    @classmethod
    def concat(cls, tables: Sequence[RegionTable]) -> RegionTable:
        """Concatenate the images of tables with the same number of views."""
        layouts = {(table.views, table.prepend_global) for table in tables}
        if len(layouts) != 1:
            raise ValueError(
                "tables can be concatenated only with equal views and prepend_global:"
                f" {sorted(layouts)}"
            )
        views, prepend_global = layouts.pop()
        by_view = [table.features.chunk(views) for table in tables]
        return cls(
            torch.cat([chunks[view] for view in range(views) for chunks in by_view]),
            torch.cat([table.boxes for table in tables]),
            torch.cat([table.labels for table in tables]),
            np.concatenate([table.lengths for table in tables]),
            tables[0].features.device,
            views=views,
            prepend_global=prepend_global,
        )

    @classmethod
    def stack_views(cls, tables: Sequence[RegionTable]) -> RegionTable:
        """Combine tables of the same images, with equal numbers of regions, as views of one."""
        first = tables[0]
        if any(not np.array_equal(table.lengths, first.lengths) for table in tables):
            raise ValueError("views of the same images have equal numbers of regions")
        return cls(
            torch.cat([table.features for table in tables]),
            first.boxes,
            first.labels,
            first.lengths,
            first.features.device,
            views=sum(table.views for table in tables),
            prepend_global=first.prepend_global,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        return self.features.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the table lies."""
        return self.features.device

    @property
    def has_labels(self) -> bool:
        """Whether any region has a label."""
        return bool((self._cpu_labels != NO_LABEL).any())

    def max_label(self) -> int:
        """Return the greatest label of any region, or `NO_LABEL`."""
        return int(self._cpu_labels.max())

    def select(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> IndexedRegions:
        """Find the rows of images, on the CPU.

        Args:
            images: their numbers, repeated at will.
            draws: samples a view for each image; None takes ``view`` for all.
            view: the view to take without draws.
        """
        lengths = self.lengths[images]
        rows = torch.from_numpy(ragged_arange(self.starts[images], lengths))
        feature_rows = rows
        if draws is not None and self.views > 1:
            views = (draws.per_item("views") * self.views).long()
            views = views.repeat_interleave(torch.from_numpy(lengths))
            feature_rows = rows + views * self._per_view
        elif view:
            feature_rows = rows + view * self._per_view
        return IndexedRegions(
            self,
            rows,
            feature_rows,
            Packing.of(lengths),
            self._cpu_labels[rows],
            first_rows(lengths) if self.prepend_global else None,
        )

    def take(
        self, images: Indices, draws: ItemDraws | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Return the packed regions of images, as `select` finds them, and their labels."""
        selected = self.select(images, draws, view=view)
        return selected.load(), to_device(selected.labels, self.device)

    @cached_property
    def _per_view(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def _cpu_labels(self) -> Tensor:
        return self.labels.cpu()


def first_rows(lengths: Indices) -> Tensor:
    """Return the first row of its sequence for each row of packed sequences."""
    return torch.from_numpy(np.repeat(np.cumsum(lengths) - lengths, lengths))
