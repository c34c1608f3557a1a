from __future__ import annotations

import torch

from polyglance.nn.packing import Packing
from polyglance.nn.pooling import MeanHead, PoolingHead


def make() -> PoolingHead:
    torch.manual_seed(0)
    return PoolingHead(16, heads=4).eval()


def test_pooling_does_not_depend_on_other_sequences() -> None:
    head, rows = make(), torch.randn(9, 16)
    packed = head(rows, Packing.of([4, 5]))
    assert packed.shape == (2, 16)
    torch.testing.assert_close(packed[:1], head(rows[:4], Packing.of([4])))
    torch.testing.assert_close(packed[1:], head(rows[4:], Packing.of([5])))


def test_pooling_has_no_positions_except_for_the_first_row() -> None:
    head, rows = make(), torch.randn(5, 16)
    shuffled = rows[[0, 3, 1, 4, 2]]
    torch.testing.assert_close(head(rows, Packing.of([5])), head(shuffled, Packing.of([5])))
    swapped = rows[[1, 0, 2, 3, 4]]
    assert not torch.allclose(head(rows, Packing.of([5])), head(swapped, Packing.of([5])))


def test_context_extends_keys_and_values_as_in_equation_6() -> None:
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


def test_the_mean_includes_the_context() -> None:
    head, text, clip = MeanHead(16), torch.randn(5, 16), torch.randn(7, 16)
    sentences, clips = Packing.of([2, 3]), Packing.of([4, 3])
    alone, conditional = head(text, sentences), head(text, sentences, clip, clips)
    assert alone.shape == (2, 16)
    for number, (x, v) in enumerate(zip(text.split([2, 3]), clip.split([4, 3]), strict=True)):
        torch.testing.assert_close(alone[number], x.mean(0))
        torch.testing.assert_close(conditional[number], torch.cat([x, v]).mean(0))


def test_the_mean_heads_layer_is_trainable() -> None:
    head, rows = MeanHead(16), torch.randn(5, 16)
    with torch.no_grad():
        head.linear.weight.copy_(torch.randn(16, 16))
        head.linear.bias.copy_(torch.randn(16))
    expected = head.linear.weight @ rows.mean(0) + head.linear.bias
    torch.testing.assert_close(head(rows, Packing.of([5]))[0], expected, rtol=1e-5, atol=1e-5)
    head(rows, Packing.of([5])).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
