from __future__ import annotations

import pytest
import torch

from polyglance.nn.packed_pairs import PackedRows, Text, box_geometry, box_location, concat_packed
from polyglance.nn.packing import Packing


def test_two_sides_are_joined_and_come_apart_again() -> None:
    first, second = Packing.of([2, 1, 3]), Packing.of([1, 4, 0])
    rows = torch.arange(11.0)[:, None]
    pairs = concat_packed(PackedRows(rows[:6], first), PackedRows(rows[6:], second))
    assert pairs.rows[:, 0].tolist() == [0, 1, 6, 2, 7, 8, 9, 10, 3, 4, 5]
    assert pairs.packing.lengths.tolist() == [3, 5, 3]
    left, right = pairs.take(10 * pairs.rows)
    assert torch.equal(left, 10 * rows[:6])
    assert torch.equal(right, 10 * rows[6:])


def test_the_five_numbers_of_a_box() -> None:
    geometry = box_geometry(torch.tensor([[0.1, 0.2, 0.5, 0.7], [0, 0, 1, 1]]))
    assert geometry[0].tolist() == pytest.approx([0.1, 0.2, 0.5, 0.7, 0.2])
    assert geometry[1].tolist() == [0, 0, 1, 1, 1]


def test_text_is_moved_whole() -> None:
    text = Text(torch.arange(5), Packing.of([2, 3]), torch.tensor([1, 0]))
    moved = text.to("meta")
    assert moved.ids.device.type == moved.packing.cu_seqlens.device.type == "meta"
    assert moved.languages is not None
    assert moved.languages.device.type == "meta"
    assert (moved.packing.num_tokens, moved.packing.max_seqlen) == (5, 3)


def test_the_seven_numbers_of_a_box() -> None:
    location = box_location(torch.tensor([[0.1, 0.2, 0.5, 0.7], [0, 0, 1, 1]]))
    assert location[0].tolist() == pytest.approx([0.1, 0.2, 0.5, 0.7, 0.4, 0.5, 0.2])
    assert location[1].tolist() == [0, 0, 1, 1, 1, 1, 1]
