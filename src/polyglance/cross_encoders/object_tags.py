"""Objects that a detector finds in an image, appended to a question as words.

"How many zebras are there?" becomes "How many zebras are there? zebra 2 3, person 1". A
cross-encoder that knows words in many languages then need not learn to recognise or count
zebras from a few thousand questions. Object tags as words are an idea of Oscar's (Li et al.
2020, https://arxiv.org/abs/2004.06165), which has no counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polyglance.batches.inputs import read_pixels
from polyglance.config import validate_fields
from polyglance.errors import PolyglanceError
from polyglance.vision.decoding import Source
from polyglance.vision.detection import Detections, Detector, open_detector

if TYPE_CHECKING:
    from PIL.Image import Image

_IMAGE_BATCH = 512
"""Images whose pixels are in memory at a time."""


@dataclass(frozen=True)
class ObjectTagsConfig:
    """Which detections become tags."""

    detector: str = "ssdlite-mobilenet-v2"
    """A name of `polyglance weights list`, or a folder of such weights."""
    high_score: float = 0.3
    """Detections above this score make the first count."""
    low_score: float = 0.15
    """Detections above this score make the second count."""
    max_classes: int = 6
    """Classes per image, those with the highest scores first."""

    def __post_init__(self) -> None:
        scores = ("high_score", "low_score")
        validate_fields(self, lambda value: 0 < value <= 1, "a share from 0 to 1", *scores)
        validate_fields(self, lambda value: value >= 1, "1 or more", "max_classes")
        if self.low_score > self.high_score:
            raise PolyglanceError("low_score is above high_score: lower it")


class ObjectTagger:
    """Lists the objects of images in words."""

    def __init__(self, config: ObjectTagsConfig, *, device: str = "cpu") -> None:
        self.config = config
        self.detector: Detector = open_detector(
            config.detector, min_score=config.low_score, device=device
        )

    def tag(self, images: Sequence[Source | Image]) -> list[str]:
        """Return the tags of each image, an empty string where nothing was detected."""
        tags = []
        for start in range(0, len(images), _IMAGE_BATCH):
            pixels = read_pixels(images[start : start + _IMAGE_BATCH], self.detector.size).numpy()
            tags += [self.describe(detections) for detections in self.detector.detect(pixels)]
        return tags

    def describe(self, detections: Detections) -> str:
        """Name each class with its count at the high and at the low score."""
        certain = detections.scores >= self.config.high_score
        classes, first = np.unique(detections.class_ids, return_index=True)
        tags = []
        for class_id in classes[np.argsort(first)][: self.config.max_classes]:
            own = detections.class_ids == class_id
            # One number where both agree; a class is there at least once if it was detected.
            counts = dict.fromkeys(
                max(count, 1) for count in (int(np.sum(own & certain)), int(np.sum(own)))
            )
            tags.append(" ".join([str(self.detector.class_names[class_id]), *map(str, counts)]))
        return ", ".join(tags)


def append_tags(question: str, tags: str) -> str:
    """Return the question followed by the image's tags."""
    return f"{question} {tags}" if tags else question
