"""Pairs that match and pairs that do not, and hard negatives for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.batches.regions import RegionSource
from polyglance.batches.streamed_regions import StreamedRegions
from polyglance.errors import PolyglanceError
from polyglance.recipes.cross_encoder.captions import CaptionSource

Indices = NDArray[np.int64]

_BATCH = 512
"""Images compared with all others at a time."""


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """Images and captions; the n-th of each make a pair."""

    images: Indices
    captions: Indices
    """Rows of the source's table."""
    matched: NDArray[np.bool_]


def sample_pairs(
    images: Indices,
    pool: Indices,
    source: CaptionSource,
    generator: np.random.Generator,
    *,
    negatives: int,
    hard_negatives: Indices | None = None,
    hard_share: float = 1.0,
) -> SampledPairs:
    """Sample a caption for each image, and negatives that replace image or caption.

    Either is replaced half of the time (M3P, section 3.2); a caption by one in the same
    language where there is one, as in a search.

    Args:
        images: of the matching pairs, all in ``pool``.
        pool: images to take negatives from, sorted, two or more.
        source: captions of images.
        generator: the source of randomness.
        negatives: pairs that do not match, for each that does.
        hard_negatives: ``(images, k)``, for each image others that are hard to tell apart.
        hard_share: the share of negatives taken from these.

    Returns:
        The matching pairs, then the others.
    """
    own = np.repeat(images, negatives)
    drawn = generator.integers(len(pool) - 1, size=len(own))
    others = pool[drawn + (drawn >= np.searchsorted(pool, own))]
    if hard_negatives is not None:
        hard = hard_negatives[own, generator.integers(hard_negatives.shape[1], size=len(own))]
        others = np.where(generator.random(len(own)) < hard_share, hard, others)
    captions = source.sample(images, generator)
    repeated = np.repeat(captions, negatives)
    of_others = source.sample(others, generator, like=repeated)
    replace_caption = generator.random(len(own)) < 0.5
    return SampledPairs(
        images=np.concatenate([images, np.where(replace_caption, own, others)]),
        captions=np.concatenate([captions, np.where(replace_caption, of_others, repeated)]),
        matched=np.arange(len(images) + len(own)) < len(images),
    )


@torch.no_grad()
def mine_hard_negatives(regions: RegionSource, among: Indices, k: int) -> Indices:
    """Find the most similar other images of each image.

    Args:
        regions: of all images.
        among: the images that may be negatives.
        k: how many for each.

    Returns:
        ``(images, k)``, by the cosine of the mean of their regions.
    """
    if isinstance(regions, StreamedRegions):
        raise PolyglanceError(
            "hard negatives are found among images in memory, and these are read from disk: raise"
            " streaming.regions_memory, or set hard_negative_pool to 0"
        )
    k = min(k, len(among) - 1)
    if k < 1:
        raise PolyglanceError(
            "hard negatives need at least two images: set hard_negative_pool to 0"
        )
    blocks = np.array_split(np.arange(len(regions)), -(-len(regions) // _BATCH))
    batches = [regions.take(block)[0] for block in blocks]
    means = torch.cat([batch.packing.mean(batch.features) for batch in batches])
    means = torch.nn.functional.normalize(means - means.mean(0), dim=1)
    pool = torch.from_numpy(among).to(means.device)
    nearest = []
    for block in blocks:
        own = torch.from_numpy(block).to(means.device)
        similarity = means[own] @ means[pool].T
        similarity[own[:, None] == pool] = -torch.inf
        nearest.append(pool[similarity.topk(k, dim=1).indices].cpu())
    return torch.cat(nearest).numpy()
