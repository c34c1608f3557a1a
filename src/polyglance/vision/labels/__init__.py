"""Class names of ImageNet and COCO (see NOTICE beside this file).

A backbone labels every cell of a picture with ImageNet's thousand classes; UC2 names them
in the caption's language. Detectors find objects of COCO's eighty classes.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from polyglance.errors import PolyglanceError
from polyglance.languages import normalise_language
from polyglance.vision.tokens import VisualTokens

LABEL_LANGUAGES = ("en", "ar", "es", "fr", "he", "ru", "zh")


@cache
def label_names(language: str = "en") -> tuple[tuple[str, ...], ...]:
    """Return the names of each ImageNet class in a language, the most common first."""
    names = _all_names()
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
def _all_names() -> dict[str, list[str]]:
    path = Path(__file__).with_name("imagenet.json")
    names: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return names


@cache
def object_names(labels: str = "coco") -> tuple[str | None, ...]:
    """Return the English names of a detector's classes; None for numbers that COCO left out."""
    if labels != "coco":
        raise ValueError(f"there are no class names called {labels!r}")
    path = Path(__file__).with_name("coco.json")
    return tuple(json.loads(path.read_text(encoding="utf-8")))
