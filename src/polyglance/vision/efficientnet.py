"""EfficientNet-Lite: EfficientNet (https://arxiv.org/abs/1905.11946) less squeeze-and-excitation.

For inference only: batch norm is folded into the convolutions as the weights
are read. Padding is TensorFlow's "same", as the networks were trained, at
every input size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.errors import DataError
from polyglance.vision.same_convolution import SameConv
from polyglance.vision.torch_backbone import TorchBackbone

# Times a stage is repeated, its kernel, the stride of its first block and the expansion.
_STAGES = ((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6),
           (1, 3, 1, 6))  # fmt: skip
_DEPTHS = (1.0, 1.1, 1.2, 1.4, 1.8)
"""By which Lite0 to Lite4 multiply the repeats of all stages but the first and the last.

They also differ in width, which the shapes of the weights say themselves.
"""
EPSILON = 1e-3

State = Mapping[str, Tensor]


class FoldedConv(SameConv):
    """A convolution with the batch norm after it folded in."""

    def __init__(
        self, state: State, conv: str, norm: str, stride: int = 1, groups: int = 1
    ) -> None:
        scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + EPSILON)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        super().__init__(weight, bias, stride, groups)


class Block(nn.Module):
    """An inverted bottleneck: widen, look around in each channel, narrow; add the input."""

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
        """The block's map: of the input's size, or half of it with stride 2."""
        y: Tensor = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = self.project(F.relu6(self.depthwise(y), inplace=True))
        return y.add_(x) if self.skip else y


class Network(nn.Module):
    """EfficientNet-Lite up to its feature map of 1280 channels, a 32nd of the input a side."""

    def __init__(self, state: State, variant: int) -> None:
        super().__init__()
        self.stem = FoldedConv(state, "_conv_stem", "_bn0", stride=2)
        self.blocks = nn.ModuleList()
        for stage, (repeats, kernel, stride, expansion) in enumerate(_STAGES):
            if 0 < stage < len(_STAGES) - 1:
                repeats = math.ceil(repeats * _DEPTHS[variant])
            for repeat in range(repeats):
                name, first = f"_blocks.{len(self.blocks)}", repeat == 0
                block = Block(state, name, stride if first else 1, expansion > 1, skip=not first)
                if block.depthwise.kernel != kernel:
                    raise DataError(f"{name} has another kernel than EfficientNet-Lite{variant}")
                self.blocks.append(block)
        self.head = FoldedConv(state, "_conv_head", "_bn1")
        classifier = state["_fc.weight"]
        self.classifier = nn.Linear(classifier.shape[1], classifier.shape[0])
        self.classifier.load_state_dict({"weight": classifier, "bias": state["_fc.bias"]})

    def forward(self, x: Tensor) -> Tensor:
        """The feature map of normalised pictures."""
        x = F.relu6(self.stem(x), inplace=True)
        for block in self.blocks:
            x = block(x)
        return F.relu6(self.head(x), inplace=True)


class EfficientNetLite(TorchBackbone):
    """A `Backbone`: EfficientNet-Lite with the weights of a folder."""

    network: Network

    def make_network(self, config: Mapping[str, Any], state: State) -> Network:
        """See `TorchBackbone.make_network`."""
        return Network(state, config["variant"])
