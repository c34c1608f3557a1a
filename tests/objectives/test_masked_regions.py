from __future__ import annotations

import math

import pytest
import torch

from polyglance.objectives.masked_regions import (
    NO_LABEL,
    mask_regions,
    region_classification,
    region_regression,
)


def test_fifteen_percent_are_chosen_and_nine_in_ten_of_them_zeroed() -> None:
    features = torch.rand(40_000, 3) + 0.1
    torch.manual_seed(0)
    masked = mask_regions(features)
    assert len(masked.places) / len(features) == pytest.approx(0.15, abs=0.006)
    shown = masked.features[masked.places]
    zeroed = (shown == 0).all(1)
    assert zeroed.float().mean().item() == pytest.approx(0.9, abs=0.012)
    assert torch.equal(shown[~zeroed], masked.targets[~zeroed])
    assert torch.equal(masked.targets, features[masked.places])
    rest = torch.ones(len(features), dtype=torch.bool)
    rest[masked.places] = False
    assert torch.equal(masked.features[rest], features[rest])


def test_only_regions_that_may_be_hidden_are() -> None:
    maskable = torch.tensor([True, False, True, False])
    masked = mask_regions(torch.ones(4, 2), rate=1.0, zeroed=1.0, maskable=maskable)
    assert masked.places.tolist() == [0, 2]
    assert masked.features.tolist() == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_both_losses_are_those_of_loops() -> None:
    predicted, targets = torch.randn(6, 4), torch.randn(6, 4)
    squares = sum(
        (a - b) ** 2
        for first, second in zip(predicted.tolist(), targets.tolist(), strict=True)
        for a, b in zip(first, second, strict=True)
    )
    assert region_regression(predicted, targets).item() == pytest.approx(squares / 24, rel=1e-5)
    labels = torch.randint(4, (6,))
    slow = 0.0
    for row, label in zip(predicted.tolist(), labels.tolist(), strict=True):
        slow -= row[label] - math.log(sum(math.exp(value) for value in row))
    assert region_classification(predicted, labels).item() == pytest.approx(slow / 6, rel=1e-5)
    unknown = torch.full((2,), NO_LABEL)
    more = region_classification(
        torch.cat([predicted, torch.randn(2, 4)]), torch.cat([labels, unknown])
    )
    assert more.item() == pytest.approx(slow / 6, rel=1e-5)
    assert region_classification(torch.randn(2, 4), unknown).item() == 0


def test_a_batch_without_hidden_regions_costs_nothing() -> None:
    assert region_regression(torch.randn(0, 4), torch.randn(0, 4)).item() == 0
    assert region_classification(torch.randn(0, 4), torch.zeros(0, dtype=torch.long)).item() == 0
