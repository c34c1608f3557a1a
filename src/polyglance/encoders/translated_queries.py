"""A query and its translations decide together, over any encoder (SMALR, section 3.4).

    told = in_other_languages(["a dog"], "en", [WordByWord(dictionary, "en", "de")])
    scores = consistent_scores(encoder, told, encoder.encode_pictures(paths))

What a query is in other languages comes from a translator, from a dictionary word
by word (`polyglance.text.translators`), or from a dataset that has it in several:
then it is given as it is. The average of all languages (CLC-A) needs no torch; a
network that learned whom to trust (CLC-C) is `polyglance.models.consistency`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.protocol import Encoder, Vectors
from polyglance.errors import PolyglanceError
from polyglance.languages import normalise_language
from polyglance.text.translators import Translator

Told: TypeAlias = Mapping[str, Sequence[str]]
"""The same queries in several languages; an empty text is a translation that is missing."""
Combine: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""From scores ``(languages, pictures, queries)`` with NaN for the missing to one for each pair."""

_SAME = 1e-5
"""Two vectors that differ by no more are one: runtimes round."""


def average_scores(scores: NDArray[Any]) -> NDArray[Any]:
    """CLC-A: the mean over the languages that have the caption; NaN where none has it."""
    there = ~np.isnan(scores)
    total = np.where(there, scores, 0).sum(0)
    mean: NDArray[Any] = np.where(there.any(0), total / np.maximum(1, there.sum(0)), np.nan)
    return mean


def in_other_languages(
    texts: Sequence[str], language: str, translators: Sequence[Translator]
) -> dict[str, list[str]]:
    """Texts as they are, and as each translator puts them."""
    source = normalise_language(language)
    told = {source: list(texts)}
    for translator in translators:
        if normalise_language(translator.source) != source:
            raise PolyglanceError(
                f"a translator from {translator.source} cannot translate texts in {source}:"
                f" give translators from {source}"
            )
        target = normalise_language(translator.target)
        if target in told:
            raise PolyglanceError(f"texts would be in {target} twice: give one translator to it")
        told[target] = translator.translate(texts)
    return told


def scores_by_language(encoder: Encoder, told: Told, pictures: Vectors) -> NDArray[np.float32]:
    """``(languages, pictures, queries)``: how well each picture fits each query in each language.

    NaN where there is no translation, or one of which the encoder knows no word.
    """
    if len({len(texts) for texts in told.values()}) != 1:
        raise PolyglanceError(
            "queries must be as many in each language, with an empty text where one is missing"
        )
    scores = []
    for language, texts in told.items():
        # An encoder that knows none of a text's words makes of it what it makes of silence.
        *_, silence = vectors = encoder.encode_texts([*texts, ""], language=language)
        unheard = np.abs(vectors[:-1] - silence).max(1, initial=0) < _SAME
        missing = unheard | np.array([not text.strip() for text in texts], bool)
        scores.append(np.where(missing, np.float32(np.nan), pictures @ vectors[:-1].T))
    return np.stack(scores)


def consistent_scores(
    encoder: Encoder, told: Told, pictures: Vectors, *, combine: Combine = average_scores
) -> NDArray[np.float32]:
    """``(pictures, queries)``: what all languages together say of each pair.

    ``pictures`` are vectors of the encoder. ``combine`` is CLC-A or, of a
    `LearnedConsistency`, its ``combine``, which must have learned with the languages
    in this order. A query that is missing in all languages fits all pictures alike.
    """
    together = combine(scores_by_language(encoder, told, pictures))
    return np.nan_to_num(together).astype(np.float32)
