"""Base class of torch backbones: read a folder of weights, turn feature maps into tokens."""

from __future__ import annotations

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
from polyglance.utils.bounded import parse_json
from polyglance.utils.fingerprint import file_sha256
from polyglance.vision.devices import check_device, torch_num_threads
from polyglance.vision.tokens import VisualTokens, grid_boxes, pooling_weights, zero_spans


class TorchBackbone(ABC):
    """A `Backbone` whose torch network has a linear ``classifier`` of its features."""

    network: nn.Module

    def __init__(
        self, folder: Path, name: str, size: int, threads: int | None = None, device: str = "cpu"
    ) -> None:
        config, state = read_weights(folder)
        try:
            network = self.build_network(config, state)
        except (KeyError, IndexError, TypeError, RuntimeError, AttributeError) as error:
            raise DataError(f"{folder} does not hold the weights of {name} ({error})") from error
        self.set_up(network, config, folder, name, size, threads, device)

    def set_up(
        self,
        network: nn.Module,
        config: Mapping[str, Any],
        folder: Path,
        name: str,
        size: int,
        threads: int | None,
        device: str,
    ) -> None:
        """Set the attributes of `Backbone` and place the network.

        Args:
            network: With a linear ``classifier``.
            config: Holds ``mean`` and ``std`` of the channels, in 0 to 1.
            folder: Of the weights.
            name: The backbone's name.
            size: Side of its pictures in pixels.
            threads: Number of CPU threads; None for torch's default.
            device: Torch's device.
        """
        check_device(device)
        try:
            self.mean = 255 * torch.tensor(config["mean"], dtype=torch.float32)
            self.std = 255 * torch.tensor(config["std"], dtype=torch.float32)
            classifier = network.get_submodule("classifier")
        except (KeyError, TypeError, RuntimeError, AttributeError) as error:
            raise DataError(f"{folder} does not hold the weights of {name} ({error})") from error
        assert isinstance(classifier, nn.Linear)
        self.network = network.eval().requires_grad_(False)
        self.name = name
        self.size = size
        self.threads = threads
        self.width = classifier.in_features
        self.num_classes = classifier.out_features
        self.fingerprint = self.weights_fingerprint(folder)
        self.device = torch.device(device)
        self.network.to(self.device)

    def weights_fingerprint(self, folder: Path) -> str:
        """Return a hash of the weights in a folder."""
        return file_sha256(folder / "model.safetensors")

    @abstractmethod
    def build_network(self, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> nn.Module:
        """Return the network with these weights, from normalised pictures to a feature map."""

    @torch.inference_mode()
    def feature_map(self, pictures: NDArray[np.uint8]) -> Tensor:
        """Return the (n, rows, columns, channels) map of (n, size, size, RGB) pictures."""
        with torch_num_threads(self.threads):
            # Torch takes neither read-only arrays, as Pillow gives, nor negative strides.
            pixels = torch.from_numpy(np.require(pictures, requirements=["C", "W"]))
            pixels = pixels.to(self.device, torch.float32)
            pixels = (pixels - self.mean.to(self.device)) / self.std.to(self.device)
            x: Tensor = self.network(pixels.permute(0, 3, 1, 2))
            return x.permute(0, 2, 3, 1)

    @torch.inference_mode()
    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """See `Backbone.encode`."""
        return self.pool(self.feature_map(pictures), grid=grid, labels=labels)

    @torch.inference_mode()
    def pool(self, cells: Tensor, *, grid: int, labels: int) -> list[VisualTokens]:
        """Return the tokens of (n, rows, columns, channels) maps, as `encode` does."""
        with torch_num_threads(self.threads):
            means = cells.mean((1, 2))
            if cells.shape[1:3] != (grid, grid):
                down = torch.from_numpy(pooling_weights(grid, cells.shape[1])).to(self.device)
                across = torch.from_numpy(pooling_weights(grid, cells.shape[2])).to(self.device)
                cells = torch.einsum("gh,kw,nhwc->ngkc", down, across, cells)
            cells = cells.flatten(1, 2)
            top = self.classify(cells).topk(min(labels, self.num_classes))
            features, global_features = cells.cpu().numpy(), means.cpu().numpy()
            ids = top.indices.cpu().numpy().astype(np.uint16)
            probs = top.values.cpu().numpy().astype(np.float16)
        boxes, spans = grid_boxes(grid), zero_spans(grid * grid)
        return [
            VisualTokens(features[i], boxes, global_features[i], ids[i], probs[i], spans)
            for i in range(len(features))
        ]

    @torch.inference_mode()
    def classify(self, vectors: Tensor) -> Tensor:
        """Return the class probabilities (..., classes) of feature vectors (..., width)."""
        logits: Tensor = self.network.get_submodule("classifier")(vectors)
        return logits.softmax(-1)


def read_weights(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a folder's ``config.json`` and the tensors of ``model.safetensors``."""
    try:
        config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        state = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder} holds no readable weights ({error})") from error
    if not isinstance(config, dict):
        raise DataError(f"{folder / 'config.json'}: expected a JSON object")
    return config, state
