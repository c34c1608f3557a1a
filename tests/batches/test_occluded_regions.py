"""Pixels as regions: what a region table of the same cells would give."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyglance.batches.inputs import PixelTable
from polyglance.batches.occluded_regions import OccludedRegions
from polyglance.objectives.draws import ItemDraws
from polyglance.vision.tokens import grid_boxes

GRID, WIDTH = 2, 3


class Halves(nn.Module):
    """A feature map of the mean colour of each quarter; counts the images it sees."""

    seen = 0

    def forward(self, pixels: Tensor) -> Tensor:
        """Return ``(n, 3, 2, 2)``."""
        self.seen += len(pixels)
        return nn.functional.adaptive_avg_pool2d(pixels, GRID)


def regions(**options: float) -> tuple[OccludedRegions, Halves, Tensor]:
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8))
    network = Halves()
    table = PixelTable(
        pixels, network, torch.zeros(3), torch.ones(3), mirror=False, min_crop_area=1
    )
    return OccludedRegions(table, GRID, WIDTH, **options), network, pixels


def test_regions_are_the_mean_and_the_cells_with_their_boxes() -> None:
    source, network, pixels = regions()
    found, labels = source.take(np.array([2, 0, 2]))
    assert network.seen == 2  # an image that comes twice is encoded once
    cells = pixels.float().view(4, 2, 4, 2, 4, 3).mean((2, 4))
    rows = found.features.view(3, 5, 3)
    torch.testing.assert_close(rows[0, 1:], cells[2].reshape(4, 3))
    torch.testing.assert_close(rows[1, 0], pixels[0].float().mean((0, 1)))
    torch.testing.assert_close(rows[0], rows[2])
    boxes = found.boxes.view(3, 5, 4)
    assert boxes[1, 0].tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(boxes[1, 1:], grid_boxes(GRID))
    assert found.packing.lengths.tolist() == [5, 5, 5]
    assert len(labels) == 15
    assert not source.has_labels


def test_dropped_cells_are_left_out_and_the_mean_never_is() -> None:
    source, _, pixels = regions(drop_cells=0.9)
    images = np.arange(4).repeat(50)
    batch = source.select(images, ItemDraws.of(7, len(images)))
    found = batch.load()
    lengths = found.packing.lengths
    # On average an image draws a share of 0.45, of four cells.
    assert 2.9 < lengths.float().mean() < 3.5
    first = found.features[found.packing.cu_seqlens[:-1].long()]
    means = pixels.float().mean((1, 2))[torch.from_numpy(images)]
    torch.testing.assert_close(first, means)
    again = source.select(images, ItemDraws.of(7, len(images)))
    assert torch.equal(again.rows, batch.rows)
    whole = source.select(images).packing.lengths
    assert set(whole.tolist()) == {5}
