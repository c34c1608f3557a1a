"""Pairs that belong together beside pairs that do not: what matching learns from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.errors import PolyglanceError
from polyglance.training.caption_sources import CaptionSource
from polyglance.training.region_table import RegionTable

Indices = NDArray[np.int64]

_AT_ONCE = 512
"""Pictures compared with all others at a time."""


@dataclass(frozen=True, eq=False)
class DrawnPairs:
    """Pictures and captions, the n-th of either a pair."""

    pictures: Indices
    captions: Indices
    """Rows of the source's table."""
    matched: NDArray[np.bool_]


def draw_pairs(
    items: Indices,
    pool: Indices,
    source: CaptionSource,
    generator: np.random.Generator,
    *,
    negatives: int,
    neighbours: Indices | None = None,
    near: float = 1.0,
) -> DrawnPairs:
    """A caption for each picture, and so many pairs of which one side is replaced.

    The picture or the caption, each half of the time, gives way to that of
    another picture of ``pool`` (M3P, section 3.2), or, with ``neighbours``, the share
    ``near`` of the time, of one of the pictures in its row of that table. A caption gives
    way to one in its own language wherever there is one: who searches compares no others.
    All of ``items`` are in the pool, which is sorted and holds two pictures or more.
    """
    own = np.repeat(items, negatives)
    drawn = generator.integers(len(pool) - 1, size=len(own))
    others = pool[drawn + (drawn >= np.searchsorted(pool, own))]
    if neighbours is not None:
        alike = neighbours[own, generator.integers(neighbours.shape[1], size=len(own))]
        others = np.where(generator.random(len(own)) < near, alike, others)
    captions = source.sample(items, generator)
    of_others = source.sample(others, generator, like=np.repeat(captions, negatives))
    retold = generator.random(len(own)) < 0.5
    return DrawnPairs(
        pictures=np.concatenate([items, np.where(retold, own, others)]),
        captions=np.concatenate(
            [captions, np.where(retold, of_others, np.repeat(captions, negatives))]
        ),
        matched=np.arange(len(items) + len(own)) < len(items),
    )


@torch.no_grad()
def lookalikes(regions: RegionTable, among: Indices, k: int) -> Indices:
    """For each picture the ``k`` others that look most like it, of those of ``among``.

    By the cosine of the mean of their regions: negatives that take more than a glance.
    """
    k = min(k, len(among) - 1)
    if k < 1:
        raise PolyglanceError("lookalikes need two pictures or more, and one of each at least")
    blocks = np.array_split(np.arange(len(regions)), -(-len(regions) // _AT_ONCE))
    seen = [regions.take(block)[0] for block in blocks]
    means = torch.cat([some.packing.mean(some.features) for some in seen])
    means = torch.nn.functional.normalize(means - means.mean(0), dim=1)
    pool = torch.from_numpy(among).to(means.device)
    found = []
    for block in blocks:
        own = torch.from_numpy(block).to(means.device)
        likeness = means[own] @ means[pool].T
        likeness[own[:, None] == pool] = -torch.inf
        found.append(pool[likeness.topk(k, dim=1).indices].cpu())
    return torch.cat(found).numpy()
