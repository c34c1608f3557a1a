"""Cross-lingual consistency: score a query together with its translations (SMALR, section 3.4).

    queries = translate_queries(["a dog"], "en", [WordByWord(dictionary, "en", "de")])
    scores = consistency_scores(encoder, queries, encoder.encode_pictures(paths))

Translations come from a translator, word by word from a dictionary
(`polyglance.text.translation.translators`), or from a dataset. The average over languages
(CLC-A) needs no torch; the learned combination (CLC-C) is trained by
`polyglance.models.consistency` and applied by `polyglance.encoders.consistency`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.protocol import Encoder, Vectors
from polyglance.errors import PolyglanceError
from polyglance.languages import normalise_language
from polyglance.text.translation.translators import Translator

Translations: TypeAlias = Mapping[str, Sequence[str]]
"""The same queries in several languages; an empty text is a missing translation."""
Combine: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""From scores ``(languages, pictures, queries)``, NaN where missing, to ``(pictures, queries)``."""

_TOLERANCE = 1e-5
"""Vectors that differ by less are equal: runtimes round."""


def average_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the mean over the languages with a translation (CLC-A); NaN where none has one."""
    is_there = ~np.isnan(scores)
    total = np.where(is_there, scores, 0).sum(0)
    count = is_there.sum(0)
    mean: NDArray[Any] = np.where(is_there.any(0), total / np.maximum(1, count), np.nan)
    return mean


def translate_queries(
    texts: Sequence[str], language: str, translators: Sequence[Translator]
) -> dict[str, list[str]]:
    """Translate queries.

    Args:
        texts: The queries.
        language: Their language.
        translators: From that language, each to another one.

    Returns:
        The queries by language, the original ones first.
    """
    source = normalise_language(language)
    translations = {source: list(texts)}
    for translator in translators:
        if normalise_language(translator.source) != source:
            raise PolyglanceError(
                f"a translator from {translator.source} cannot translate texts in {source}:"
                f" give translators from {source}"
            )
        target = normalise_language(translator.target)
        if target in translations:
            raise PolyglanceError(f"there are two translators to {target}: give one")
        translations[target] = translator.translate(texts)
    return translations


def scores_by_language(
    encoder: Encoder, queries: Translations, pictures: Vectors
) -> NDArray[np.float32]:
    """Score each picture against each query in each language.

    Args:
        encoder: The dual encoder.
        queries: The same queries in each language.
        pictures: The encoder's vectors of the pictures, (pictures, width).

    Returns:
        ``(languages, pictures, queries)``, NaN where there is no translation, or none with
        a word that the encoder knows.
    """
    if len({len(texts) for texts in queries.values()}) != 1:
        raise PolyglanceError(
            "each language must have as many queries, with an empty text where one is missing"
        )
    scores = []
    for language, texts in queries.items():
        # A text without a known word has the vector of the empty text.
        *_, empty = vectors = encoder.encode_texts([*texts, ""], language=language)
        is_unknown = np.abs(vectors[:-1] - empty).max(1, initial=0) < _TOLERANCE
        is_missing = is_unknown | np.array([not text.strip() for text in texts], bool)
        scores.append(np.where(is_missing, np.float32(np.nan), pictures @ vectors[:-1].T))
    return np.stack(scores)


def consistency_scores(
    encoder: Encoder, queries: Translations, pictures: Vectors, *, combine: Combine = average_scores
) -> NDArray[np.float32]:
    """Score each picture against each query, combining all languages.

    Args:
        encoder: The dual encoder.
        queries: The same queries in each language.
        pictures: The encoder's vectors of the pictures, (pictures, width).
        combine: CLC-A, or the ``combine`` of a `LearnedConsistency` that was trained with
            the languages in this order.

    Returns:
        ``(pictures, queries)``; zero for a query that is missing in every language.
    """
    combined = combine(scores_by_language(encoder, queries, pictures))
    return np.nan_to_num(combined).astype(np.float32)
