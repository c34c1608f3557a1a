"""Bilingual lexicon induction: dictionaries from word vectors in a shared space."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyglance.text.dictionaries import Dictionary
from polyglance.text.vector_space import Vectors, WordSpace, l2_normalise

_BATCH_SIZE = 1024


def induce_dictionary(
    space: WordSpace, source: str, target: str, *, num_neighbours: int = 10
) -> Dictionary:
    """Return the word pairs of two languages that are each other's nearest by CSLS.

    CSLS (Conneau et al. 2018, equation 3) is twice the cosine, minus the mean cosine of
    each word with its ``num_neighbours`` nearest in the other language, which penalises
    hubs.

    Args:
        space: Words of both languages with vectors in one space.
        source: Language of the dictionary's words.
        target: Language of its translations.
        num_neighbours: k of CSLS.
    """
    source_rows, target_rows = (_rows(space, language) for language in (source, target))
    first, second = (l2_normalise(space.vectors[rows]) for rows in (source_rows, target_rows))
    if not len(first) or not len(second):
        return Dictionary((), source=source)
    forward = _best(first, second, _density(second, first, num_neighbours))
    backward = _best(second, first, _density(first, second, num_neighbours))
    mutual = np.flatnonzero(backward[forward] == np.arange(len(first)))
    words = space.lexicon.words
    return Dictionary(
        ((words[source_rows[row]], words[target_rows[forward[row]]]) for row in mutual),
        source=source,
    )


def _rows(space: WordSpace, language: str) -> NDArray[np.int64]:
    """Return the rows of a language's words that have a vector."""
    own = list(space.lexicon.tokenizer(language).counts)
    numbers = [space.lexicon.word_id(word, language) for word in own]
    rows = np.array([number for number in numbers if number is not None], np.int64)
    has_vector = np.abs(space.vectors[rows]).sum(axis=1) > 0
    return rows[np.flatnonzero(has_vector)]


def _density(vectors: Vectors, others: Vectors, num_neighbours: int) -> Vectors:
    """Return the mean cosine of each vector with its nearest neighbours among others."""
    count = min(num_neighbours, len(others))
    means = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), _BATCH_SIZE):
        cosines = vectors[start : start + _BATCH_SIZE] @ others.T
        nearest = np.partition(cosines, -count, axis=1)[:, -count:]
        means[start : start + _BATCH_SIZE] = nearest.mean(axis=1)
    return means


def _best(vectors: Vectors, others: Vectors, density: Vectors) -> NDArray[np.int64]:
    """Return the best match of each vector; its own density is the same for all and left out."""
    best = np.zeros(len(vectors), np.int64)
    for start in range(0, len(vectors), _BATCH_SIZE):
        scores = 2 * (vectors[start : start + _BATCH_SIZE] @ others.T) - density
        best[start : start + _BATCH_SIZE] = scores.argmax(axis=1)
    return best
