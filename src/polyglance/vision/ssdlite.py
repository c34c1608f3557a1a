"""SSDLite on MobileNetV2 (https://arxiv.org/abs/1801.04381, section 6.2), an object detector.

The single-shot detector (https://arxiv.org/abs/1512.02325) predicts, for every anchor box of
six feature maps, each half the size of the one before, an offset and class scores. For
inference only: batch norm is already folded into the convolutions. Attributes differ from
the names in the weights file, which calls depthwise layers ``look``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.vision.same_convolution import SameConv

State = Mapping[str, Tensor]

# Repeats of a stage, and the stride of its first block.
_STAGES = ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1))
_FIRST_MAP_BLOCK = 13
"""The first block of the sixth stage: its expanded input is the first feature map."""
_EXTRAS, _LEVELS = 4, 6
_SCALES = (10.0, 10.0, 5.0, 5.0)
"""Factors by which offsets of y, x, height and width were multiplied in training."""


def _conv(state: State, name: str, stride: int = 1) -> SameConv:
    weight = state[f"{name}.weight"].float()
    groups = len(weight) if weight.shape[1] == 1 else 1
    return SameConv(weight, state[f"{name}.bias"].float(), stride, groups)


class Block(nn.Module):
    """An inverted bottleneck: expand, depthwise convolution, project; add the input."""

    def __init__(self, state: State, name: str, stride: int, *, skip: bool) -> None:
        super().__init__()
        self.expand = _conv(state, f"{name}.expand") if f"{name}.expand.weight" in state else None
        self.depthwise = _conv(state, f"{name}.look", stride)
        self.project = _conv(state, f"{name}.narrow")
        self.skip = skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the block's feature map and its expanded input."""
        expanded: Tensor = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(expanded)))
        return (x + y if self.skip else y), expanded


class Extra(nn.Module):
    """A feature map of half the size: reduce, depthwise convolution with stride 2, expand."""

    def __init__(self, state: State, name: str) -> None:
        super().__init__()
        self.reduce = _conv(state, f"{name}.narrow")
        self.depthwise = _conv(state, f"{name}.look", 2)
        self.expand = _conv(state, f"{name}.widen")

    def forward(self, x: Tensor) -> Tensor:
        """Return the next feature map."""
        return F.relu6(self.expand(F.relu6(self.depthwise(F.relu6(self.reduce(x))))))


class Head(nn.Module):
    """Predicts values for each anchor of a feature map."""

    def __init__(self, state: State, name: str, values: int) -> None:
        super().__init__()
        self.depthwise = _conv(state, f"{name}.look")
        self.predict = _conv(state, f"{name}.tell")
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        """Return (pictures, anchors, values), cell by cell."""
        predictions: Tensor = self.predict(F.relu6(self.depthwise(x)))
        return predictions.permute(0, 2, 3, 1).reshape(len(x), -1, self.values)


class Network(nn.Module):
    """From pictures in -1 to 1 to boxes and class probabilities."""

    anchors: Tensor

    def __init__(self, state: State) -> None:
        super().__init__()
        self.stem = _conv(state, "stem", 2)
        self.blocks = nn.ModuleList()
        for repeats, stride in _STAGES:
            for repeat in range(repeats):
                name, is_first = f"blocks.{len(self.blocks)}", repeat == 0
                self.blocks.append(Block(state, name, stride if is_first else 1, skip=not is_first))
        self.top = _conv(state, "top")
        self.extras = nn.ModuleList(Extra(state, f"extras.{n}") for n in range(_EXTRAS))
        self.register_buffer("anchors", _centred(state["anchors"].float()))
        # Logits of each anchor: background, then the classes.
        num_logits = len(state["classes.0.tell.bias"]) * 4 // len(state["boxes.0.tell.bias"])
        self.boxes = nn.ModuleList(Head(state, f"boxes.{n}", 4) for n in range(_LEVELS))
        self.classes = nn.ModuleList(
            Head(state, f"classes.{n}", num_logits) for n in range(_LEVELS)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes (n, anchors, 4) in fractions of a picture and probabilities of classes."""
        maps = self.maps(x)
        offsets = torch.cat([head(x) for head, x in zip(self.boxes, maps, strict=True)], 1)
        logits = torch.cat([head(x) for head, x in zip(self.classes, maps, strict=True)], 1)
        return self._decode(offsets), logits[:, :, 1:].sigmoid()

    def maps(self, x: Tensor) -> list[Tensor]:
        """Return the six feature maps, the largest first."""
        x = F.relu6(self.stem(x))
        maps = []
        for number, block in enumerate(self.blocks):
            x, expanded = block(x)
            if number == _FIRST_MAP_BLOCK:
                maps.append(expanded)
        maps.append(F.relu6(self.top(x)))
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        return maps

    def _decode(self, offsets: Tensor) -> Tensor:
        """Return the boxes (left, top, right, bottom) that offsets make of the anchors."""
        dy, dx, dh, dw = (offsets / offsets.new_tensor(_SCALES)).unbind(-1)
        y, x, height, width = self.anchors.unbind(-1)
        y, x = y + dy * height, x + dx * width
        height, width = height * dh.exp(), width * dw.exp()
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return torch.stack(corners, -1).clamp(0, 1)


def _centred(anchors: Tensor) -> Tensor:
    """Convert (top, left, bottom, right) to centre y and x, height and width."""
    top, left, bottom, right = anchors.unbind(-1)
    return torch.stack([(top + bottom) / 2, (left + right) / 2, bottom - top, right - left], -1)
