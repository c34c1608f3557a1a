from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from polyglance.nn.encoder import Encoder, EncoderConfig
from polyglance.nn.packing import Packing

SMALL = EncoderConfig(
    vocab_size=50,
    hidden_size=16,
    num_layers=4,
    num_heads=2,
    intermediate_size=32,
    max_position_embeddings=20,
    first_position=2,
)
LENGTHS = [3, 9, 1]


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(4, 50, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))


def make(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    return Encoder(replace(SMALL, **changes))


def test_freezing_leaves_gradients_and_dropout_to_later_layers(ids: torch.Tensor) -> None:
    encoder = make(dropout=0.5).train()
    encoder.freeze_below(3)
    packing = Packing.of(LENGTHS)
    assert torch.equal(encoder(ids, packing, layer=3), encoder(ids, packing, layer=3))
    assert not torch.equal(encoder(ids, packing), encoder(ids, packing))
    encoder(ids, packing).sum().backward()
    with_gradient = {name for name, p in encoder.named_parameters() if p.grad is not None}
    assert with_gradient == {name for name, _ in encoder.named_parameters() if "layers.3" in name}
    assert encoder.eval().train().layers[0].training is False
    encoder.freeze_below(0)
    assert all(p.requires_grad for p in encoder.parameters())
    assert encoder.layers[0].training


def test_gradient_checkpointing_keeps_gradients(ids: torch.Tensor) -> None:
    packing = Packing.of(LENGTHS)
    gradients = []
    for checkpointing in (False, True):
        encoder = make(dropout=0.5).train()  # must hit the same values in the recomputation
        encoder.gradient_checkpointing = checkpointing
        rows = encoder.embed(ids, packing)
        encoder.contextualise(
            rows, packing, output_rows=torch.tensor([0, 3])
        ).square().sum().backward()
        gradients.append([p.grad for p in encoder.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, checkpointed)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_bfloat16_is_close_to_float32(ids: torch.Tensor) -> None:
    encoder = make().eval()
    packing = Packing.of(LENGTHS)
    exact = encoder(ids, packing)
    # On a CPU without bfloat16, oneDNN fails and torch disables it for good: every convolution
    # in later tests would take twice as long.
    with torch.backends.mkldnn.flags(enabled=False):
        rounded = encoder.to(torch.bfloat16)(ids, packing)
    assert rounded.dtype is torch.bfloat16
    assert torch.cosine_similarity(exact, rounded.float(), dim=1).min() > 0.999


def test_an_empty_batch_is_empty() -> None:
    encoder = make()
    assert encoder(torch.zeros(0, dtype=torch.long), Packing.of([])).shape == (0, 16)


def test_regions_can_pass_through_the_layers() -> None:
    encoder = make().eval()
    rows = torch.randn(6, 16)
    both = encoder.contextualise(rows, Packing.of([2, 4]))
    torch.testing.assert_close(both[:2], encoder.contextualise(rows[:2], Packing.of([2])))


@pytest.mark.parametrize("layer", [None, 1, 0])
def test_output_rows_equal_the_same_rows_of_all(layer: int | None) -> None:
    encoder = make().eval()
    rows, packing, only = torch.randn(6, 16), Packing.of([2, 4]), torch.tensor([5, 0])
    every = encoder.contextualise(rows, packing, layer=layer)
    some = encoder.contextualise(rows, packing, layer=layer, output_rows=only)
    torch.testing.assert_close(some, every[only])


def test_too_long_inputs_and_unknown_layers_raise_clear_errors(ids: torch.Tensor) -> None:
    encoder = make()
    with pytest.raises(ValueError, match="19 sub-words and the encoder takes 18"):
        encoder(torch.zeros(19, dtype=torch.long), Packing.of([19]))
    with pytest.raises(ValueError, match="no layer 5"):
        encoder(ids, Packing.of(LENGTHS), layer=5)
    with pytest.raises(ValueError, match="no layer 9"):
        encoder.freeze_below(9)
