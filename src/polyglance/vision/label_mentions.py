"""How many captions mention a label of their picture.

MRTM and early adaptation teach words by labels (UC2, sections 3.3.1 and 3.3.2); they can help
captions only as far as captions use those words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyglance.records import Record
from polyglance.vision.labels import LabelClasses, label_languages, label_names
from polyglance.vision.store import FeatureStore
from polyglance.vision.tokens import UNLABELLED, feature_key

_WORD = re.compile(r"[\w'’-]+")
_UNSPACED = ("zh", "ja", "th")
_PREFIXES = {"ar": ("ال", "وال", "بال", "و", "ب"), "he": ("ה", "ו", "ב", "ל")}
"""Articles and prepositions that are written as part of a word."""
_PLURALS = {
    "en": ("s", "es"), "fr": ("s", "x", "es"), "es": ("s", "es"), "pt": ("s", "es"),
    "nl": ("s", "'s", "en", "je", "jes"),
}  # fmt: skip
"""Endings of nouns; in other languages any of up to `_MAX_ENDING` letters."""
_MAX_ENDING, _MIN_STEM = 3, 4


@dataclass(frozen=True)
class Mentions:
    """Captions of one language."""

    captions: int
    mentioning: int
    """Those that name at least one label of their picture."""

    @property
    def share(self) -> float:
        """The share of captions that mention a label."""
        return self.mentioning / self.captions if self.captions else 0.0


def count_mentions(
    records: Iterable[Record], store: FeatureStore, classes: LabelClasses = "coco"
) -> dict[str, Mentions]:
    """Count captions that mention a label of their picture, by language.

    Args:
        records: Pictures with captions; those that the store lacks are left out.
        store: Tokens with labels, of which the most likely one of each counts.
        classes: What the labels are.

    Returns:
        By language, only those in which the classes have names.
    """
    captions: Counter[str] = Counter()
    mentioning: Counter[str] = Counter()
    languages = label_languages(classes)
    for record in records:
        key = feature_key(record)
        if key not in store:
            continue
        labels = sorted(set(store[key].label_ids[:, 0].tolist()) - {int(UNLABELLED)})
        for language in set(record.captions) & set(languages):
            names = label_names(language, classes)
            own = [name for label in labels for name in names[label]]
            texts = record.captions[language]
            captions[language] += len(texts)
            mentioning[language] += sum(mentions(text, own, language) for text in texts)
    return {code: Mentions(captions[code], mentioning[code]) for code in sorted(captions)}


def mentions(text: str, names: Sequence[str], language: str) -> bool:
    """Return whether a text has one of some names in it, also with another ending.

    Words are compared, not meanings: *dogs* and *Hunde* mention *dog* and *Hund*, *puppy* does not.
    """
    text = text.casefold()
    if language in _UNSPACED:
        return any(name.casefold() in text for name in names)
    words = _WORD.findall(text)
    prefixes = _PREFIXES.get(language, ())
    words += [w.removeprefix(p) for w in words for p in prefixes if w.startswith(p)]
    return any(_has_sequence(words, _WORD.findall(name.casefold()), language) for name in names)


def _has_sequence(words: Sequence[str], name: Sequence[str], language: str) -> bool:
    starts = range(len(words) - len(name) + 1)
    return any(
        all(_is_form(words[start + n], part, language) for n, part in enumerate(name))
        for start in starts
    )


def _is_form(word: str, name: str, language: str) -> bool:
    """Return whether a word is a name or its inflected form."""
    endings = _PLURALS.get(language, ("s",))
    if word == name or word in [name + ending for ending in endings]:
        return True
    if language in _PLURALS:
        return False
    # A last vowel changes in many languages: kočka, kočku.
    stem = name[:-1] if name[-1] in "aeiouyáéíóúýěаеиоуыіїяюєό" else name
    if len(stem) < _MIN_STEM or not word.startswith(stem):
        return False
    return len(word) - len(stem) <= _MAX_ENDING
