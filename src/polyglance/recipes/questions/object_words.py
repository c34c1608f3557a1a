"""What a detector finds in pictures, told in words behind a question.

"How many zebras are there?" is read as "How many zebras are there? zebra 2 3, person 1": a
reader that knows words in many languages need not learn to recognise a zebra from some
thousand questions, let alone to count them. Object tags as words are an idea of Oscar's (Li et
al. 2020, https://arxiv.org/abs/2004.06165), which has no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyglance.config import check
from polyglance.errors import PolyglanceError
from polyglance.training.visuals import read_pixels
from polyglance.vision.detection import Detector, Objects, open_detector

if TYPE_CHECKING:
    from PIL.Image import Image

_AT_ONCE = 512
"""Pictures whose pixels are held at a time."""


@dataclass(frozen=True)
class ObjectWords:
    """Which objects are told."""

    detector: str = "ssdlite-mobilenet-v2"
    """By name, or a folder of such weights."""
    sure: float = 0.3
    """How sure the detector must be of an object that is counted first."""
    unsure: float = 0.15
    """Objects are counted again with those of which it is only so sure."""
    most: int = 6
    """Kinds of objects in a picture, the surest first."""

    def __post_init__(self) -> None:
        check(self, lambda value: 0 < value <= 1, "a share from 0 to 1", "sure", "unsure")
        check(self, lambda value: value >= 1, "1 or more", "most")
        if self.unsure > self.sure:
            raise PolyglanceError("unsure is above sure: lower it")


class ObjectTeller:
    """Tells what is in pictures."""

    def __init__(self, settings: ObjectWords, *, device: str = "cpu") -> None:
        self.settings = settings
        self.detector: Detector = open_detector(
            settings.detector, least=settings.unsure, device=device
        )

    def tell(self, pictures: Sequence[str | Path | Image]) -> list[str]:
        """A list of words for each picture, empty where nothing was found."""
        told = []
        for start in range(0, len(pictures), _AT_ONCE):
            pixels = read_pixels(pictures[start : start + _AT_ONCE], self.detector.size).numpy()
            told += [self.words(found) for found in self.detector.find(pixels)]
        return told

    def words(self, found: Objects) -> str:
        """Kinds of objects with how many there surely are, and how many perhaps."""
        sure = found.scores >= self.settings.sure
        kinds, first = np.unique(found.kinds, return_index=True)
        words = []
        for kind in kinds[np.argsort(first)][: self.settings.most]:
            counts = (int(np.sum((found.kinds == kind) & sure)), int(np.sum(found.kinds == kind)))
            # Once where both agree; the surest of all is there even if nothing is sure.
            told = dict.fromkeys(max(count, 1) for count in counts)
            words.append(" ".join([str(self.detector.names[kind]), *map(str, told)]))
        return ", ".join(words)


def with_objects(question: str, told: str) -> str:
    """A question as it is read with what is in the picture."""
    return f"{question} {told}" if told else question
