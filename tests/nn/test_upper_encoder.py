"""The upper layers of an encoder read what its lower layers made of a text."""

from __future__ import annotations

import copy

import pytest
import torch

from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing
from polyglance.nn.upper_encoder import UpperEncoder

SHAPE = EncoderConfig(
    vocab_size=50, hidden_size=16, num_layers=4, num_heads=2, intermediate_size=32,
    max_position_embeddings=20, dropout=0.1,
)  # fmt: skip


@pytest.fixture
def below() -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder(SHAPE)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder.eval().requires_grad_(False)


@pytest.fixture
def text() -> tuple[torch.Tensor, Packing]:
    return torch.arange(9), Packing.of([4, 5])


@pytest.mark.parametrize("lower", [0, 1, 2])
def test_both_parts_make_the_whole(
    below: Encoder, text: tuple[torch.Tensor, Packing], lower: int
) -> None:
    upper = UpperEncoder(below, lower, 4 - lower, dropout=0.0).eval()
    assert len(upper.layers) == upper.config.num_layers == 4 - lower
    ids, packing = text
    torch.testing.assert_close(upper(ids, packing), below(ids, packing))


def test_where_too_few_layers_follow_the_last_are_copied(below: Encoder) -> None:
    upper = UpperEncoder(below, 4, 2, dropout=0.0)
    for ours, theirs in zip(upper.layers, below.layers[2:], strict=True):
        for name, value in ours.state_dict().items():
            assert torch.equal(value, theirs.state_dict()[name])


def test_only_its_own_layers_are_trained_and_saved(
    below: Encoder, text: tuple[torch.Tensor, Packing]
) -> None:
    upper = UpperEncoder(below, 2, 2, dropout=0.0).train()
    ids, packing = text
    before = copy.deepcopy(below.state_dict())
    upper(ids, packing).square().sum().backward()
    trained = {name for name, value in upper.named_parameters() if value.grad is not None}
    assert trained == {name for name, _ in upper.named_parameters() if name.startswith("layers.")}
    assert len([name for name in upper.state_dict() if name.startswith("layers.")]) == len(
        [name for name in below.state_dict() if name.startswith(("layers.2", "layers.3"))]
    )
    with torch.no_grad():
        for parameter in upper.layers.parameters():
            parameter.zero_()
    for name, value in below.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_states_are_exact_in_training_but_for_its_dropout(
    below: Encoder, text: tuple[torch.Tensor, Packing]
) -> None:
    ids, packing = text
    expected = below(ids, packing, layer=2)
    upper = UpperEncoder(below, 2, 2, dropout=0.5).train()
    torch.manual_seed(0)
    rows = upper.embed(ids, packing)
    kept = rows != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(rows[kept], 2 * expected[kept])


def test_a_copy_in_half_precision_reads_the_same(
    below: Encoder, text: tuple[torch.Tensor, Packing]
) -> None:
    ids, packing = text
    upper = UpperEncoder(below, 2, 2, dropout=0.0).eval()
    expected = upper.embed(ids, packing)
    half = copy.deepcopy(upper).half().embed(ids, packing)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), expected, atol=0.02, rtol=0.02)
