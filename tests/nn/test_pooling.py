from __future__ import annotations

import torch

from polyglance.nn.packing import Packing
from polyglance.nn.pooling import PoolingHead


def make() -> PoolingHead:
    torch.manual_seed(0)
    return PoolingHead(16, heads=4).eval()


def test_one_vector_a_sequence_whatever_its_company() -> None:
    head, rows = make(), torch.randn(9, 16)
    packed = head(rows, Packing.of([4, 5]))
    assert packed.shape == (2, 16)
    torch.testing.assert_close(packed[:1], head(rows[:4], Packing.of([4])))
    torch.testing.assert_close(packed[1:], head(rows[4:], Packing.of([5])))


def test_no_positions_only_the_first_row_is_special() -> None:
    head, rows = make(), torch.randn(5, 16)
    shuffled = rows[[0, 3, 1, 4, 2]]
    torch.testing.assert_close(head(rows, Packing.of([5])), head(shuffled, Packing.of([5])))
    swapped = rows[[1, 0, 2, 3, 4]]
    assert not torch.allclose(head(rows, Packing.of([5])), head(swapped, Packing.of([5])))


def test_a_context_extends_keys_and_values_by_equation_6() -> None:
    head, text, clip = make(), torch.randn(5, 16), torch.randn(7, 16)
    sentences, clips = Packing.of([2, 3]), Packing.of([4, 3])
    conditional = head(text, sentences, clip, clips)
    for number, (x, v) in enumerate(zip(text.split([2, 3]), clip.split([4, 3]), strict=True)):
        rows = x
        for layer in head.layers:
            joint = torch.cat([rows, v])
            rows = layer(rows, Packing.of([len(rows)]), joint, Packing.of([len(joint)]))
        torch.testing.assert_close(conditional[number], rows[0])
    assert not torch.allclose(conditional, head(text, sentences))
