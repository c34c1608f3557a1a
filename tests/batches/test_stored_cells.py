"""Stored cells: those that the network gives for the same crops, gathered."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import PixelTable
from polyglance.batches.occluded_regions import OccludedRegions
from polyglance.batches.stored_cells import CellTable
from polyglance.objectives.draws import ItemDraws

GRID, WIDTH, COUNT = 2, 3, 5


class Quarters(nn.Module):
    """A feature map of the mean colour of each quarter; counts the images it sees."""

    seen = 0

    def forward(self, pixels: Tensor) -> Tensor:
        """Return ``(n, 3, 2, 2)``."""
        self.seen += len(pixels)
        return nn.functional.adaptive_avg_pool2d(pixels, GRID)


def images() -> tuple[PixelTable, Quarters]:
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)
    network = Quarters()
    table = PixelTable(
        torch.from_numpy(pixels), network, torch.zeros(3), torch.ones(3), min_crop_area=0.3
    )
    return table, network


def test_without_draws_cells_are_those_of_whole_images() -> None:
    table, network = images()
    stored = CellTable(table, 3, seed=1)
    seen = network.seen
    items = np.array([4, 0, 4])
    rows, packing = stored.select(items, None).load()
    assert network.seen == seen  # nothing is encoded again
    expected, own = table.rows(items, None)
    torch.testing.assert_close(rows, expected)
    assert packing.lengths.tolist() == own.lengths.tolist() == [5, 5, 5]


def test_draws_choose_each_of_the_views_equally_often() -> None:
    stored = CellTable(images()[0], 3, seed=1)
    items = np.full(3000, 2)
    rows = stored.select(items, ItemDraws.of(7, len(items))).load()[0].view(3000, 5, WIDTH)
    views = stored.cells.view(3, COUNT, 5, WIDTH)[:, 2]
    chosen = [(rows == view).all(2).all(1) for view in views]
    shares = torch.stack(chosen).float().mean(1)
    assert ((shares - 1 / 3).abs() < 0.04).all()
    assert torch.stack(chosen).sum(0).eq(1).all()  # crops of one image differ


def test_regions_of_stored_cells_hide_the_same_cells() -> None:
    table, _ = images()
    sources = (table, CellTable(table, 1, seed=1))
    batches = [
        OccludedRegions(source, GRID, WIDTH, drop_cells=0.9).select(
            np.array([1, 3]), ItemDraws.of(3, 2)
        )
        for source in sources
    ]
    assert torch.equal(batches[0].rows, batches[1].rows)
    whole = OccludedRegions(table, GRID, WIDTH).take(np.array([1, 3]))[0].features
    torch.testing.assert_close(batches[1].load().features, whole[batches[1].rows])
