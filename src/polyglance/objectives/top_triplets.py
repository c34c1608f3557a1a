"""Triplets in the manner of the Embedding Network (Wang et al. 2018), MULE and SMALR.

Sentences come as a grid: ``(languages, columns, width)``, where column ``c``
describes picture ``describes[c]`` in every language, and ``present`` tells which
sentences there are. Every figure is the mean over all triplets that count.
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
    """Which triplets count and how much. The defaults are SMALR's for all its triplets."""

    margin: float = 0.05
    negatives: int = 10
    """N: of all constraints on a pair, this many of the most violated ones."""
    distance: Distance = "cosine"

    def __post_init__(self) -> None:
        validate_fields(self, lambda value: value >= 0, "0 or more", "margin")
        validate_fields(self, lambda value: value >= 1, "1 or more", "negatives")


PAPER_RULE = TripletRule()


def distances(first: Tensor, second: Tensor, distance: Distance = "cosine") -> Tensor:
    """How far every row of ``first`` is from every row of ``second``.

    One less the cosine, as SMALR writes, or the distance between unit vectors, as
    MULE computes it: a margin of 0.05 means less there.
    """
    scores = cosines(first, second)
    # The root has no slope at zero, where a caption meets itself.
    return 1 - scores if distance == "cosine" else (2 - 2 * scores).clamp(min=1e-8).sqrt()


def top_triplets(
    apart: Tensor,
    same: Tensor,
    other: Tensor,
    rule: TripletRule = PAPER_RULE,
    *,
    positives: int = 1,
) -> Tensor:
    """Equation 1 over the most violated constraints: what belongs together is nearer by a margin.

    ``apart`` are distances ``(..., rows, columns)``. A row's ``same`` columns are its
    positives and its ``other`` columns its negatives; the rest do not count. The
    ``positives`` farthest ones meet the rule's number of nearest negatives, for these
    violate most.
    """
    far = _largest(apart.masked_fill(~same, -torch.inf), positives)
    near = -_largest(-apart.masked_fill(~other, torch.inf), rule.negatives)
    far, near = far[..., :, None], near[..., None, :]
    counted = far.isfinite() & near.isfinite()
    violations = torch.where(counted, rule.margin + far - near, 0.0).clamp(min=0)
    return violations.sum() / counted.sum().clamp(min=1)


def _largest(values: Tensor, count: int) -> Tensor:
    """The largest of each row, in any order; to choose one or all is quicker than to sort."""
    if count == 1:
        return values.amax(-1, keepdim=True)
    return values if count >= values.shape[-1] else values.topk(count, sorted=False).values


def matching_triplets(
    pictures: Tensor,
    sentences: Tensor,
    present: Tensor,
    describes: Tensor,
    rule: TripletRule = PAPER_RULE,
    sentence_weight: float = 1.5,
) -> Tensor:
    """Equation 3: pictures find their sentences, and sentences, times lambda 1, their picture.

    Candidates are the sentences of one language, as they are at test time.
    """
    apart = distances(sentences.flatten(0, 1), pictures, rule.distance)
    apart = apart.view(*present.shape, len(pictures))
    own = describes[:, None] == torch.arange(len(pictures), device=describes.device)
    same, other = present[..., None] & own, present[..., None] & ~own
    each = max(1, len(describes) // max(1, len(pictures)))
    from_sentences = top_triplets(apart, same, other, rule)
    from_pictures = top_triplets(apart.mT, same.mT, other.mT, rule, positives=each)
    return from_pictures + sentence_weight * from_sentences


def neighbour_triplets(
    sentences: Tensor, present: Tensor, describes: Tensor, rule: TripletRule = PAPER_RULE
) -> Tensor:
    """Neighbourhood constraints: sentences about one picture are nearer than any others.

    For each language against each, itself included; a sentence's farthest positive
    counts, as in the Embedding Network.
    """
    languages, columns = present.shape
    flat = sentences.flatten(0, 1)
    apart = distances(flat, flat, rule.distance).view(languages, columns, languages, columns)
    both = present.flatten()[:, None] & present.flatten()
    both = both.fill_diagonal_(False).view_as(apart)
    own = (describes[:, None] == describes)[:, None]
    return top_triplets(
        apart.transpose(1, 2), (both & own).transpose(1, 2), (both & ~own).transpose(1, 2), rule
    )
