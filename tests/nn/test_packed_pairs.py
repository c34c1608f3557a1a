from __future__ import annotations

import pytest
import torch

from polyglance.nn.packed_pairs import PackedRows, Text, box_geometry, box_location, concat_packed
from polyglance.nn.packing import Packing


def test_sequences_are_concatenated_pair_by_pair_and_found_again() -> None:
    first, second = Packing.of([2, 1, 3]), Packing.of([1, 4, 0])
    rows = torch.arange(11.0)[:, None]
    pairs = concat_packed(PackedRows(rows[:6], first), PackedRows(rows[6:], second))
    assert pairs.rows[:, 0].tolist() == [0, 1, 6, 2, 7, 8, 9, 10, 3, 4, 5]
    assert pairs.packing.lengths.tolist() == [3, 5, 3]
    left, right = pairs.positions
    assert torch.equal(pairs.rows[left], rows[:6])
    assert torch.equal(pairs.rows[right], rows[6:])


def test_box_geometry_has_corners_and_area() -> None:
    geometry = box_geometry(torch.tensor([[0.1, 0.2, 0.5, 0.7], [0, 0, 1, 1]]))
    assert geometry[0].tolist() == pytest.approx([0.1, 0.2, 0.5, 0.7, 0.2])
    assert geometry[1].tolist() == [0, 0, 1, 1, 1]


def test_moving_text_moves_ids_packing_and_languages() -> None:
    text = Text(torch.arange(5), Packing.of([2, 3]), torch.tensor([1, 0]))
    moved = text.to("meta")
    assert moved.ids.device.type == moved.packing.cu_seqlens.device.type == "meta"
    assert moved.languages is not None
    assert moved.languages.device.type == "meta"
    assert (moved.packing.num_tokens, moved.packing.max_seqlen) == (5, 3)


def test_box_location_has_corners_size_and_area() -> None:
    location = box_location(torch.tensor([[0.1, 0.2, 0.5, 0.7], [0, 0, 1, 1]]))
    assert location[0].tolist() == pytest.approx([0.1, 0.2, 0.5, 0.7, 0.4, 0.5, 0.2])
    assert location[1].tolist() == [0, 0, 1, 1, 1, 1, 1]
