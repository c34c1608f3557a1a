"""Features and pixels of images and clips, taken in batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import EarlySize, FeatureTable, PixelTable
from polyglance.objectives.draws import ItemDraws

ZERO, ONE = torch.zeros(3), torch.ones(3)


def test_rows_follow_the_order_of_items() -> None:
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


def test_item_without_features_is_rejected() -> None:
    with pytest.raises(ValueError, match="item 1 has no features"):
        FeatureTable(torch.zeros(3, 2), np.array([2, 0, 1]))


def images(count: int, side: int = 8) -> Tensor:
    """Build images whose red grows from left to right and whose green from top to bottom."""
    steps = torch.arange(side, dtype=torch.uint8) * 16
    ramp = torch.zeros(count, side, side, 3, dtype=torch.uint8)
    ramp[..., 0], ramp[..., 1] = steps, steps[:, None]
    ramp[..., 2] = torch.arange(count, dtype=torch.uint8)[:, None, None]
    return ramp


def test_image_is_its_global_vector_then_its_cells() -> None:
    mean, std = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 8.0])
    table = PixelTable(images(5), nn.AvgPool2d(4), mean, std)
    rows, packing = table.rows(np.array([3, 1]), None)
    assert packing.lengths.tolist() == [5, 5]
    for number, item in enumerate((3, 1)):
        global_vector, *cells = packing.pad(rows)[number]
        normal = (images(5)[item].float() - mean) / std
        torch.testing.assert_close(global_vector, normal.mean((0, 1)))
        torch.testing.assert_close(cells[1], normal[:4, 4:].mean((0, 1)))  # row after row
        torch.testing.assert_close(cells[2], normal[4:, :4].mean((0, 1)))


def augmented(table: PixelTable, count: int, seed: int = 0) -> Tensor:
    """Return the images as the network receives them, ``(count, height, width, RGB)``."""
    rows, packing = table.rows(np.arange(count), ItemDraws.of(seed, count))
    return packing.pad(rows)[:, 1:].unflatten(1, (8, 8))


def test_half_of_the_images_are_mirrored() -> None:
    table = PixelTable(images(200), nn.Identity(), ZERO, ONE, min_crop_area=1.0)
    result, original = augmented(table, 200), images(200).float()
    mirrored = torch.isclose(result, original.flip(2), atol=1e-2).all((1, 2, 3))
    unchanged = torch.isclose(result, original, atol=1e-2).all((1, 2, 3))
    assert (mirrored ^ unchanged).all()
    assert 70 < mirrored.sum().item() < 130


def test_mirroring_can_be_switched_off() -> None:
    table = PixelTable(images(50), nn.Identity(), ZERO, ONE, min_crop_area=1.0, mirror=False)
    assert torch.equal(augmented(table, 50), images(50).float())


@pytest.mark.parametrize("min_crop_area", [0.3, 0.8])
def test_crops_keep_the_minimum_area(min_crop_area: float) -> None:
    count = 100
    table = PixelTable(
        images(count), nn.Identity(), ZERO, ONE, min_crop_area=min_crop_area, mirror=False
    )
    crops = augmented(table, count)
    # Neighbouring pixels in the middle, where nothing is reflected, differ by 16 x the crop.
    width = (crops[:, 4, 4, 0] - crops[:, 4, 3, 0]) / 16
    height = (crops[:, 4, 4, 1] - crops[:, 3, 4, 1]) / 16
    area = width * height
    assert area.min() >= min_crop_area - 1e-3
    assert area.max() <= 1 + 1e-3
    assert area.max() - area.min() > 0.8 * (1 - min_crop_area)
    assert (width / height).log().abs().max() <= 0.2 + 1e-3
    assert (width != height).any()


def test_images_are_smaller_in_the_first_steps() -> None:
    table = PixelTable(images(4), nn.AvgPool2d(1), ZERO, ONE, min_crop_area=1.0, mirror=False)
    table.early = EarlySize(size=4, steps=10)
    cropped = PixelTable(images(4), nn.AvgPool2d(1), ZERO, ONE, min_crop_area=0.5)
    cropped.early = table.early
    for one in (table, cropped):
        for step, cells in ((0, 16), (9, 16), (10, 64)):
            draws = replace(ItemDraws.of(0, 4), step=step)
            _, packing = one.rows(np.arange(4), draws)
            assert packing.lengths.tolist() == [1 + cells] * 4
        _, packing = one.rows(np.arange(4), None)
        assert packing.lengths.tolist() == [65] * 4
    small, _ = table.rows(np.arange(4), ItemDraws.of(0, 4))
    whole, _ = table.rows(np.arange(4), None)
    # The same picture: its mean colour is that of the whole one.
    torch.testing.assert_close(
        small.view(4, 17, 3)[:, 0], whole.view(4, 65, 3)[:, 0], rtol=0.02, atol=1
    )


def test_early_crops_show_the_same_parts() -> None:
    table = PixelTable(images(64, 32), nn.AvgPool2d(4), ZERO, ONE)
    full, _ = table.rows(np.arange(64), ItemDraws.of(0, 64))
    table.early = EarlySize(size=16, steps=1)
    small, _ = table.rows(np.arange(64), ItemDraws.of(0, 64))
    means = (rows.view(64, -1, 3)[:, 0] for rows in (full, small))
    torch.testing.assert_close(*means, rtol=0.02, atol=2)


def test_augmentation_is_reproducible() -> None:
    table = PixelTable(images(10), nn.Identity(), ZERO, ONE)
    assert torch.equal(augmented(table, 10, seed=4), augmented(table, 10, seed=4))
    assert not torch.equal(augmented(table, 10, seed=4), augmented(table, 10, seed=5))


def test_gradients_reach_the_network() -> None:
    network = nn.Conv2d(3, 2, 3)
    rows, _ = PixelTable(images(2), network, ZERO, ONE).rows(np.arange(2), None)
    rows.sum().backward()
    assert network.weight.grad is not None
    assert network.weight.grad.any()


def test_another_network_gets_the_same_crops() -> None:
    table = PixelTable(images(10), nn.Identity(), ZERO, ONE, min_crop_area=0.4)
    doubled = table.with_network(nn.Conv2d(3, 3, 1))
    network = doubled.network
    assert isinstance(network, nn.Conv2d)
    with torch.no_grad():
        network.weight.copy_(2 * torch.eye(3)[:, :, None, None])
        network.bias.zero_()  # type: ignore[union-attr]
        result = augmented(doubled, 10, seed=4)
    torch.testing.assert_close(result, 2 * augmented(table, 10, seed=4))
    assert isinstance(table.network, nn.Identity)
    assert doubled.pixels is table.pixels  # they may fill most of the memory
