"""Sort pictures and clips by labels in any language, without training (zero-shot).

A label is read in several templates, "a photo of {}", and the mean of their vectors is compared
with each picture, as CLIP does (Radford et al. 2021, section 3.1.4). Cosines of different models
have different scales, and most pictures show none of the labels. So a label's cosine is measured
by those of common things with the same picture: it counts by how many standard deviations it is
above their mean. The label's probability is the softmax of that, in which "none of these" takes
part with a constant. Both constants were fitted on COCO's labels (`benchmarks.experiments
.zero_shot_labels`), where they fit all languages that were measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders import Encoder
from polyglance.encoders.protocol import Vectors
from polyglance.errors import PolyglanceError
from polyglance.search.query import MediaRef
from polyglance.search.serialization import READ_BLOCK
from polyglance.search.store import Filter, Store

TEMPLATES = ("{}", "a photo of {}")
"""How labels are read. The English one helps labels in other languages as much as their own."""
SHARPNESS = 2.0
"""The softmax's factor for standard deviations."""
NONE_DEVIATIONS = 2.2
"""How many standard deviations "none of these" counts."""
COMMON_THINGS = (
    "person", "child", "face", "house", "road", "village", "flower", "field", "river", "beach",
    "snow", "night", "wall", "bathroom", "chair", "bed", "floor", "fish", "bread", "salad",
    "glass", "cup", "hat", "trousers", "truck", "plane", "motorcycle", "station", "shop",
    "school", "farm", "cat", "sheep", "bear", "game", "book", "sign", "screen", "camera",
    "drawing", "metal", "water", "shadow",
)  # fmt: skip
"""What a label's cosine is compared with."""

_COMMAS = re.compile("[,;\n\N{IDEOGRAPHIC COMMA}\N{FULLWIDTH COMMA}\N{ARABIC COMMA}]")


@dataclass(frozen=True, slots=True)
class Classification:
    """A picture or clip, and how probable each label is."""

    item: MediaRef
    label: str | None
    """The most probable label, or None if none of them is probable enough."""
    probability: float
    """Of ``label``; of none of these, if it is None."""
    probabilities: Mapping[str, float]
    """Of all labels; what is missing to 1 is that of none of these."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "path": str(self.item.path),
            "label": self.label,
            "probability": round(self.probability, 4),
            "probabilities": {name: round(value, 4) for name, value in self.probabilities.items()},
        }


def split_labels(text: str) -> list[str]:
    """Split labels at the commas of any script; each is returned once."""
    return list(dict.fromkeys(filter(None, (part.strip() for part in _COMMAS.split(text)))))


def classify_items(
    store: Store,
    encoder: Encoder,
    labels: Sequence[str],
    *,
    where: Filter | None = None,
    templates: Sequence[str] = TEMPLATES,
    language: str | None = None,
    min_probability: float = 0.0,
) -> list[Classification]:
    """Classify the items of a library by labels.

    Args:
        store: The library.
        encoder: Its model.
        labels: What to sort by, in any language.
        where: Only these items.
        templates: Sentences with ``{}`` for the label; their vectors are averaged.
        language: The language of the labels, for a model of words.
        min_probability: Less probable labels are none of these.

    Returns:
        A classification of each item, ordered by path.
    """
    _check(labels, templates, min_probability)
    texts = np.concatenate(
        [
            label_vectors(encoder, labels, templates, language),
            label_vectors(encoder, COMMON_THINGS, TEMPLATES, "en"),
        ]
    )
    first, cosines = dict[int, int](), dict[int, NDArray[np.float32]]()
    for ids in _blocks(store, where or Filter()):
        rows = store.rows(ids)
        scores = rows.vectors @ texts.T
        for number, item, score in zip(rows.ids.tolist(), rows.items.tolist(), scores, strict=True):
            # Deviations do not depend on the length of a vector: a clip is the sum of its spans.
            cosines[item] = cosines[item] + score if item in cosines else score
            first.setdefault(item, number)
    if not cosines:
        return []
    probabilities = label_probabilities(np.stack(list(cosines.values())), len(labels))
    found = dict[int, Any]()
    numbers = list(first.values())
    for start in range(0, len(numbers), READ_BLOCK):
        found |= store.lookup(numbers[start : start + READ_BLOCK])
    results = [
        _decide(MediaRef.from_item(number, found[number][0], None), labels, row, min_probability)
        for number, row in zip(numbers, probabilities, strict=True)
        if number in found
    ]
    return sorted(results, key=lambda result: result.item.path)


def label_vectors(
    encoder: Encoder, labels: Sequence[str], templates: Sequence[str], language: str | None = None
) -> Vectors:
    """Return the unit vector of each label, the mean over templates, ``[len(labels), width]``.

    Args:
        encoder: The model.
        labels: The labels.
        templates: Sentences with ``{}`` for the label.
        language: Their language, for a model of words.
    """
    texts = [template.replace("{}", label) for template in templates for label in labels]
    vectors = encoder.encode_texts(texts, language=language)
    mean = vectors.reshape(len(templates), len(labels), -1).mean(0)
    unit: Vectors = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
    return unit


def label_probabilities(cosines: NDArray[np.floating], num_labels: int) -> NDArray[np.float64]:
    """Return the probability of each label, and last that of none of these.

    Args:
        cosines: Of each item with the labels, then with `COMMON_THINGS`, ``[n, labels + things]``.
        num_labels: How many of them are labels.

    Returns:
        ``[n, labels + 1]``; rows sum to 1.
    """
    values = cosines.astype(np.float64)
    things = values[:, num_labels:]
    spread = np.maximum(things.std(1, keepdims=True), 1e-12)
    deviations = (values[:, :num_labels] - things.mean(1, keepdims=True)) / spread
    none = np.full((len(values), 1), NONE_DEVIATIONS)
    logits = SHARPNESS * np.concatenate([deviations, none], axis=1)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    result: NDArray[np.float64] = odds / odds.sum(1, keepdims=True)
    return result


def _blocks(store: Store, where: Filter) -> Iterator[NDArray[np.int64]]:
    ids = store.matching_ids(where) if where else store.ids()
    yield from (ids[start : start + READ_BLOCK] for start in range(0, len(ids), READ_BLOCK))


def _decide(
    item: MediaRef, labels: Sequence[str], row: NDArray[np.float64], min_probability: float
) -> Classification:
    best = int(row.argmax())
    probabilities = dict(zip(labels, row[:-1].tolist(), strict=True))
    if best == len(labels) or row[best] < min_probability:
        return Classification(item, None, float(row[-1]), probabilities)
    return Classification(item, labels[best], float(row[best]), probabilities)


def _check(labels: Sequence[str], templates: Sequence[str], min_probability: float) -> None:
    if isinstance(labels, str) or not labels or not all(label.strip() for label in labels):
        raise PolyglanceError("give at least one label, as a list: ['cat', 'dog']")
    if isinstance(templates, str) or not templates or not all("{}" in one for one in templates):
        raise PolyglanceError("a template has {} where the label belongs: 'a photo of {}'")
    if not 0 <= min_probability <= 1:
        raise PolyglanceError(f"a probability is from 0 to 1, not {min_probability:g}")
