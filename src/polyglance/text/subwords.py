"""fastText's subwords (Bojanowski et al. 2017), computed for all words at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_OFFSET, _PRIME = np.uint32(2166136261), np.uint32(16777619)


@dataclass(frozen=True)
class SubwordConfig:
    """Character n-grams of ``<word>``, with n from ``min_n`` to ``max_n``, hashed to buckets."""

    min_n: int = 3
    max_n: int = 6
    num_buckets: int = 2_000_000


def subword_buckets(
    words: Sequence[str], config: SubwordConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the buckets of all words' n-grams, concatenated, and the number of each word's.

    As in fastText, an n-gram is hashed by 32-bit FNV-1a over its UTF-8 bytes as signed
    numbers; the boundary characters alone are no n-grams; and a word's n-grams are
    sorted by start, then by length.
    """
    padded = [f"<{word}>".encode(errors="surrogatepass") for word in words]
    text = np.frombuffer(b"".join(padded), np.uint8)
    owner = np.repeat(np.arange(len(words)), [len(one) for one in padded])
    begins = np.flatnonzero((text & 0xC0) != 0x80)  # first bytes of characters
    letters = len(begins)
    if not letters or not config.num_buckets or config.max_n < config.min_n:
        return np.zeros(0, np.int64), np.zeros(len(words), np.int64)
    widths = np.diff(begins, append=len(text))
    word_of = owner[begins]
    is_first = np.diff(word_of, prepend=-1) != 0
    is_last = np.diff(word_of, append=len(words)) != 0

    signed = text.view(np.int8).astype(np.int32).view(np.uint32)  # sign extension
    hashes = np.full(letters, _OFFSET)
    buckets = np.full((letters, config.max_n), -1, np.int64)
    start = np.arange(letters)
    for length in range(1, config.max_n + 1):
        # Extend each n-gram that still lies within its word by one character.
        end = start + length - 1
        inside = end < letters
        inside[inside] = word_of[end[inside]] == word_of[inside]
        runs, end = np.flatnonzero(inside), end[inside]
        for byte in range(4):
            longer = widths[end] > byte
            at = runs[longer]
            hashes[at] = (hashes[at] ^ signed[begins[end[longer]] + byte]) * _PRIME
        if length < config.min_n:
            continue
        if length == 1:
            runs = runs[~(is_first | is_last)[runs]]
        buckets[runs, length - 1] = hashes[runs] % np.uint32(config.num_buckets)
    is_ngram = buckets >= 0
    counts = np.bincount(word_of, weights=is_ngram.sum(1), minlength=len(words))
    return buckets[is_ngram], counts.astype(np.int64)
