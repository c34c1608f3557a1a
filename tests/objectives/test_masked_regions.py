from __future__ import annotations

import math

import pytest
import torch

from polyglance.nn.packing import Packing
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import (
    NO_LABEL,
    choose_regions,
    mask_features,
    region_classification,
    region_regression,
)


def test_fifteen_percent_are_chosen_and_nine_in_ten_of_them_masked() -> None:
    features = torch.rand(40_000, 3) + 0.1
    chosen = choose_regions(Packing.of([40] * 1000), ItemDraws.of(0, 1000))
    hidden = mask_features(features, chosen.masked)
    assert len(chosen.positions) / len(features) == pytest.approx(0.15, abs=0.006)
    shown, original = hidden[chosen.positions], features[chosen.positions]
    zeroed = (shown == 0).all(1)
    assert zeroed.float().mean().item() == pytest.approx(0.9, abs=0.012)
    assert torch.equal(shown[~zeroed], original[~zeroed])
    rest = torch.ones(len(features), dtype=torch.bool)
    rest[chosen.positions] = False
    assert torch.equal(hidden[rest], features[rest])


@pytest.mark.parametrize("which", ["random", "last"])
def test_at_least_one_region_of_each_image_is_chosen(which: str) -> None:
    """UC2's code chooses any region of an image without one, M3P's the last, and leaves it."""
    count, regions = 6000, 7
    packing, draws = Packing.of([regions] * count), ItemDraws.of(0, count)
    maskable = torch.arange(count * regions) % regions != 6  # the last has no label
    usual = choose_regions(packing, draws, maskable=maskable)
    chosen = choose_regions(packing, draws, maskable=maskable, at_least_one=which)
    share = len(chosen.positions) / (count * 6)
    assert share == pytest.approx(0.15 + 0.85**6 / 6, abs=0.005)
    before = set(usual.positions.tolist())
    added = torch.tensor([row for row in chosen.positions.tolist() if row not in before])
    assert set((added // regions).tolist()) == set(range(count)) - {
        row // regions for row in before
    }
    places = torch.bincount(added % regions, minlength=regions) / len(added)
    masked = set(chosen.masked.tolist())
    share_masked = sum(row in masked for row in added.tolist()) / len(added)
    if which == "last":
        assert places.tolist() == [0, 0, 0, 0, 0, 1, 0]
        assert share_masked == 0
    else:
        assert places[:6].tolist() == pytest.approx([1 / 6] * 6, abs=0.03)
        assert share_masked == pytest.approx(0.9, abs=0.02)


def test_the_background_is_not_chosen_by_chance_but_as_the_last_region() -> None:
    packing, draws = Packing.of([2, 2]), ItemDraws.of(0, 2)
    background = torch.tensor([False, True, True, True])
    chosen = choose_regions(packing, draws, rate=1.0, background=background, at_least_one="last")
    assert chosen.positions.tolist() == [0, 3]
    assert 3 not in chosen.masked.tolist()


def test_an_image_without_maskable_regions_has_none_chosen() -> None:
    maskable = torch.tensor([False, False, True])
    chosen = choose_regions(
        Packing.of([2, 1]), ItemDraws.of(0, 2), rate=0, maskable=maskable, at_least_one="random"
    )
    assert chosen.positions.tolist() == [2]


def test_only_maskable_regions_are_chosen_and_hidden_1_masks_all() -> None:
    maskable = torch.tensor([True, False, True, False])
    draws = ItemDraws.of(0, 2)
    chosen = choose_regions(Packing.of([1, 3]), draws, rate=1.0, hidden=1.0, maskable=maskable)
    assert chosen.positions.tolist() == [0, 2]
    assert mask_features(torch.ones(4, 2), chosen.masked).tolist() == [
        [0, 0],
        [1, 1],
        [0, 0],
        [1, 1],
    ]


def test_the_mask_vector_gets_gradients() -> None:
    mask = torch.full((3,), 7.0, requires_grad=True)
    chosen = choose_regions(Packing.of([100]), ItemDraws.of(0, 1), rate=1.0, hidden=0.5)
    hidden = mask_features(torch.rand(100, 3), chosen.masked, mask)
    hidden.sum().backward()
    replaced = (hidden == 7).all(1).sum().item()
    assert 30 < replaced < 70
    assert mask.grad is not None
    assert mask.grad.tolist() == [replaced] * 3


def test_global_features_are_masked_with_their_regions() -> None:
    pictures, regions = 3000, 10
    parts = torch.rand(pictures, regions, 4)
    features = torch.cat([parts.mean(1, keepdim=True), parts], 1).flatten(0, 1)
    wholes = torch.arange(pictures).repeat_interleave(regions + 1) * (regions + 1)
    packing = Packing.of([regions + 1] * pictures)
    chosen = choose_regions(packing, ItemDraws.of(0, pictures), global_rows=wholes)
    hidden = mask_features(features, chosen.masked)
    assert len(chosen.positions) / (pictures * regions) == pytest.approx(0.15, abs=0.01)
    gone = (hidden == 0).all(1).view(pictures, -1)
    with_a_gap = gone[:, 1:].any(1)
    assert torch.equal(gone[:, 0], with_a_gap)
    assert 0.6 < with_a_gap.float().mean() < 0.9
    assert not (chosen.positions % (regions + 1) == 0).any()


def test_both_losses_agree_with_loops() -> None:
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


def test_a_batch_without_masked_regions_costs_nothing() -> None:
    assert region_regression(torch.randn(0, 4), torch.randn(0, 4)).item() == 0
    assert region_classification(torch.randn(0, 4), torch.zeros(0, dtype=torch.long)).item() == 0
