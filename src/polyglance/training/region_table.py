"""The regions of many pictures on the accelerator, so that a batch is one gather there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.nn.joint import Regions
from polyglance.nn.packing import Packing
from polyglance.nn.sending import sent
from polyglance.objectives.masked_regions import NO_LABEL
from polyglance.text.flat import spread
from polyglance.vision.store import FeatureStore

Indices = NDArray[np.int64]

_WHOLE = np.array([0, 0, 1, 1], np.float32)
"""The box of a whole picture."""
_AT_ONCE = 256
"""Pictures read from a store at a time."""


class RegionTable:
    """Features, boxes and labels of regions, picture after picture."""

    def __init__(
        self,
        features: Tensor,
        boxes: Tensor,
        labels: Tensor,
        lengths: Indices,
        device: torch.device | str = "cpu",
        *,
        views: int = 1,
        whole_first: bool = False,
    ) -> None:
        """``labels`` are the surest class of each region, or `NO_LABEL`.

        ``lengths`` are the regions a picture. With several ``views`` all features come
        once for each, view after view: other looks at the same pictures, of which
        training draws one. With ``whole_first`` the first region of each picture is the
        whole of it.
        """
        self.views, self.whole_first = views, whole_first
        self.features, self.boxes = features.to(device), boxes.to(device)
        self.labels = labels.to(device)
        self.lengths = np.asarray(lengths, np.int64)
        if not self.lengths.all():
            raise ValueError(f"picture {int(np.argmin(self.lengths))} has no regions")
        self.starts = np.cumsum(self.lengths) - self.lengths

    @classmethod
    def of_store(
        cls,
        store: FeatureStore,
        keys: Sequence[str],
        *,
        longest: int | None = None,
        whole_first: bool = False,
        device: torch.device | str = "cpu",
    ) -> RegionTable:
        """Those of a feature store, in the order of ``keys``, the first ``longest`` of each.

        With ``whole_first`` the vector of the whole picture is the first region, without a
        label. In a store without labels no region has one.
        """
        features, boxes, labels, lengths = [], [], [], []
        for start in range(0, len(keys), _AT_ONCE):
            tokens = store.gather(keys[start : start + _AT_ONCE])
            first = np.cumsum(tokens.lengths) - tokens.lengths
            dense, box = tokens.dense(), tokens.boxes
            label = np.full(len(dense), NO_LABEL, np.int64)
            if store.info.labels:
                label = tokens.label_ids[:, 0].astype(np.int64)
            counts = tokens.lengths
            if whole_first:
                dense = np.insert(dense, first, tokens.dense_wholes(), axis=0)
                box = np.insert(box, first, _WHOLE, axis=0)
                label = np.insert(label, first, NO_LABEL)
                first, counts = first + np.arange(len(first)), counts + 1
            kept = counts if longest is None else np.minimum(counts, longest)
            rows = spread(first, kept)
            features.append(torch.from_numpy(dense[rows].astype(np.float16)))
            boxes.append(torch.from_numpy(box[rows]))
            labels.append(torch.from_numpy(label[rows]))
            lengths.append(kept)
        if not features:
            raise PolyglanceError(f"{store.path}: no picture of the corpus is in it")
        return cls(
            torch.cat(features),
            torch.cat(boxes),
            torch.cat(labels),
            np.concatenate(lengths),
            device,
            whole_first=whole_first,
        )

    @classmethod
    def joined(cls, tables: Sequence[RegionTable]) -> RegionTable:
        """The pictures of several tables with equally many views, one after another."""
        kinds = {(table.views, table.whole_first) for table in tables}
        if len(kinds) != 1:
            raise ValueError(
                "tables of other views, or of which some begin with wholes, cannot be joined:"
                f" {sorted(kinds)}"
            )
        count, whole_first = kinds.pop()
        looks = [table.features.chunk(count) for table in tables]
        return cls(
            torch.cat([look[view] for view in range(count) for look in looks]),
            torch.cat([table.boxes for table in tables]),
            torch.cat([table.labels for table in tables]),
            np.concatenate([table.lengths for table in tables]),
            tables[0].features.device,
            views=count,
            whole_first=whole_first,
        )

    @classmethod
    def of_views(cls, tables: Sequence[RegionTable]) -> RegionTable:
        """Tables of the same pictures, with as many regions each, as views of one."""
        first = tables[0]
        if any(not np.array_equal(table.lengths, first.lengths) for table in tables):
            raise ValueError("views of the same pictures have equally many regions")
        return cls(
            torch.cat([table.features for table in tables]),
            first.boxes,
            first.labels,
            first.lengths,
            first.features.device,
            views=sum(table.views for table in tables),
            whole_first=first.whole_first,
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """Of the features."""
        return self.features.shape[1]

    def wholes(self, items: Indices) -> Tensor | None:
        """For each region of these pictures, as `take` has them, the row of the whole picture.

        None where no region is one. On the processor.
        """
        if not self.whole_first:
            return None
        lengths = self.lengths[items]
        return torch.from_numpy(np.repeat(np.cumsum(lengths) - lengths, lengths))

    def take(
        self, items: Indices, generator: np.random.Generator | None = None, *, view: int = 0
    ) -> tuple[Regions, Tensor]:
        """The regions of these pictures, any number of times each, and their labels.

        ``generator`` draws a view for each; without it all are of one ``view``.
        """
        lengths, device = self.lengths[items], self.features.device
        rows = spread(self.starts[items], lengths)
        index = sent(torch.from_numpy(rows), device)
        packing = Packing.of(lengths, device)
        seen = index + view * int(self.lengths.sum()) if view else index
        if generator is not None and self.views > 1:
            views = np.repeat(generator.integers(self.views, size=len(items)), lengths)
            drawn = rows + views * int(self.lengths.sum())
            seen = sent(torch.from_numpy(drawn), device)
        features = self.features[seen].float()
        return Regions(features, self.boxes[index], packing), self.labels[index]
