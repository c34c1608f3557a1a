"""Augmented views of images as regions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import PixelTable
from polyglance.batches.region_augmentation import augmented_regions
from polyglance.batches.regions import RegionTable
from polyglance.objectives.draws import ItemDraws
from polyglance.objectives.masked_regions import NO_LABEL

IMAGES, SIDE = 5, 8


class Averages(nn.Module):
    """Returns a map of 2 x 2 cells, each the mean colour of its quarter."""

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(pixels, SIDE // 2)


def pixel_table() -> PixelTable:
    pixels = np.random.default_rng(0).integers(256, size=(IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
    return PixelTable(torch.from_numpy(pixels), Averages(), torch.zeros(3), torch.full((3,), 255.0))


def test_first_view_is_not_augmented() -> None:
    images = pixel_table()
    table = augmented_regions(images, views=3, batch=2)
    regions, labels = table.take(np.array([3, 0]))
    assert regions.packing.lengths.tolist() == [5, 5]
    assert set(labels.tolist()) == {NO_LABEL}
    assert regions.boxes[:3].tolist() == [[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5]]
    colours = images.pixels[[3, 0]].float() / 255
    cell = colours[0, :4, 4:].mean((0, 1))
    torch.testing.assert_close(regions.features[2], cell, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(regions.features[5], colours[1].mean((0, 1)), atol=1e-3, rtol=1e-3)


def test_coarser_grid_is_the_mean_of_the_cells_below_it() -> None:
    images = pixel_table()
    fine, coarse = augmented_regions(images), augmented_regions(images, grid=1)
    assert coarse.lengths.tolist() == [2] * IMAGES
    global_region, cell = coarse.take(np.array([4]))[0].features
    torch.testing.assert_close(cell, global_region, atol=1e-3, rtol=1e-3)
    finer = augmented_regions(images, grid=4)
    assert finer.lengths.tolist() == [17] * IMAGES
    corner = finer.take(np.array([4]))[0].features[1]
    torch.testing.assert_close(corner, fine.take(np.array([4]))[0].features[1])


def test_training_samples_every_view_of_the_right_image() -> None:
    images = pixel_table()
    table, plain = augmented_regions(images, views=3, batch=2), augmented_regions(images)
    numbers = np.repeat(np.arange(IMAGES), 60)
    draws = ItemDraws.of(0, len(numbers))
    global_regions = table.take(numbers, draws)[0].features[::5].reshape(IMAGES, 60, 3)
    for image in range(IMAGES):
        views, counts = np.unique(global_regions[image].numpy(), axis=0, return_counts=True)
        assert len(views) == 3
        assert counts.min() > 8
        original = plain.take(np.array([image]))[0].features[0].numpy()
        assert np.abs(views - original).max(1).min() < 1e-6
    again = augmented_regions(images, views=3, batch=2)
    assert torch.equal(again.features, table.features)


def test_tables_are_concatenated_view_by_view() -> None:
    images = pixel_table()
    table = augmented_regions(images, views=2)
    both = RegionTable.concat([table, table])
    numbers = np.array([1, IMAGES + 1])
    for seed in range(4):
        joined = both.take(numbers, ItemDraws.of(seed, 2))[0]
        plain = table.take(numbers % IMAGES, ItemDraws.of(seed, 2))[0]
        assert torch.equal(joined.features, plain.features)
    assert len(both) == 2 * IMAGES
