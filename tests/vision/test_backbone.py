"""Pooling of feature maps to grids, and backbones by name."""

from __future__ import annotations

import numpy as np
import pytest

from polyglance.errors import PolyglanceError
from polyglance.vision.backbone import encode_squares, open_backbone
from polyglance.vision.pictures import Square
from polyglance.vision.tokens import grid_boxes, pooling_weights


def test_pooling_by_hand():
    assert pooling_weights(3, 3).tolist() == np.eye(3).tolist()
    assert pooling_weights(1, 4).tolist() == [[0.25] * 4]
    # Two cells over three parts: each has one part to itself and half of the middle one.
    assert np.allclose(pooling_weights(2, 3), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]])
    # Four cells over two parts: every part counts whole in two cells.
    assert np.allclose(pooling_weights(4, 2), [[1, 0], [1, 0], [0, 1], [0, 1]])


@pytest.mark.parametrize("cells", [1, 2, 3, 5, 7, 9, 12])
@pytest.mark.parametrize("parts", [1, 2, 7, 9, 10])
def test_pooling_averages_each_cell_and_keeps_the_global_mean(cells, parts):
    weights = pooling_weights(cells, parts)
    line = np.random.default_rng(0).normal(size=parts)
    fine = np.repeat(line, cells)  # cells * parts steps, every edge between two of them
    slow = fine.reshape(cells, parts).mean(1)
    assert np.allclose(weights @ line, slow, atol=1e-6)
    assert np.isclose((weights @ line).mean(), line.mean(), atol=1e-6)


def test_grid_boxes_partition_the_frame_row_by_row():
    boxes = grid_boxes(2, (0.5, 0.0, 1.0, 1.0))
    expected = [[0.5, 0, 0.75, 0.5], [0.75, 0, 1, 0.5], [0.5, 0.5, 0.75, 1], [0.75, 0.5, 1, 1]]
    assert boxes.tolist() == expected


def test_batches_have_constant_shape_and_boxes_are_in_the_frame(toy):
    backbone = toy.Toy(8)
    shades = [10, 20, 30, 40]
    frame = (0.25, 0.0, 0.75, 1.0)
    squares = [Square(np.full((8, 8, 3), shade, np.uint8), frame) for shade in shades]
    shapes = []
    encode = backbone.encode
    backbone.encode = lambda p, **options: (shapes.append(p.shape), encode(p, **options))[1]
    tokens = encode_squares(backbone, squares, batch_size=3, grid=2, labels=1)
    assert shapes == [(3, 8, 8, 3)] * 2
    assert [token.global_feature[0] for token in tokens] == shades
    assert tokens[0].boxes[0].tolist() == [0.25, 0, 0.5, 0.5]


def test_an_unknown_backbone_suggests_the_nearest_name():
    with pytest.raises(PolyglanceError, match="did you mean 'efficientnet-lite2'"):
        open_backbone("efficientnet-light2")


@pytest.mark.parametrize(
    "options", [{"size": 31}, {"size": 2049}, {"threads": 0}, {"threads": -2}, {"threads": 257}]
)
def test_sizes_and_threads_out_of_range_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(PolyglanceError, match=rf"{name} must be from \d+ to \d+, not {value}$"):
        open_backbone("efficientnet-lite2", **options)
