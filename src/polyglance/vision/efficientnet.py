"""EfficientNet-Lite: EfficientNet (https://arxiv.org/abs/1905.11946) without squeeze-excitation.

Batch norm is folded into the convolutions when the weights are read, before any training.
Padding is TensorFlow's "same", as in training, at every input size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from polyglance.errors import DataError
from polyglance.vision.same_convolution import SameConv
from polyglance.vision.torch_backbone import TorchBackbone

# Repeats of a stage, its kernel size, the stride of its first block and the expansion ratio.
_STAGES = ((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6),
           (1, 3, 1, 6))  # fmt: skip
_DEPTHS = (1.0, 1.1, 1.2, 1.4, 1.8)
"""Depth multipliers of Lite0 to Lite4, for all stages but the first and the last.

The widths, which differ as well, are read from the shapes of the weights.
"""
EPSILON = 1e-3

State = Mapping[str, Tensor]


class FoldedConv(SameConv):
    """A convolution with the following batch norm folded in."""

    def __init__(
        self, state: State, conv: str, norm: str, stride: int = 1, groups: int = 1
    ) -> None:
        scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + EPSILON)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        super().__init__(weight, bias, stride, groups)
        self.conv_name, self.norm_name = conv, norm


class Block(nn.Module):
    """An inverted bottleneck: expand, depthwise convolution, project; add the input."""

    def __init__(self, state: State, name: str, stride: int, expand: bool, skip: bool) -> None:
        super().__init__()
        self.expand = FoldedConv(state, f"{name}._expand_conv", f"{name}._bn0") if expand else None
        channels = len(state[f"{name}._depthwise_conv.weight"])
        self.depthwise = FoldedConv(
            state, f"{name}._depthwise_conv", f"{name}._bn1", stride, channels
        )
        self.project = FoldedConv(state, f"{name}._project_conv", f"{name}._bn2")
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's feature map, half the input's size with stride 2."""
        y: Tensor = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = self.project(F.relu6(self.depthwise(y), inplace=True))
        return y.add_(x) if self.skip else y


class Network(nn.Module):
    """EfficientNet-Lite up to its feature map: 1280 channels, 1/32 of the input's sides."""

    def __init__(self, state: State, variant: int) -> None:
        super().__init__()
        self.stem = FoldedConv(state, "_conv_stem", "_bn0", stride=2)
        self.blocks = nn.ModuleList()
        for stage, (repeats, kernel, stride, expansion) in enumerate(_STAGES):
            if 0 < stage < len(_STAGES) - 1:
                repeats = math.ceil(repeats * _DEPTHS[variant])
            for repeat in range(repeats):
                name, is_first = f"_blocks.{len(self.blocks)}", repeat == 0
                block = Block(
                    state, name, stride if is_first else 1, expansion > 1, skip=not is_first
                )
                if block.depthwise.kernel != kernel:
                    raise DataError(
                        f"{name} does not have the kernel size of EfficientNet-Lite{variant}"
                    )
                self.blocks.append(block)
        self.head = FoldedConv(state, "_conv_head", "_bn1")
        classifier = state["_fc.weight"]
        self.classifier = nn.Linear(classifier.shape[1], classifier.shape[0])
        self.classifier.load_state_dict({"weight": classifier, "bias": state["_fc.bias"]})

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature map of normalised pictures (n, RGB, height, width)."""
        x = F.relu6(self.stem(x), inplace=True)
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.head(x), inplace=True)


class EfficientNetLite(TorchBackbone):
    """A `Backbone`: EfficientNet-Lite with the weights of a folder."""

    network: Network

    def build_network(self, config: Mapping[str, Any], state: State) -> Network:
        """See `TorchBackbone.build_network`."""
        self.config = dict(config)
        return Network(state, config["variant"])


def save_efficientnet(backbone: EfficientNetLite, weights: State, folder: Path) -> None:
    """Write a network, as it was trained, to a folder that opens as a backbone.

    What was folded into the convolutions stays there: batch norms become the identity with a bias.

    Args:
        backbone: The network before training, or after it.
        weights: Its weights, by the names of ``backbone.network``.
        folder: Where to write.
    """
    published: dict[str, Tensor] = {}
    for name, module in backbone.network.named_modules():
        if isinstance(module, FoldedConv):
            bias, norm = weights[f"{name}.bias"], module.norm_name
            published[f"{module.conv_name}.weight"] = weights[f"{name}.weight"]
            published[f"{norm}.weight"] = torch.ones_like(bias)
            published[f"{norm}.bias"] = bias
            published[f"{norm}.running_mean"] = torch.zeros_like(bias)
            published[f"{norm}.running_var"] = torch.full_like(bias, 1 - EPSILON)
    for name in ("weight", "bias"):
        published[f"_fc.{name}"] = weights[f"classifier.{name}"]
    folder.mkdir(parents=True, exist_ok=True)
    contiguous = {name: value.detach().cpu().contiguous() for name, value in published.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.dumps({"model_type": "efficientnet-lite", **backbone.config}, indent=2)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
