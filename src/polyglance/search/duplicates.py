"""Find pictures that are one picture: copies, near-duplicates and bursts.

Copies have the same content. Near-duplicates (resized, recompressed, lightly edited) have almost
the same vector, whenever they were taken; pictures of a burst have similar ones and were taken
within seconds of each other. All that are connected so are a stack.

Comparing all pairs of 100,000 pictures takes minutes. Instead pictures are compared that share a
bucket: `NUM_TABLES` times, vectors are sorted into buckets by the signs of `NUM_BITS` random
projections of their difference from the mean (Charikar 2002). Of two vectors whose cosine is
`NEAR`, at least 99 % share one. Pairs are kept beside the library, so that only new pictures are
compared with others.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polyglance.search.exact import FloatArray
from polyglance.search.query import MediaRef
from polyglance.search.store import Ids, VectorRows

NEAR = 0.95
"""The cosine from which pictures of any date are near-duplicates."""
BURST = 0.85
"""The cosine from which pictures of a burst are stacked."""
BURST_SECONDS = 5
"""How far apart two pictures of a burst are at most."""
BURST_WINDOW = 8
"""With how many of the following pictures one is compared."""
NUM_TABLES, NUM_BITS = 24, 16
MAX_DIRECT = 256
"""So many new pictures are compared with all others."""
MAX_WINDOW = 64
"""With how many others of its bucket a picture is compared at most."""

StackKind = Literal["copies", "near-duplicates", "burst"]
Pairs = NDArray[np.int64]
"""``[n, 3]``: the ids of two vectors, and which of `KINDS` they are."""
KINDS: tuple[StackKind, ...] = ("copies", "near-duplicates", "burst")

_VERSION = 1
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class Stack:
    """Pictures that are one; none of them is ever deleted by this library."""

    kind: StackKind
    """The loosest connection in it."""
    members: tuple[MediaRef, ...]
    """By date."""

    def to_json(self) -> dict[str, Any]:
        """Return the stack as JSON values."""
        return {"kind": self.kind, "paths": [str(member.path) for member in self.members]}


def near_pairs(rows: VectorRows, after: int = 0) -> Pairs:
    """Find pairs of vectors whose cosine is `NEAR` or more.

    Args:
        rows: All vectors, by rising id.
        after: Only pairs of which one has a higher id.

    Returns:
        The pairs, the lower id first.
    """
    count, width = rows.vectors.shape
    if count < 2 or int(rows.ids[-1]) <= after:
        return np.zeros((0, 3), np.int64)
    new = np.flatnonzero(rows.ids > after)
    if len(new) <= MAX_DIRECT:
        pairs = _pairs_of_new(rows, new)
        return np.concatenate([pairs, np.full((len(pairs), 1), 1)], axis=1)
    rng = np.random.default_rng(0)
    mean = rows.vectors[:: max(1, count // 10_000)].mean(0)
    found = [np.zeros((0, 2), np.int64)]
    for _ in range(NUM_TABLES):
        axes = rng.standard_normal((width, NUM_BITS + 1), np.float32)
        projected = rows.vectors @ axes - mean @ axes
        keys = (projected[:, :NUM_BITS] > 0) @ (1 << np.arange(NUM_BITS))
        # Within a bucket by one more projection: of many, the nearest are neighbours.
        order = np.lexsort((projected[:, NUM_BITS], keys))
        found.append(_pairs_in_buckets(rows, order, keys[order], after))
    pairs = np.unique(np.concatenate(found), axis=0)
    return np.concatenate([pairs, np.full((len(pairs), 1), 1)], axis=1)


def _pairs_of_new(rows: VectorRows, new: NDArray[np.intp]) -> NDArray[np.int64]:
    """Compare the vectors at these places with all: few need no buckets."""
    found = [np.zeros((0, 2), np.int64)]
    for start in range(0, len(rows), _BLOCK):
        cosines = rows.vectors[start : start + _BLOCK] @ rows.vectors[new].T
        left, right = np.nonzero(cosines >= NEAR)
        ids = np.stack([rows.ids[start + left], rows.ids[new[right]]], axis=1)
        found.append(ids[ids[:, 0] < ids[:, 1]])
    return np.unique(np.concatenate(found), axis=0)


def _pairs_in_buckets(
    rows: VectorRows, order: NDArray[np.intp], keys: Ids, after: int
) -> NDArray[np.int64]:
    """Compare vectors in this order with those of the same key that follow, `MAX_WINDOW` of them.

    Args:
        rows: All vectors.
        order: Their places, sorted by key.
        keys: Their keys, in this order.
        after: Only pairs of which one has a higher id.

    Returns:
        The pairs, ``[n, 2]``, the lower id first.
    """
    ids, found = rows.ids[order], [np.zeros((0, 2), np.int64)]
    for step in range(1, min(MAX_WINDOW, len(order) - 1) + 1):
        same = keys[step:] == keys[:-step]
        if not same.any():
            break
        places = np.flatnonzero(same & (np.maximum(ids[step:], ids[:-step]) > after))
        for start in range(0, len(places), _BLOCK):
            left = places[start : start + _BLOCK]
            cosines = np.einsum(
                "ij,ij->i", rows.vectors[order[left]], rows.vectors[order[left + step]]
            )
            near = left[cosines >= NEAR]
            found.append(np.sort(np.stack([ids[near], ids[near + step]], axis=1), axis=1))
    return np.concatenate(found)


def burst_pairs(rows: VectorRows, seconds: NDArray[np.int64], after: int = 0) -> Pairs:
    """Find pairs taken within `BURST_SECONDS` whose cosine is `BURST` or more.

    Args:
        rows: All vectors.
        seconds: When each was taken, ``[n]``.
        after: Only pairs of which one has a higher id.

    Returns:
        The pairs, the lower id first.
    """
    order = np.argsort(seconds, kind="stable")
    times, ids = seconds[order], rows.ids[order]
    found = [np.zeros((0, 3), np.int64)]
    for step in range(1, min(BURST_WINDOW, len(order) - 1) + 1):
        close = np.flatnonzero(
            (times[step:] - times[:-step] <= BURST_SECONDS)
            & (np.maximum(ids[step:], ids[:-step]) > after)
        )
        left, right = order[close], order[close + step]
        cosines = np.einsum("ij,ij->i", rows.vectors[left], rows.vectors[right])
        chosen = cosines >= BURST
        pair = np.sort(np.stack([rows.ids[left], rows.ids[right]], axis=1)[chosen], axis=1)
        found.append(np.concatenate([pair, np.full((len(pair), 1), 2)], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def group(pairs: Pairs) -> list[tuple[StackKind, list[int]]]:
    """Join pairs that share a vector; return the kind and the rising ids of each stack."""
    parents: dict[int, int] = {}

    def root(number: int) -> int:
        while (parent := parents.setdefault(number, number)) != number:
            parents[number] = parents.setdefault(parent, parent)
            number = parents[number]
        return number

    kinds: dict[int, int] = defaultdict(int)
    # The closest first: copies of one second are copies, not a burst.
    for first, second, kind in sorted(pairs.tolist(), key=lambda pair: pair[2]):
        low, high = sorted((root(first), root(second)))
        if low != high:
            parents[high] = low
            kinds[low] = max(kinds[low], kinds[high], kind)
    members: dict[int, list[int]] = defaultdict(list)
    for number in sorted(parents):
        members[root(number)].append(number)
    return [(KINDS[kinds[one]], ids) for one, ids in members.items()]


@dataclass(frozen=True, slots=True, eq=False)
class StoredPairs:
    """Pairs as of some state of a library, kept in a file that can be deleted."""

    library: str
    last: int
    """The highest id that was compared."""
    pairs: Pairs

    @classmethod
    def read(cls, path: Path | None, library: str) -> StoredPairs:
        """Read the pairs of a library with this id; none if there is no sound file of it."""
        nothing = cls(library, 0, np.zeros((0, 3), np.int64))
        try:
            if path is None:
                return nothing
            line, _, content = path.read_bytes().partition(b"\n")
            header = json.loads(line)
            pairs = np.frombuffer(content, np.int64).reshape(-1, 3)
            if header != _header(library, int(header["last"]), content) or (pairs[:, 2] > 2).any():
                return nothing
            return cls(library, int(header["last"]), pairs)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return nothing

    def write(self, path: Path) -> None:
        """Write the pairs atomically; do nothing where nothing can be written."""
        content = self.pairs.astype(np.int64).tobytes()
        line = json.dumps(_header(self.library, self.last, content)).encode()
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(handle, "wb") as file:
                file.write(line + b"\n" + content)
            os.replace(name, path)
        except OSError:
            return


def _header(library: str, last: int, content: bytes) -> dict[str, Any]:
    return {
        "library": library, "version": _VERSION, "last": last, "checksum": zlib.crc32(content)
    }  # fmt: skip


def pairs_path(library: Path) -> Path:
    """Return the path of a library's pairs."""
    return library.with_name(library.name + ".stacks")


def seconds_of(dates: Sequence[str]) -> NDArray[np.int64]:
    """Return stored dates in seconds; one that cannot be read is far from any other."""
    values = np.zeros(len(dates), np.int64)
    for place, text in enumerate(dates):
        try:
            values[place] = np.datetime64(text, "s").astype(np.int64)
        except ValueError:
            values[place] = -(10**6) * (place + 10**6)
    return values


def select_rows(rows: VectorRows, ids: Ids) -> VectorRows:
    """Return the rows with these ids, both rising."""
    mask = np.isin(rows.ids, ids, assume_unique=True)
    vectors: FloatArray = rows.vectors[mask]
    return VectorRows(rows.ids[mask], rows.items[mask], vectors)
