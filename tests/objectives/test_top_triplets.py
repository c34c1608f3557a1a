"""Triplet losses against loops over every pair, with some sentences missing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from polyglance.objectives.top_triplets import (
    Distance,
    TripletRule,
    matching_triplets,
    neighbour_triplets,
    top_triplets,
)

IMAGES, LANGUAGES, EACH, WIDTH = 5, 3, 2, 4
DESCRIBES = torch.arange(IMAGES).repeat(EACH)


def grid() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sentences = torch.randn(LANGUAGES, EACH * IMAGES, WIDTH, generator=generator).double()
    present = torch.rand(LANGUAGES, IMAGES, generator=generator).repeat(1, EACH) < 0.7
    images = torch.randn(IMAGES, WIDTH, generator=generator).double()
    assert not present.all()
    return images, sentences, present


def far(a: Tensor, b: Tensor, distance: Distance) -> float:
    a, b = a / a.norm(), b / b.norm()
    return float(1 - a @ b) if distance == "cosine" else float((a - b).norm())


def violations(positive: float, negatives: list[float], rule: TripletRule) -> list[float]:
    every = sorted((max(0.0, rule.margin + positive - n) for n in negatives), reverse=True)
    return every[: rule.negatives]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def matching_by_loops(rule: TripletRule) -> float:
    images, sentences, present = grid()
    from_pictures, from_sentences = [], []
    for language in range(LANGUAGES):
        there = [c for c in range(EACH * IMAGES) if present[language, c]]

        def distance(picture: int, column: int, language: int = language) -> float:
            return far(images[picture], sentences[language, column], rule.distance)

        for column in there:
            own = column % IMAGES
            wrong = [distance(p, column) for p in range(IMAGES) if p != own]
            from_sentences += violations(distance(own, column), wrong, rule)
            wrong = [distance(own, c) for c in there if c % IMAGES != own]
            from_pictures += violations(distance(own, column), wrong, rule)
    return mean(from_pictures) + 1.5 * mean(from_sentences)


def neighbours_by_loops(rule: TripletRule) -> float:
    _, sentences, present = grid()
    all_violations = []
    sentences_present = [
        (i, c) for i in range(LANGUAGES) for c in range(EACH * IMAGES) if present[i, c]
    ]
    for language, column in sentences_present:
        for other in range(LANGUAGES):
            positives, negatives = [], []
            for there, candidate in sentences_present:
                if there != other or (there, candidate) == (language, column):
                    continue
                d = far(sentences[language, column], sentences[there, candidate], rule.distance)
                same = candidate % IMAGES == column % IMAGES
                (positives if same else negatives).append(d)
            if positives:
                all_violations += violations(max(positives), negatives, rule)
    return mean(all_violations)


RULES = [
    TripletRule(),
    TripletRule(margin=0.3, negatives=2),
    TripletRule(margin=0.3, negatives=3, distance="euclidean"),
]


@pytest.mark.parametrize("rule", RULES)
def test_matching_agrees_with_loops(rule: TripletRule) -> None:
    images, sentences, present = grid()
    fast = matching_triplets(images, sentences, present, DESCRIBES, rule)
    assert fast.item() == pytest.approx(matching_by_loops(rule), abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_neighbours_agree_with_loops(rule: TripletRule) -> None:
    _, sentences, present = grid()
    fast = neighbour_triplets(sentences, present, DESCRIBES, rule)
    assert fast.item() == pytest.approx(neighbours_by_loops(rule), abs=1e-6)


def test_only_the_most_violated_count() -> None:
    distance = torch.tensor([[0.5, 0.1, 0.3, 0.52, 0.9]])
    same = torch.tensor([[True, False, False, False, False]])
    two = top_triplets(distance, same, ~same, TripletRule(margin=0.05, negatives=2))
    assert two.item() == pytest.approx((0.45 + 0.25) / 2)
    four = top_triplets(distance, same, ~same, TripletRule(margin=0.05, negatives=9))
    assert four.item() == pytest.approx((0.45 + 0.25 + 0.03 + 0) / 4)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_gradients_are_finite_even_where_a_caption_is_drawn_twice(distance: Distance) -> None:
    images, sentences, present = grid()
    sentences[:, IMAGES:] = sentences[:, :IMAGES]
    sentences[~present] = 0
    sentences.requires_grad_(True)
    rule = TripletRule(margin=0.3, distance=distance)
    loss = matching_triplets(images, sentences, present, DESCRIBES, rule)
    (loss + neighbour_triplets(sentences, present, DESCRIBES, rule)).backward()
    assert sentences.grad is not None
    assert sentences.grad.isfinite().all()
    assert not sentences.grad[~present].any()
    assert sentences.grad[present].any()


def test_nothing_to_compare_costs_nothing() -> None:
    alone, there = torch.randn(1, 1, 4, requires_grad=True), torch.ones(1, 1, dtype=torch.bool)
    loss = matching_triplets(torch.randn(1, 4), alone, there, torch.zeros(1, dtype=torch.long))
    loss = loss + neighbour_triplets(alone, there, torch.zeros(1, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert math.isfinite(float(alone.grad.sum()))  # type: ignore[union-attr]
