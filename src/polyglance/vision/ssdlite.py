"""SSDLite on MobileNetV2 (https://arxiv.org/abs/1801.04381, section 6.2): objects and where.

The single-shot detector (https://arxiv.org/abs/1512.02325) looks at six maps of a picture,
each half the size of the one before, and tells of every anchor, a box laid over a cell of a
map, how to move it onto an object and of which kind that is. For inference only: the weights
come with batch norm folded into the convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyglance.vision.same_convolution import SameConv

State = Mapping[str, Tensor]

# Times a stage is repeated, and the stride of its first block.
_STAGES = ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1))
_TAPPED = 13
"""The first block of the sixth stage: its widened input is the first map."""
_EXTRAS, _LEVELS = 4, 6
_SCALES = (10.0, 10.0, 5.0, 5.0)
"""By which the moves of a box's centre, height and width were multiplied in training."""


def _conv(state: State, name: str, stride: int = 1) -> SameConv:
    weight = state[f"{name}.weight"].float()
    groups = len(weight) if weight.shape[1] == 1 else 1
    return SameConv(weight, state[f"{name}.bias"].float(), stride, groups)


class Block(nn.Module):
    """An inverted bottleneck: widen, look around in each channel, narrow; add the input."""

    def __init__(self, state: State, name: str, stride: int, *, skip: bool) -> None:
        super().__init__()
        self.expand = _conv(state, f"{name}.expand") if f"{name}.expand.weight" in state else None
        self.look = _conv(state, f"{name}.look", stride)
        self.narrow = _conv(state, f"{name}.narrow")
        self.skip = skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The block's map, and what it was widened to."""
        wide: Tensor = x if self.expand is None else F.relu6(self.expand(x))
        y = self.narrow(F.relu6(self.look(wide)))
        return (x + y if self.skip else y), wide


class Extra(nn.Module):
    """Half as large a map: narrow, look around with stride 2, widen."""

    def __init__(self, state: State, name: str) -> None:
        super().__init__()
        self.narrow = _conv(state, f"{name}.narrow")
        self.look = _conv(state, f"{name}.look", 2)
        self.widen = _conv(state, f"{name}.widen")

    def forward(self, x: Tensor) -> Tensor:
        """The next map."""
        return F.relu6(self.widen(F.relu6(self.look(F.relu6(self.narrow(x))))))


class Head(nn.Module):
    """What is told of each anchor of a map."""

    def __init__(self, state: State, name: str, values: int) -> None:
        super().__init__()
        self.look, self.tell = _conv(state, f"{name}.look"), _conv(state, f"{name}.tell")
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        """(pictures, anchors, values), cell after cell."""
        told: Tensor = self.tell(F.relu6(self.look(x)))
        return told.permute(0, 2, 3, 1).reshape(len(x), -1, self.values)


class Network(nn.Module):
    """From pictures between -1 and 1 to boxes and kinds of objects."""

    anchors: Tensor

    def __init__(self, state: State) -> None:
        super().__init__()
        self.stem = _conv(state, "stem", 2)
        self.blocks = nn.ModuleList()
        for repeats, stride in _STAGES:
            for repeat in range(repeats):
                name, first = f"blocks.{len(self.blocks)}", repeat == 0
                self.blocks.append(Block(state, name, stride if first else 1, skip=not first))
        self.top = _conv(state, "top")
        self.extras = nn.ModuleList(Extra(state, f"extras.{n}") for n in range(_EXTRAS))
        self.register_buffer("anchors", _centred(state["anchors"].float()))
        # Of each anchor as many logits as there are kinds, after one for none of them.
        kinds = len(state["classes.0.tell.bias"]) * 4 // len(state["boxes.0.tell.bias"])
        self.boxes = nn.ModuleList(Head(state, f"boxes.{n}", 4) for n in range(_LEVELS))
        self.classes = nn.ModuleList(Head(state, f"classes.{n}", kinds) for n in range(_LEVELS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (left, top, right, bottom) in shares of a picture, and probabilities of kinds."""
        maps = self.maps(x)
        moves = torch.cat([head(seen) for head, seen in zip(self.boxes, maps, strict=True)], 1)
        kinds = torch.cat([head(seen) for head, seen in zip(self.classes, maps, strict=True)], 1)
        return self._moved(moves), kinds[:, :, 1:].sigmoid()

    def maps(self, x: Tensor) -> list[Tensor]:
        """The six maps, the largest first."""
        x = F.relu6(self.stem(x))
        found = []
        for number, block in enumerate(self.blocks):
            x, wide = block(x)
            if number == _TAPPED:
                found.append(wide)
        found.append(F.relu6(self.top(x)))
        for extra in self.extras:
            found.append(extra(found[-1]))
        return found

    def _moved(self, moves: Tensor) -> Tensor:
        down, across, taller, wider = (moves / moves.new_tensor(_SCALES)).unbind(-1)
        y, x, height, width = self.anchors.unbind(-1)
        y, x = y + down * height, x + across * width
        height, width = height * taller.exp(), width * wider.exp()
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return torch.stack(corners, -1).clamp(0, 1)


def _centred(anchors: Tensor) -> Tensor:
    """From (top, left, bottom, right) to the centre's y and x, height and width."""
    top, left, bottom, right = anchors.unbind(-1)
    return torch.stack([(top + bottom) / 2, (left + right) / 2, bottom - top, right - left], -1)
