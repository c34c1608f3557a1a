"""Dictionaries read off word vectors of one space, for pairs of languages that have none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyglance.text.dictionaries import Dictionary
from polyglance.text.vector_space import Vectors, WordSpace, l2_normalise

_AT_ONCE = 1024


def induce_dictionary(
    space: WordSpace, source: str, target: str, *, num_neighbours: int = 10
) -> Dictionary:
    """Words of two languages that are each other's best match.

    The match is CSLS (Conneau et al. 2018, equation 3): twice the cosine, less the
    mean cosine of each word with its ``neighbours`` nearest in the other language,
    so that words which lie near everything are nobody's translation.
    """
    ours, theirs = (_rows(space, language) for language in (source, target))
    first, second = (l2_normalise(space.vectors[rows]) for rows in (ours, theirs))
    if not len(first) or not len(second):
        return Dictionary((), source=source)
    there = _best(first, second, _closeness(second, first, num_neighbours))
    back = _best(second, first, _closeness(first, second, num_neighbours))
    mutual = np.flatnonzero(back[there] == np.arange(len(first)))
    words = space.lexicon.words
    return Dictionary(
        ((words[ours[row]], words[theirs[there[row]]]) for row in mutual), source=source
    )


def _rows(space: WordSpace, language: str) -> NDArray[np.int64]:
    """The rows of a language's words that have a vector."""
    own = list(space.lexicon.tokenizer(language).counts)
    numbers = [space.lexicon.word_id(word, language) for word in own]
    rows = np.array([number for number in numbers if number is not None], np.int64)
    has_vector = np.abs(space.vectors[rows]).sum(axis=1) > 0
    return rows[np.flatnonzero(has_vector)]


def _closeness(vectors: Vectors, others: Vectors, neighbours: int) -> Vectors:
    """The mean cosine of each vector with its nearest of the others."""
    count = min(neighbours, len(others))
    found = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), _AT_ONCE):
        cosines = vectors[start : start + _AT_ONCE] @ others.T
        nearest = np.partition(cosines, -count, axis=1)[:, -count:]
        found[start : start + _AT_ONCE] = nearest.mean(axis=1)
    return found


def _best(vectors: Vectors, others: Vectors, closeness: Vectors) -> NDArray[np.int64]:
    """The best match of each vector; its own closeness is the same for all and left out."""
    found = np.zeros(len(vectors), np.int64)
    for start in range(0, len(vectors), _AT_ONCE):
        scores = 2 * (vectors[start : start + _AT_ONCE] @ others.T) - closeness
        found[start : start + _AT_ONCE] = scores.argmax(axis=1)
    return found
