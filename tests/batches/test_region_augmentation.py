"""Several looks at pictures, as regions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import PixelTable
from polyglance.batches.region_augmentation import augmented_regions
from polyglance.batches.regions import RegionTable
from polyglance.objectives.masked_regions import NO_LABEL

PICTURES, SIDE = 5, 8


class Averages(nn.Module):
    """A map of 2 x 2 cells, each the mean colour of its quarter."""

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(pixels, SIDE // 2)


def pictures() -> PixelTable:
    pixels = np.random.default_rng(0).integers(256, size=(PICTURES, SIDE, SIDE, 3), dtype=np.uint8)
    return PixelTable(torch.from_numpy(pixels), Averages(), torch.zeros(3), torch.full((3,), 255.0))


def test_the_first_view_is_plain_and_of_the_whole_and_its_cells() -> None:
    seen = pictures()
    table = augmented_regions(seen, views=3, batch=2)
    regions, labels = table.take(np.array([3, 0]))
    assert regions.packing.lengths.tolist() == [5, 5]
    assert set(labels.tolist()) == {NO_LABEL}
    assert regions.boxes[:3].tolist() == [[0, 0, 1, 1], [0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5]]
    colours = seen.pixels[[3, 0]].float() / 255
    cell = colours[0, :4, 4:].mean((0, 1))
    torch.testing.assert_close(regions.features[2], cell, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(regions.features[5], colours[1].mean((0, 1)), atol=1e-3, rtol=1e-3)


def test_a_coarser_grid_is_the_mean_of_the_cells_below_it() -> None:
    seen = pictures()
    fine, coarse = augmented_regions(seen), augmented_regions(seen, grid=1)
    assert coarse.lengths.tolist() == [2] * PICTURES
    whole, cell = coarse.take(np.array([4]))[0].features
    torch.testing.assert_close(cell, whole, atol=1e-3, rtol=1e-3)
    finer = augmented_regions(seen, grid=4)
    assert finer.lengths.tolist() == [17] * PICTURES
    corner = finer.take(np.array([4]))[0].features[1]
    torch.testing.assert_close(corner, fine.take(np.array([4]))[0].features[1])


def test_training_draws_every_view_of_the_right_picture() -> None:
    seen = pictures()
    table, plain = augmented_regions(seen, views=3, batch=2), augmented_regions(seen)
    generator, items = np.random.default_rng(0), np.repeat(np.arange(PICTURES), 60)
    wholes = table.take(items, generator)[0].features[::5].reshape(PICTURES, 60, 3)
    for picture in range(PICTURES):
        looks, counts = np.unique(wholes[picture].numpy(), axis=0, return_counts=True)
        assert len(looks) == 3
        assert counts.min() > 8
        shown = plain.take(np.array([picture]))[0].features[0].numpy()
        assert np.abs(looks - shown).max(1).min() < 1e-6
    again = augmented_regions(seen, views=3, batch=2)
    assert torch.equal(again.features, table.features)


def test_tables_are_joined_view_by_view() -> None:
    seen = pictures()
    table = augmented_regions(seen, views=2)
    both = RegionTable.concat([table, table])
    items = np.array([1, PICTURES + 1])
    for seed in range(4):
        twice = both.take(items, np.random.default_rng(seed))[0]
        plain = table.take(items % PICTURES, np.random.default_rng(seed))[0]
        assert torch.equal(twice.features, plain.features)
    assert len(both) == 2 * PICTURES
