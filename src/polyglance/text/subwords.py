"""The parts of a word as fastText (Bojanowski et al. 2017) takes them, all words at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_OFFSET, _PRIME = np.uint32(2166136261), np.uint32(16777619)


@dataclass(frozen=True)
class SubwordConfig:
    """Which parts: runs of ``shortest`` to ``longest`` letters of ``<word>``, hashed."""

    min_n: int = 3
    max_n: int = 6
    num_buckets: int = 2_000_000


def subword_buckets(
    words: Sequence[str], rule: SubwordConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The buckets of the words' parts end to end, and how many each word has.

    A part is hashed by FNV-1a in 32 bits over its UTF-8 bytes, each taken as a
    signed number, as fastText does it. As there, parts of a single letter leave
    out the signs of a word's beginning and end, and a word's parts lie by where
    they begin, then by length.
    """
    spelled = [f"<{word}>".encode(errors="surrogatepass") for word in words]
    text = np.frombuffer(b"".join(spelled), np.uint8)
    owner = np.repeat(np.arange(len(words)), [len(one) for one in spelled])
    begins = np.flatnonzero((text & 0xC0) != 0x80)  # bytes that begin a letter
    letters = len(begins)
    if not letters or not rule.num_buckets or rule.max_n < rule.min_n:
        return np.zeros(0, np.int64), np.zeros(len(words), np.int64)
    widths = np.diff(begins, append=len(text))
    word_of = owner[begins]
    is_first = np.diff(word_of, prepend=-1) != 0
    is_last = np.diff(word_of, append=len(words)) != 0

    signed = text.view(np.int8).astype(np.int32).view(np.uint32)  # sign extension
    hashes = np.full(letters, _OFFSET)
    buckets = np.full((letters, rule.max_n), -1, np.int64)
    start = np.arange(letters)
    for length in range(1, rule.max_n + 1):
        # Take the next letter into each run that still lies within its word.
        end = start + length - 1
        inside = end < letters
        inside[inside] = word_of[end[inside]] == word_of[inside]
        runs, end = np.flatnonzero(inside), end[inside]
        for byte in range(4):
            longer = widths[end] > byte
            at = runs[longer]
            hashes[at] = (hashes[at] ^ signed[begins[end[longer]] + byte]) * _PRIME
        if length < rule.min_n:
            continue
        if length == 1:
            runs = runs[~(is_first | is_last)[runs]]
        buckets[runs, length - 1] = hashes[runs] % np.uint32(rule.num_buckets)
    kept = buckets >= 0
    counts = np.bincount(word_of, weights=kept.sum(1), minlength=len(words))
    return buckets[kept], counts.astype(np.int64)
