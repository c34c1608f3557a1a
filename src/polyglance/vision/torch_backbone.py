"""What backbones in torch have in common: reading a folder, making tokens of feature maps."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from polyglance.errors import DataError
from polyglance.vision.devices import check_device, computing_on
from polyglance.vision.tokens import VisualTokens, grid_boxes, no_spans, pooling_weights
from polyglance.weights import sha256_of


class TorchBackbone(ABC):
    """A `Backbone` whose network is a torch module with a ``classifier`` of its map's cells."""

    network: nn.Module

    def __init__(
        self, folder: Path, name: str, size: int, threads: int | None = None, device: str = "cpu"
    ) -> None:
        check_device(device)
        config, state = read_weights(folder)
        try:
            self.mean = 255 * torch.tensor(config["mean"], dtype=torch.float32)
            self.std = 255 * torch.tensor(config["std"], dtype=torch.float32)
            network = self.make_network(config, state)
            self.network = network.eval().requires_grad_(False)
            classifier = network.get_submodule("classifier")
        except (KeyError, IndexError, TypeError, RuntimeError, AttributeError) as error:
            raise DataError(
                f"{folder} holds other weights than those of {name} ({error})"
            ) from error
        assert isinstance(classifier, nn.Linear)
        self.name = name
        self.size = size
        self.threads = threads
        self.width = classifier.in_features
        self.classes = classifier.out_features
        self.fingerprint = sha256_of(folder / "model.safetensors")
        self.device = torch.device(device)
        self.network.to(self.device)

    @abstractmethod
    def make_network(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
        """The network of these weights, from normalised pictures to a feature map."""

    @torch.inference_mode()
    def feature_map(self, pictures: NDArray[np.uint8]) -> Tensor:
        """The (n, height, width, channels) map of (n, size, size, RGB) pictures."""
        with computing_on(self.threads):
            # Torch knows neither read-only arrays, as Pillow gives, nor mirrored ones.
            pixels = torch.from_numpy(np.require(pictures, requirements=["C", "W"]))
            pixels = pixels.to(self.device, torch.float32)
            pixels = (pixels - self.mean.to(self.device)) / self.std.to(self.device)
            x: Tensor = self.network(pixels.permute(0, 3, 1, 2))
            return x.permute(0, 2, 3, 1)

    @torch.inference_mode()
    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`."""
        with computing_on(self.threads):
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
        logits: Tensor = self.network.get_submodule("classifier")(vectors)
        return logits.softmax(-1)


def read_weights(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a folder of weights says of itself, and its tensors by name."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        state = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder} holds no weights that can be read ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{folder / 'config.json'}: expected a JSON object")
    return config, state
