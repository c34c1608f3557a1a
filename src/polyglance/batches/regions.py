"""The regions of a corpus's images as flat tensors; a batch is one gather on their device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.nn.packed_pairs import Regions
from polyglance.nn.packing import Packing, to_device
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.utils.ragged import ragged_arange
from polyglance.vision.store import FeatureStore

Indices = NDArray[np.int64]

_GLOBAL_BOX = np.array([0, 0, 1, 1], np.float32)
"""The box of the global region, which is the whole image."""
_READ_BATCH = 256
"""Images read from a store at a time."""


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

    def global_rows(self, images: Indices) -> Tensor | None:
        """Return the row of the global region for each region of `take`, on the CPU.

        None for a table without global regions.
        """
        if not self.prepend_global:
            return None
        lengths = self.lengths[images]
        return torch.from_numpy(np.repeat(np.cumsum(lengths) - lengths, lengths))

    def take(
        self, images: Indices, generator: np.random.Generator | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """Gather the regions of images.

        Args:
            images: their numbers, repeated at will.
            generator: samples a view for each image; None takes ``view`` for all.
            view: the view to take without a generator.

        Returns:
            The packed regions and their labels, ``(regions,)``.
        """
        lengths, device = self.lengths[images], self.features.device
        rows = ragged_arange(self.starts[images], lengths)
        index = to_device(torch.from_numpy(rows), device)
        packing = Packing.of(lengths, device)
        per_view = int(self.lengths.sum())
        feature_index = index + view * per_view if view else index
        if generator is not None and self.views > 1:
            views = np.repeat(generator.integers(self.views, size=len(images)), lengths)
            feature_index = to_device(torch.from_numpy(rows + views * per_view), device)
        features = self.features[feature_index].float()
        return Regions(features, self.boxes[index], packing), self.labels[index]
