"""Large linear layers in 4 bits: which, and that the stored state is what was computed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from polyglance.errors import PolyglanceError
from polyglance.nn.compression import dequantise_4bit
from polyglance.nn.linear_compression import (
    large_linears,
    linear_compact_state,
    load_linear_compact_state,
    quantise_linears,
)


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 64), nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 1))


def test_only_large_layers_are_quantised() -> None:
    assert [name for name, _ in large_linears(build())] == ["1"]


def test_the_state_is_that_of_the_rounded_weights() -> None:
    model = build()
    before = linear_compact_state(model)
    quantise_linears(model)
    state = linear_compact_state(model)
    assert state.keys() == before.keys()
    assert set(state) == {
        "0.weight", "0.bias", "1.bias", "1.weight.codes", "1.weight.scales", "2.weight", "2.bias",
        "3.weight", "3.bias",
    }  # fmt: skip
    packed = state["1.weight.codes"]
    codes = torch.stack([packed & 15, packed >> 4], dim=-1).view(128, 64)
    weights = dequantise_4bit(codes, state["1.weight.scales"])
    torch.testing.assert_close(weights, model[1].weight.detach(), atol=1e-6, rtol=0)


def test_half_precision_stays_half_and_gradients_pass() -> None:
    model = build()
    quantise_linears(model)
    model(torch.randn(2, 7)).sum().backward()
    original = model[1].parametrizations.weight.original
    assert original.grad is not None
    assert original.grad.abs().sum() > 0
    assert model.half()[1].weight.dtype == torch.float16


def test_a_compact_state_comes_back_as_it_was_rounded() -> None:
    torch.manual_seed(0)
    model, other = (nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 3)) for _ in range(2))
    kept = other[1].weight.detach().clone()
    state = linear_compact_state(model)
    del state["1.weight"]
    load_linear_compact_state(other, state)
    quantise_linears(model)
    torch.testing.assert_close(other[0].weight, model[0].weight)
    assert torch.equal(other[0].bias, model[0].bias)
    assert torch.equal(other[1].weight, kept)  # the state lacks it
    with pytest.raises(PolyglanceError, match=r"0\.weight does not fit"):
        load_linear_compact_state(nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 3)), state)
