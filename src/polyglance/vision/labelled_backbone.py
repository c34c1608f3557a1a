"""Features of one backbone with the class labels of another.

A backbone fine-tuned on captions gives better features but has lost its classifier; a
second backbone with an intact classifier then provides the labels.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyglance.vision.backbone import Backbone
from polyglance.vision.tokens import VisualTokens


class LabelledBackbone:
    """A `Backbone` with the features of one backbone and the labels of another."""

    def __init__(self, features: Backbone, labels: Backbone) -> None:
        """Combine two backbones of the same input size."""
        if features.size != labels.size:
            raise ValueError(
                f"backbones take pictures of {features.size} and {labels.size} pixels: open both"
                " at one size"
            )
        self.feature_backbone, self.label_backbone = features, labels
        self.name, self.size, self.width = features.name, features.size, features.width
        self.num_classes = labels.num_classes
        both = f"{features.fingerprint} {labels.fingerprint}"
        self.fingerprint = hashlib.sha256(both.encode()).hexdigest()

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`."""
        features = self.feature_backbone.encode(pictures, grid=grid, labels=0)
        labelled = self.label_backbone.encode(pictures, grid=grid, labels=labels)
        return [
            replace(tokens, label_ids=other.label_ids, label_probs=other.label_probs)
            for tokens, other in zip(features, labelled, strict=True)
        ]
