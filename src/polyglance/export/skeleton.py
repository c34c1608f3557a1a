"""The modules of a model without their weights: what its graphs are written by."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.vision.efficientnet import EPSILON, FoldedConv, Network

_PUBLISHED = {
    "stem": ("_conv_stem", "_bn0"),
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
    "head": ("_conv_head", "_bn1"),
}
"""The convolution and the norm, as published, that became one of ours."""
_CODES = ".weight.codes"
_VARIANTS = range(5)

Shapes = Mapping[str, tuple[int, ...]]


def skeleton(config: MMPConfig, shapes: Shapes) -> MMP:
    """An MMP model with ``eyes`` and no weights; ``shapes`` are those of its compact state."""
    with torch.device("meta"):
        model = MMP(config)
        model.add_module("eyes", _eyes(shapes))
    return model.eval()


def published_eyes(network: Network) -> tuple[int, dict[str, Tensor]]:
    """Which EfficientNet-Lite a network is, and its weights by their published names.

    The norms, which are folded into the convolutions, come back as ones that do nothing.
    """
    state: dict[str, Tensor] = {}
    for name, module in network.named_modules():
        if not isinstance(module, FoldedConv):
            continue
        convolution, norm = _published(name)
        state[f"{convolution}.weight"] = module.weight.detach().contiguous()
        state[f"{norm}.bias"] = module.bias.detach().clone()
        one = torch.ones_like(module.bias.detach())
        state[f"{norm}.weight"], state[f"{norm}.running_mean"] = one, torch.zeros_like(one)
        state[f"{norm}.running_var"] = one - EPSILON
    return _variant(state, len(network.blocks))[0], state


def _published(name: str) -> tuple[str, str]:
    """The published names of one of our convolutions and of its norm."""
    *block, part = name.split(".")
    place = f"_blocks.{block[1]}." if block else ""
    convolution, norm = _PUBLISHED[part]
    return place + convolution, place + norm


def _eyes(shapes: Shapes) -> Network:
    """EfficientNet-Lite of the widths and the depth that the shapes of its weights tell."""
    state: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if not (name.startswith("eyes.") and name.endswith(_CODES)):
            continue
        convolution, norm = _published(name.removeprefix("eyes.").removesuffix(_CODES))
        state[f"{convolution}.weight"] = torch.empty(shape)
        for piece in ("weight", "bias", "running_mean", "running_var"):
            state[f"{norm}.{piece}"] = torch.empty(shape[0])
    return _variant(state, sum(name.endswith("_project_conv.weight") for name in state))[1]


def _variant(state: dict[str, Tensor], blocks: int) -> tuple[int, Network]:
    """Which EfficientNet-Lite has so many blocks of these widths, and the network."""
    for variant in _VARIANTS:
        try:
            # The classifier is no part of MMP: one class stands for all that it had.
            channels = len(state["_conv_head.weight"])
            classifier = {"_fc.weight": torch.empty(1, channels), "_fc.bias": torch.empty(1)}
            network = Network(state | classifier, variant)
        except (KeyError, DataError):  # of another depth
            continue
        if len(network.blocks) == blocks:
            return variant, network
    raise DataError("the picture network is no EfficientNet-Lite, the only kind that is exported")
