from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyglance.nn.packing import Packing, concat_packings, join_packings

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def test_the_docstrings_example() -> None:
    packing = Packing.of([3, 1, 2])
    assert packing.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert packing.positions.tolist() == [0, 1, 2, 0, 0, 1]
    assert packing.sequence_ids.tolist() == [0, 0, 0, 1, 2, 2]
    assert (packing.max_seqlen, packing.num_tokens, len(packing)) == (3, 6, 3)


def test_an_empty_batch_and_an_empty_sequence() -> None:
    assert len(Packing.of([])) == 0
    packing = Packing.of([0, 2])
    rows = torch.tensor([[2.0], [4.0]])
    assert packing.mean(rows).tolist() == [[0.0], [3.0]]
    assert packing.pad(rows)[..., 0].tolist() == [[0, 0], [2, 4]]
    nothing = torch.zeros(0, 1)
    for none in (Packing.of([]), Packing.of([0, 0])):
        assert none.unpad(none.pad(nothing)).shape == (0, 1)
        assert none.mean(nothing).shape == (len(none), 1)


@given(LENGTHS)
def test_padding_and_back_and_means_agree_with_loops(lengths: list[int]) -> None:
    packing = Packing.of(lengths)
    rows = torch.randn(sum(lengths), 3, generator=torch.Generator().manual_seed(0))
    pieces = rows.split(lengths)
    padded = packing.pad(rows)
    for number, piece in enumerate(pieces):
        assert torch.equal(padded[number, : len(piece)], piece)
        assert not padded[number, len(piece) :].any()
        assert torch.equal(packing.first(rows)[number], piece[0])
        torch.testing.assert_close(packing.mean(rows)[number], piece.mean(0))
    assert torch.equal(packing.unpad(padded), rows)


@given(LENGTHS, st.data())
def test_concat_packings_puts_each_sequence_after_its_partner(
    lengths: list[int], data: st.DataObject
) -> None:
    others = data.draw(st.lists(st.integers(0, 5), min_size=len(lengths), max_size=len(lengths)))
    first = torch.arange(sum(lengths))
    second = -1 - torch.arange(sum(others))
    joint, index = concat_packings(Packing.of(lengths), Packing.of(others))
    expected = [
        torch.cat(pair) for pair in zip(first.split(lengths), second.split(others), strict=True)
    ]
    assert torch.cat([first, second])[index].tolist() == torch.cat(expected).tolist()
    assert joint.lengths.tolist() == [len(piece) for piece in expected]
    assert joint.max_seqlen >= max(len(piece) for piece in expected)


def test_join_packings_puts_all_sequences_end_to_end() -> None:
    joint = join_packings([Packing.of([2, 5]), Packing.of([]), Packing.of([1, 3, 1])])
    expected = Packing.of([2, 5, 1, 3, 1])
    assert joint.cu_seqlens.tolist() == expected.cu_seqlens.tolist()
    assert joint.cu_seqlens.dtype is expected.cu_seqlens.dtype
    assert (joint.max_seqlen, joint.num_tokens) == (5, 12)


def test_concat_packings_refuses_batches_of_different_size() -> None:
    with pytest.raises(ValueError, match="cannot be joined"):
        concat_packings(Packing.of([1]), Packing.of([1, 2]))
