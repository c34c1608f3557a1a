"""EfficientNet-Lite: EfficientNet (https://arxiv.org/abs/1905.11946) less squeeze-and-excitation.

For inference only: batch norm is folded into the convolutions as the weights
are read. Padding is TensorFlow's "same", as the networks were trained, at
every input size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polyglance.errors import DataError
from polyglance.vision.devices import check_device
from polyglance.vision.tokens import VisualTokens, grid_boxes, no_spans, pooling_weights
from polyglance.weights import sha256_of

# Times a stage is repeated, its kernel, the stride of its first block and the expansion.
_STAGES = ((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6),
           (1, 3, 1, 6))  # fmt: skip
_DEPTHS = (1.0, 1.1, 1.2, 1.4, 1.8)
"""By which Lite0 to Lite4 multiply the repeats of all stages but the first and the last.

They also differ in width, which the shapes of the weights say themselves.
"""
_EPSILON = 1e-3

State = Mapping[str, Tensor]


class FoldedConv(nn.Module):
    """A convolution with the batch norm after it folded in, and "same" padding."""

    def __init__(
        self, state: State, conv: str, norm: str, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        scale = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + _EPSILON)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
        weight = state[f"{conv}.weight"] * scale[:, None, None, None]
        # Channels last: what the kernels for depthwise convolution are quickest in.
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(bias)
        self.kernel, self.stride, self.groups = self.weight.shape[-1], stride, groups

    def forward(self, x: Tensor) -> Tensor:
        """Convolve; an output pixel for every ``stride`` pixels of input, counting a begun one."""
        padding = 0
        if self.kernel > 1:
            (top, bottom), (left, right) = map(self._margins, x.shape[-2:])
            if top == bottom == left == right:
                padding = top
            else:
                x = F.pad(x, (left, right, top, bottom))
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, 1, self.groups)

    def _margins(self, length: int) -> tuple[int, int]:
        outputs = math.ceil(length / self.stride)
        total = max((outputs - 1) * self.stride + self.kernel - length, 0)
        return total // 2, total - total // 2


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


class EfficientNetLite:
    """A `Backbone`: EfficientNet-Lite with the weights of a folder."""

    def __init__(
        self, folder: Path, name: str, size: int, threads: int | None = None, device: str = "cpu"
    ) -> None:
        check_device(device)
        config, state = _read(folder)
        try:
            variant = config["variant"]
            self.mean = 255 * torch.tensor(config["mean"], dtype=torch.float32)
            self.std = 255 * torch.tensor(config["std"], dtype=torch.float32)
            self.network = Network(state, variant).eval().requires_grad_(False)
        except (KeyError, IndexError, TypeError, RuntimeError) as error:
            raise DataError(
                f"{folder} holds other weights than EfficientNet-Lite's ({error})"
            ) from error
        self.name = name
        self.size = size
        self.threads = threads
        self.width = self.network.classifier.in_features
        self.classes = self.network.classifier.out_features
        self.fingerprint = sha256_of(folder / "model.safetensors")
        self.device = torch.device(device)
        self.network.to(self.device)

    @torch.inference_mode()
    def feature_map(self, pictures: NDArray[np.uint8]) -> Tensor:
        """The (n, height, width, channels) map of (n, size, size, RGB) pictures."""
        with _threads(self.threads):
            pixels = torch.from_numpy(pictures).to(self.device, torch.float32)
            pixels = (pixels - self.mean.to(self.device)) / self.std.to(self.device)
            x: Tensor = self.network(pixels.permute(0, 3, 1, 2))
            return x.permute(0, 2, 3, 1)

    @torch.inference_mode()
    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`."""
        with _threads(self.threads):
            cells = self.feature_map(pictures)
            wholes = cells.mean((1, 2))
            if cells.shape[1:3] != (grid, grid):
                down = torch.from_numpy(pooling_weights(grid, cells.shape[1])).to(self.device)
                across = torch.from_numpy(pooling_weights(grid, cells.shape[2])).to(self.device)
                cells = torch.einsum("gh,kw,nhwc->ngkc", down, across, cells)
            cells = cells.flatten(1, 2)
            top = self.classify(cells).topk(min(labels, self.classes))
            features, vectors = cells.cpu().numpy(), wholes.cpu().numpy()
            ids = top.indices.cpu().numpy().astype(np.uint16)
            probs = top.values.cpu().numpy().astype(np.float16)
        boxes, spans = grid_boxes(grid), no_spans(grid * grid)
        return [
            VisualTokens(features[i], boxes, vectors[i], ids[i], probs[i], spans)
            for i in range(len(pictures))
        ]

    @torch.inference_mode()
    def classify(self, vectors: Tensor) -> Tensor:
        """The distribution over classes of each vector, be it of a cell or of a whole picture."""
        logits: Tensor = self.network.classifier(vectors)
        return logits.softmax(-1)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        state = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder} holds no weights that can be read ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{folder / 'config.json'}: expected a JSON object")
    return config, state


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute on so many threads, then on as many as before."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
