"""Quantise the large linear layers of a model to 4 bits, and nothing else.

For a model whose table of words belongs to another (`polyglance.encoders.reader`). Small layers,
biases and norms stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from polyglance.nn.compression import (
    BLOCK,
    FakeQuantise,
    dequantise_layers,
    load_weights,
    pack_4bit,
)


def large_linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the name and module of each linear layer that is worth 4-bit weights."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or module.in_features % BLOCK:
            continue
        if module.out_features >= BLOCK:
            yield name, module


def quantise_linears(model: nn.Module) -> None:
    """Round the weights of large linear layers in every forward pass, in place."""
    for _, module in list(large_linears(model)):
        parametrize.register_parametrization(module, "weight", FakeQuantise(4), unsafe=True)


@torch.no_grad()
def linear_compact_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights, large linear layers as ``NAME.weight.codes`` and ``.scales``.

    The names are those of the model before `quantise_linears`.
    """
    linears = dict(large_linears(model))
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if ".parametrizations." not in name and name.removesuffix(".weight") not in linears
    }
    for name, module in linears.items():
        codes, scales = pack_4bit(module.weight)
        state[f"{name}.weight.codes"], state[f"{name}.weight.scales"] = codes, scales
    return {name: tensor.contiguous().cpu() for name, tensor in state.items()}


@torch.no_grad()
def load_linear_compact_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load what `linear_compact_state` returned, dequantised, into a model without quantisation.

    Weights that the state lacks, such as a table of words that is another model's, stay.
    """
    load_weights(model, dequantise_layers(state), complete=False)
