from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import FeatureTable, PixelTable

ZERO, ONE = torch.zeros(3), torch.ones(3)


def test_features_of_items_in_the_order_asked_for() -> None:
    lengths = np.array([2, 1, 4])
    features = torch.arange(14.0).reshape(7, 2)
    table = FeatureTable(features.half(), lengths)
    rows, packing = table.rows(np.array([2, 0, 2]), None)
    pieces = features.split(lengths.tolist())
    assert torch.equal(rows, torch.cat([pieces[2], pieces[0], pieces[2]]))
    assert rows.dtype is torch.float32
    assert packing.lengths.tolist() == [4, 2, 4]
    assert len(table) == 3
    nothing, none = table.rows(np.zeros(0, np.int64), None)
    assert nothing.shape == (0, 2)
    assert len(none) == 0


def test_an_item_without_features_is_refused() -> None:
    with pytest.raises(ValueError, match="item 1 has no features"):
        FeatureTable(torch.zeros(3, 2), np.array([2, 0, 1]))


def pictures(count: int, side: int = 8) -> Tensor:
    """Whose red is the place from left to right, and whose green that from top to bottom."""
    steps = torch.arange(side, dtype=torch.uint8) * 16
    ramp = torch.zeros(count, side, side, 3, dtype=torch.uint8)
    ramp[..., 0], ramp[..., 1] = steps, steps[:, None]
    ramp[..., 2] = torch.arange(count, dtype=torch.uint8)[:, None, None]
    return ramp


def test_a_picture_is_its_whole_then_its_cells() -> None:
    mean, deviation = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 8.0])
    table = PixelTable(pictures(5), nn.AvgPool2d(4), mean, deviation)
    rows, packing = table.rows(np.array([3, 1]), None)
    assert packing.lengths.tolist() == [5, 5]
    for number, item in enumerate((3, 1)):
        whole, *cells = packing.pad(rows)[number]
        normal = (pictures(5)[item].float() - mean) / deviation
        torch.testing.assert_close(whole, normal.mean((0, 1)))
        torch.testing.assert_close(cells[1], normal[:4, 4:].mean((0, 1)))  # row after row
        torch.testing.assert_close(cells[2], normal[4:, :4].mean((0, 1)))


def augmented(table: PixelTable, count: int, seed: int = 0) -> Tensor:
    """The pictures as the network gets them, ``(count, height, width, RGB)``."""
    rows, packing = table.rows(np.arange(count), np.random.default_rng(seed))
    return packing.pad(rows)[:, 1:].unflatten(1, (8, 8))


def test_half_of_the_pictures_are_mirrored_and_otherwise_whole() -> None:
    table = PixelTable(pictures(200), nn.Identity(), ZERO, ONE, min_crop_area=1.0)
    seen, given = augmented(table, 200), pictures(200).float()
    flipped = torch.isclose(seen, given.flip(2), atol=1e-2).all((1, 2, 3))
    straight = torch.isclose(seen, given, atol=1e-2).all((1, 2, 3))
    assert (flipped ^ straight).all()
    assert 70 < flipped.sum().item() < 130


def test_where_left_matters_nothing_is_mirrored() -> None:
    table = PixelTable(pictures(50), nn.Identity(), ZERO, ONE, min_crop_area=1.0, mirror=False)
    assert torch.equal(augmented(table, 50), pictures(50).float())


@pytest.mark.parametrize("smallest", [0.3, 0.8])
def test_crops_keep_the_share_that_was_asked_for(smallest: float) -> None:
    count = 100
    table = PixelTable(
        pictures(count), nn.Identity(), ZERO, ONE, min_crop_area=smallest, mirror=False
    )
    seen = augmented(table, count)
    # Between two pixels in the middle, where nothing is reflected, lies a step of 16 x the crop.
    width = (seen[:, 4, 4, 0] - seen[:, 4, 3, 0]) / 16
    height = (seen[:, 4, 4, 1] - seen[:, 3, 4, 1]) / 16
    area = width * height
    assert area.min() >= smallest - 1e-3
    assert area.max() <= 1 + 1e-3
    assert area.max() - area.min() > 0.8 * (1 - smallest)
    assert (width / height).log().abs().max() <= 0.2 + 1e-3
    assert (width != height).any()


def test_the_same_generator_draws_the_same_crops() -> None:
    table = PixelTable(pictures(10), nn.Identity(), ZERO, ONE)
    assert torch.equal(augmented(table, 10, seed=4), augmented(table, 10, seed=4))
    assert not torch.equal(augmented(table, 10, seed=4), augmented(table, 10, seed=5))


def test_the_network_is_trained_along() -> None:
    network = nn.Conv2d(3, 2, 3)
    rows, _ = PixelTable(pictures(2), network, ZERO, ONE).rows(np.arange(2), None)
    rows.sum().backward()
    assert network.weight.grad is not None
    assert network.weight.grad.any()


def test_other_eyes_see_the_same_crops_of_the_same_pictures() -> None:
    table = PixelTable(pictures(10), nn.Identity(), ZERO, ONE, min_crop_area=0.4)
    doubled = table.with_network(nn.Conv2d(3, 3, 1))
    network = doubled.network
    assert isinstance(network, nn.Conv2d)
    with torch.no_grad():
        network.weight.copy_(2 * torch.eye(3)[:, :, None, None])
        network.bias.zero_()  # type: ignore[union-attr]
        seen = augmented(doubled, 10, seed=4)
    torch.testing.assert_close(seen, 2 * augmented(table, 10, seed=4))
    assert isinstance(table.network, nn.Identity)
    assert doubled.pixels is table.pixels  # which may fill most of an accelerator
