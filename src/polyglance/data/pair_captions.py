"""Find which captions of a picture are translations of each other, for a caption translator.

Some datasets translate the captions of another one without saying which from which, or in
another order. Vectors of a multilingual encoder tell: a caption and its translation are each
other's nearest among the picture's captions, by a margin. `WordOverlap` makes cheaper vectors,
with a dictionary.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, Problems
from polyglance.records import atomic_write, read_manifest
from polyglance.text.dictionaries import Dictionary
from polyglance.text.segment import normalise_word, word_spans

_BLOCK = 2_000
"""Captions encoded at a time."""


class TextEncoder(Protocol):
    """Makes vectors of texts, of which those of translations are near each other."""

    def encode_texts(self, texts: Sequence[str], *, language: str | None) -> NDArray[np.float32]:
        """Return vectors of length 1, ``(texts, width)``."""
        ...


class WordOverlap:
    """Makes vectors of words, those of the target language translated with a dictionary.

    Words count the less, the more of the texts encoded together they are in.
    """

    width = 4096

    def __init__(self, dictionary: Dictionary, source: str) -> None:
        """Set up; the dictionary is from the target language into ``source``."""
        self.dictionary, self.source = dictionary, source

    def encode_texts(self, texts: Sequence[str], *, language: str | None) -> NDArray[np.float32]:
        """Return vectors of length 1, ``(texts, width)``; zeros for a text without a word."""
        code = language or self.source
        rows = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for start, end in word_spans(text, code):
                words: Sequence[str] = (normalise_word(text[start:end], code),)
                if code != self.source:
                    words = self.dictionary.translations(words[0]) or words
                for word in words:
                    row[zlib.crc32(word.lower().encode()) % self.width] += 1 / len(words)
        rows /= np.sqrt(1 + (rows > 0).sum(0))
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.maximum(norms, 1e-9)
        return rows


@dataclass(frozen=True)
class PairingResult:
    """How many captions were paired."""

    pictures: int
    """With captions in both languages."""
    captions: int
    """In the target language, of these pictures."""
    pairs: int


def pair_captions(
    manifests: Sequence[str | Path],
    out: str | Path,
    encoder: TextEncoder,
    *,
    source: str,
    target: str,
    min_similarity: float = 0.7,
    margin: float = 0.05,
    problems: Problems | None = None,
) -> PairingResult:
    """Pair the captions of each picture in two languages; write ``{"image", source, target}``.

    Args:
        manifests: Captions of a picture may be in several of them.
        out: JSON lines to write.
        encoder: A multilingual encoder of texts, or `WordOverlap`.
        source: A language.
        target: Another one.
        min_similarity: Least cosine similarity of a pair.
        margin: How much less similar every other caption of the picture must be to either one.
        problems: Collects malformed lines; without it the first one is an error.
    """
    captions = _captions_by_picture(manifests, (source, target), problems)
    both = {image: own for image, own in captions.items() if own[source] and own[target]}
    if not both:
        raise DataError(
            f"no picture of {', '.join(map(str, manifests))} has captions in both {source} and"
            f" {target}: give manifests that share pictures"
        )
    vectors = {
        language: _encode(encoder, [text for own in both.values() for text in own[language]],
                          language)
        for language in (source, target)
    }  # fmt: skip
    begin, num_pairs = {source: 0, target: 0}, 0
    with atomic_write(out) as file:
        for image, own in both.items():
            rows = {}
            for language in (source, target):
                end = begin[language] + len(own[language])
                rows[language] = vectors[language][begin[language] : end]
                begin[language] = end
            similarities = rows[source] @ rows[target].T
            for i, j in matches(similarities, min_similarity, margin):
                line = {"image": image, source: own[source][i], target: own[target][j]}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                num_pairs += 1
    return PairingResult(len(both), sum(len(own[target]) for own in both.values()), num_pairs)


def matches(
    similarities: NDArray[np.float32], min_similarity: float, margin: float
) -> Iterator[tuple[int, int]]:
    """Yield rows and columns that are each other's nearest, all others farther by a margin.

    Args:
        similarities: ``(rows, columns)``.
        min_similarity: Least similarity of a pair.
        margin: Least difference to the second nearest of either.
    """
    for i, row in enumerate(similarities):
        j = int(row.argmax())
        best, column = float(row[j]), similarities[:, j]
        others = np.concatenate((np.delete(row, j), np.delete(column, i)))
        if best >= min_similarity and (not len(others) or float(others.max()) <= best - margin):
            yield i, j


def _captions_by_picture(
    manifests: Sequence[str | Path], languages: Sequence[str], problems: Problems | None
) -> Mapping[str, Mapping[str, list[str]]]:
    """Return the distinct captions of each picture, in the order of the manifests."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for manifest in manifests:
        for record in read_manifest(manifest, problems):
            own = found.setdefault(record.key, {language: {} for language in languages})
            for language in languages:
                own[language] |= dict.fromkeys(record.captions.get(language, ()))
    return {
        image: {language: list(texts) for language, texts in own.items()}
        for image, own in found.items()
    }


def _encode(encoder: TextEncoder, texts: Sequence[str], language: str) -> NDArray[np.float32]:
    blocks = [
        np.asarray(encoder.encode_texts(list(texts[i : i + _BLOCK]), language=language), np.float32)
        for i in range(0, len(texts), _BLOCK)
    ]
    return np.concatenate(blocks)
