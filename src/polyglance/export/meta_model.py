"""Build an MMP model without weights, on torch's meta device, for writing its graphs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyglance.errors import DataError
from polyglance.models.mmp import MMP, MMPConfig
from polyglance.nn.meta import on_meta_device
from polyglance.vision.efficientnet import EPSILON, FoldedConv, Network

_PUBLISHED = {
    "stem": ("_conv_stem", "_bn0"),
    "expand": ("_expand_conv", "_bn0"),
    "depthwise": ("_depthwise_conv", "_bn1"),
    "project": ("_project_conv", "_bn2"),
    "head": ("_conv_head", "_bn1"),
}
"""Published names of the convolution and the norm folded into each of our convolutions."""
_PREFIX, _CODES = "image_backbone.", ".weight.codes"
_VARIANTS = range(5)

Shapes = Mapping[str, tuple[int, ...]]


def build_meta_model(config: MMPConfig, shapes: Shapes) -> MMP:
    """Return an MMP model with its ``image_backbone``, without weights.

    ``shapes`` are those of the model's compact state, by name.
    """
    with on_meta_device():
        model = MMP(config)
        model.add_module("image_backbone", _image_backbone(shapes))
    return model.eval()


def published_state(network: Network) -> tuple[int, dict[str, Tensor]]:
    """Return the variant of an EfficientNet-Lite and its weights by their published names.

    The norms, already folded into the convolutions, become identities.
    """
    state: dict[str, Tensor] = {}
    for name, module in network.named_modules():
        if not isinstance(module, FoldedConv):
            continue
        convolution, norm = _published_names(name)
        state[f"{convolution}.weight"] = module.weight.detach().contiguous()
        state[f"{norm}.bias"] = module.bias.detach().clone()
        ones = torch.ones_like(module.bias.detach())
        state[f"{norm}.weight"], state[f"{norm}.running_mean"] = ones, torch.zeros_like(ones)
        state[f"{norm}.running_var"] = ones - EPSILON
    return _variant(state, len(network.blocks))[0], state


def _published_names(name: str) -> tuple[str, str]:
    """Return the published names of one of our convolutions and of its norm."""
    *block, part = name.split(".")
    prefix = f"_blocks.{block[1]}." if block else ""
    convolution, norm = _PUBLISHED[part]
    return prefix + convolution, prefix + norm


def _image_backbone(shapes: Shapes) -> Network:
    """Return the EfficientNet-Lite of the widths and the depth given by its weights' shapes."""
    state: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        if not (name.startswith(_PREFIX) and name.endswith(_CODES)):
            continue
        convolution, norm = _published_names(name.removeprefix(_PREFIX).removesuffix(_CODES))
        state[f"{convolution}.weight"] = torch.empty(shape)
        for piece in ("weight", "bias", "running_mean", "running_var"):
            state[f"{norm}.{piece}"] = torch.empty(shape[0])
    return _variant(state, sum(name.endswith("_project_conv.weight") for name in state))[1]


def _variant(state: dict[str, Tensor], blocks: int) -> tuple[int, Network]:
    """Return the variant of EfficientNet-Lite with this number of blocks, and the network."""
    for variant in _VARIANTS:
        try:
            # MMP has no use for the classifier: a single class stands in.
            channels = len(state["_conv_head.weight"])
            classifier = {"_fc.weight": torch.empty(1, channels), "_fc.bias": torch.empty(1)}
            network = Network(state | classifier, variant)
        except (KeyError, DataError):  # of another depth
            continue
        if len(network.blocks) == blocks:
            return variant, network
    raise DataError("the image network is not an EfficientNet-Lite; no other can be exported")
