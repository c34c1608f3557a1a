"""Features of one network with the labels of another.

A network that was trained beside captions sees better what people speak of, and has
forgotten what classes are. Whoever needs both asks two.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyglance.vision.backbone import Backbone
from polyglance.vision.tokens import VisualTokens


class LabelledBy:
    """A `Backbone` whose cells are labelled by another one that looks at the same pictures."""

    def __init__(self, sees: Backbone, labels: Backbone) -> None:
        """Both take squares of the same size."""
        if sees.size != labels.size:
            raise ValueError(f"squares are {sees.size} pixels wide, or {labels.size}: not both")
        self.sees, self.labels = sees, labels
        self.name, self.size, self.width = sees.name, sees.size, sees.width
        self.classes = labels.classes
        both = f"{sees.fingerprint} {labels.fingerprint}"
        self.fingerprint = hashlib.sha256(both.encode()).hexdigest()

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`."""
        seen = self.sees.encode(pictures, grid=grid, labels=0)
        named = self.labels.encode(pictures, grid=grid, labels=labels)
        return [
            replace(tokens, label_ids=known.label_ids, label_probs=known.label_probs)
            for tokens, known in zip(seen, named, strict=True)
        ]
