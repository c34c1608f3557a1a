"""A detector's objects as visual tokens beside the cells of a grid.

A backbone's classes are seldom what captions mention: ImageNet has a hundred kinds of dogs, and
people are none of its classes. A detector's are: COCO's eighty are persons, dogs, cars, chairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyglance.errors import PolyglanceError
from polyglance.vision.backbone import Backbone
from polyglance.vision.detection import Detections, Detector, open_detector
from polyglance.vision.tokens import UNLABELLED, VisualTokens, zero_spans
from polyglance.vision.torch_backbone import TorchBackbone

_MIN_SIDE = 1e-3
"""Thinner boxes are widened, so that they cover something."""


class DetectedBackbone:
    """A `Backbone` whose tokens are the cells of a grid and then a detector's objects.

    An object's vector is the mean of the feature map over its box, as a cell's is over the cell.
    Only objects have labels: numbers among the detector's classes that have names.
    """

    def __init__(self, backbone: TorchBackbone, detector: Detector) -> None:
        """Combine a backbone and a detector."""
        self.backbone, self.detector = backbone, detector
        self.name, self.size, self.width = backbone.name, backbone.size, backbone.width
        names = detector.class_names
        self._named = np.array([n for n, name in enumerate(names) if name is not None])
        self.num_classes = len(self._named)
        both = f"{backbone.fingerprint} {detector.fingerprint}"
        self.fingerprint = hashlib.sha256(both.encode()).hexdigest()

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`; objects follow the cells, the most certain first."""
        maps = self.backbone.feature_map(pictures)
        cells = self.backbone.pool(maps, grid=grid, labels=0)
        objects = self.detector.detect(pictures)
        vectors = mean_over_boxes(maps, [found.boxes for found in objects])
        return [
            self._join(tokens, found, features, labels)
            for tokens, found, features in zip(cells, objects, vectors, strict=True)
        ]

    def _join(
        self, cells: VisualTokens, objects: Detections, features: NDArray[np.float32], labels: int
    ) -> VisualTokens:
        """Return the tokens of cells and objects."""
        assert objects.class_scores is not None
        scores = objects.class_scores[:, self._named]
        count = min(labels, self.num_classes)
        # An object's own class comes first, also where another one has a higher score.
        own = np.searchsorted(self._named, objects.class_ids)
        ranking = scores.copy()
        ranking[np.arange(len(own)), own] = np.inf
        best = np.argsort(-ranking, axis=1, kind="stable")[:, :count]
        shares = scores / scores.sum(1, keepdims=True).clip(min=1)
        ids = np.full((len(cells), count), UNLABELLED, np.uint16)
        return replace(
            cells,
            features=np.concatenate([cells.features, features]),
            boxes=np.concatenate([cells.boxes, objects.boxes]),
            label_ids=np.concatenate([ids, best.astype(np.uint16)]),
            label_probs=np.concatenate(
                [np.zeros(ids.shape), np.take_along_axis(shares, best, 1)]
            ).astype(np.float16),
            spans=zero_spans(len(cells) + len(objects)),
        )


def detected_backbone(
    backbone: Backbone, detector: str, *, max_objects: int, min_score: float, device: str = "cpu"
) -> DetectedBackbone:
    """Add a detector's objects to a backbone.

    Args:
        backbone: Gives the vectors.
        detector: A name of known weights, or a folder.
        max_objects: Maximum number of a picture's objects.
        min_score: Objects below this score are dropped.
        device: Torch's device.
    """
    if not isinstance(backbone, TorchBackbone):
        raise PolyglanceError(
            f"{backbone.name} gives no feature map to take objects from: choose another backbone"
        )
    opened = open_detector(detector, min_score=min_score, max_objects=max_objects, device=device)
    return DetectedBackbone(backbone, opened)


@torch.inference_mode()
def mean_over_boxes(
    maps: Tensor, boxes: Sequence[NDArray[np.float32]]
) -> list[NDArray[np.float32]]:
    """Return the mean of feature maps over boxes; cells at their edges count by their share.

    Args:
        maps: ``(pictures, rows, columns, channels)``.
        boxes: Of each picture, ``(n, 4)``: left, top, right, bottom in fractions of it.

    Returns:
        Of each picture, ``(n, channels)``.
    """
    counts = [len(some) for some in boxes]
    every = torch.from_numpy(np.concatenate(boxes)).to(maps)
    picture = torch.arange(len(maps), device=maps.device).repeat_interleave(
        torch.tensor(counts, device=maps.device)
    )
    left, top, right, bottom = every.unbind(1)
    down, across = _shares(top, bottom, maps.shape[1]), _shares(left, right, maps.shape[2])
    means = torch.einsum("nh,nw,nhwc->nc", down, across, maps[picture])
    return np.split(means.float().cpu().numpy(), np.cumsum(counts)[:-1])


def _shares(start: Tensor, end: Tensor, parts: int) -> Tensor:
    """Return how much of each interval falls into equal parts of 0 to 1; rows sum to 1."""
    middle = ((start + end) / 2).clamp(_MIN_SIDE / 2, 1 - _MIN_SIDE / 2)
    half = ((end - start) / 2).clamp(min=_MIN_SIDE / 2)
    edges = torch.linspace(0, 1, parts + 1, device=start.device, dtype=start.dtype)
    overlap = torch.minimum((middle + half)[:, None], edges[1:]) - torch.maximum(
        (middle - half)[:, None], edges[:-1]
    )
    overlap = overlap.clamp(min=0)
    return overlap / overlap.sum(1, keepdim=True)
