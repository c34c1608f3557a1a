"""Triplet losses of the Embedding Network (Wang et al. 2018), MULE and SMALR.

Sentences form a grid ``(languages, columns, width)``: column ``c`` describes image
``image_ids[c]`` in every language, and ``present`` marks the sentences that exist. Every loss
is the mean over all triplets that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyglance.config import validate_fields
from polyglance.objectives.similarity import cosines

Distance = Literal["cosine", "euclidean"]


@dataclass(frozen=True)
class TripletRule:
    """Which triplets count, and their margin. The defaults are SMALR's for all its triplets."""

    margin: float = 0.05
    negatives: int = 10
    """N: how many of the most violated constraints count for each pair."""
    distance: Distance = "cosine"

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "margin")
        validate_fields(self, lambda value: value >= 1, "1 or more", "negatives")


PAPER_RULE = TripletRule()


def distances(first: Tensor, second: Tensor, distance: Distance = "cosine") -> Tensor:
    """Return the distance of every row of ``first`` from every row of ``second``, ``(n, m)``.

    ``cosine`` is one minus the cosine, as in SMALR's paper; ``euclidean`` the distance between
    unit vectors, as in MULE's code, where a margin of 0.05 means less.
    """
    scores = cosines(first, second)
    # The root has no derivative at zero, the distance of a caption from itself.
    return 1 - scores if distance == "cosine" else (2 - 2 * scores).clamp(min=1e-8).sqrt()


def top_triplets(
    distance: Tensor,
    positive: Tensor,
    negative: Tensor,
    rule: TripletRule = PAPER_RULE,
    *,
    positives: int = 1,
) -> Tensor:
    """Return equation 1 over the most violated constraints.

    Args:
        distance: ``(..., rows, columns)``.
        positive: ``(..., rows, columns)``: true for the positives of each row.
        negative: likewise for its negatives; other columns do not count.
        rule: the margin and the number of negatives, of which the nearest count.
        positives: how many positives count per row, the farthest first.
    """
    far = _largest(distance.masked_fill(~positive, -torch.inf), positives)
    near = -_largest(-distance.masked_fill(~negative, torch.inf), rule.negatives)
    far, near = far[..., :, None], near[..., None, :]
    counted = far.isfinite() & near.isfinite()
    violations = torch.where(counted, rule.margin + far - near, 0.0).clamp(min=0)
    return violations.sum() / counted.sum().clamp(min=1)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the largest values of each row, in any order; one or all are faster than topk."""
    if count == 1:
        return values.amax(-1, keepdim=True)
    return values if count >= values.shape[-1] else values.topk(count, sorted=False).values


def matching_triplets(
    images: Tensor,
    sentences: Tensor,
    present: Tensor,
    image_ids: Tensor,
    rule: TripletRule = PAPER_RULE,
    sentence_weight: float = 1.5,
) -> Tensor:
    """Return equation 3: images rank sentences and, times lambda 1, sentences rank images.

    Candidates are the sentences of one language, as at test time.

    Args:
        images: ``(images, width)``.
        sentences: ``(languages, columns, width)``.
        present: ``(languages, columns)``.
        image_ids: ``(columns,)``.
        rule: margin, negatives and distance.
        sentence_weight: lambda 1.
    """
    distance = distances(sentences.flatten(0, 1), images, rule.distance)
    distance = distance.view(*present.shape, len(images))
    own = image_ids[:, None] == torch.arange(len(images), device=image_ids.device)
    positive, negative = present[..., None] & own, present[..., None] & ~own
    per_image = max(1, len(image_ids) // max(1, len(images)))
    by_sentence = top_triplets(distance, positive, negative, rule)
    by_image = top_triplets(distance.mT, positive.mT, negative.mT, rule, positives=per_image)
    return by_image + sentence_weight * by_sentence


def neighbour_triplets(
    sentences: Tensor, present: Tensor, image_ids: Tensor, rule: TripletRule = PAPER_RULE
) -> Tensor:
    """Return the neighbourhood loss: sentences of one image are nearer than any others.

    For every pair of languages, a language with itself included; the farthest positive of a
    sentence counts, as in the Embedding Network.

    Args:
        sentences: ``(languages, columns, width)``.
        present: ``(languages, columns)``.
        image_ids: ``(columns,)``.
        rule: margin, negatives and distance.
    """
    languages, columns = present.shape
    flat = sentences.flatten(0, 1)
    distance = distances(flat, flat, rule.distance).view(languages, columns, languages, columns)
    both = present.flatten()[:, None] & present.flatten()
    both = both.fill_diagonal_(False).view_as(distance)
    own = (image_ids[:, None] == image_ids)[:, None]
    return top_triplets(
        distance.transpose(1, 2), (both & own).transpose(1, 2), (both & ~own).transpose(1, 2), rule
    )
