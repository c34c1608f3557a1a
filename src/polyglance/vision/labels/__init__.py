"""Class names of ImageNet and COCO (see NOTICE beside this file).

A backbone labels every cell of a picture with ImageNet's thousand classes, a detector its
objects with COCO's eighty; UC2 names them in the caption's language.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.languages import normalise_language
from polyglance.vision.tokens import VisualTokens

LabelClasses = Literal["imagenet", "coco"]
LABEL_LANGUAGES = ("en", "ar", "es", "fr", "he", "ru", "zh")
"""Languages with names of ImageNet's classes; COCO's have more (`label_languages`)."""
_FILES: dict[LabelClasses, str] = {"imagenet": "imagenet.json", "coco": "coco_names.json"}


def label_languages(classes: LabelClasses = "imagenet") -> tuple[str, ...]:
    """Return the languages in which classes have names."""
    return tuple(sorted(_all_names(classes)))


@cache
def label_names(
    language: str = "en", classes: LabelClasses = "imagenet"
) -> tuple[tuple[str, ...], ...]:
    """Return the names of each class in a language, the most common first.

    Of COCO these are the eighty classes that have names, in the order of their numbers.
    """
    names = _all_names(classes)
    code = normalise_language(language)
    if code not in names:
        known = ", ".join(sorted(names))
        raise PolyglanceError(f"labels have no names in {language!r}; choose one of {known}")
    return tuple(tuple(name.split(", ")) for name in names[code])


def commonest_labels(tokens: VisualTokens, count: int = 3, language: str = "en") -> list[str]:
    """Return the names of the ``count`` classes with the most probability summed over tokens."""
    votes = np.bincount(tokens.label_ids.ravel(), tokens.label_probs.astype(np.float64).ravel())
    names = label_names(language)
    return [names[label][0] for label in np.argsort(-votes)[:count] if votes[label] > 0]


@cache
def _all_names(classes: LabelClasses) -> dict[str, list[str]]:
    path = Path(__file__).with_name(_FILES[classes])
    names: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return names


@cache
def object_names(labels: str = "coco") -> tuple[str | None, ...]:
    """Return the English names of a detector's classes; None for numbers that COCO left out."""
    if labels != "coco":
        raise ValueError(f"there are no class names called {labels!r}")
    path = Path(__file__).with_name("coco.json")
    return tuple(json.loads(path.read_text(encoding="utf-8")))


def label_table(pictures: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return which of COCO's classes each picture shows, ``[pictures, classes]``.

    Args:
        pictures: The labels of each, by COCO's names.
    """
    rows = {name: row for row, name in enumerate(filter(None, object_names()))}
    table = np.zeros((len(pictures), len(rows)), bool)
    for number, labels in enumerate(pictures):
        if unknown := set(labels) - rows.keys():
            raise PolyglanceError(
                f"{min(unknown)!r} is none of COCO's classes, such as {', '.join(list(rows)[:3])}:"
                " leave the label out"
            )
        table[number, [rows[name] for name in labels]] = True
    return table
