"""Image backbones by name: networks that turn pixels into visual tokens.

To add one, write a class with the attributes and the method of `Backbone` and add a line
to `LOADERS`; extraction, clips and the store need nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance import weights
from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.utils.bounded import parse_json
from polyglance.vision.pictures import Box, Square
from polyglance.vision.tokens import VisualTokens, grid_boxes

Boxes = NDArray[np.float32]


class Backbone(Protocol):
    """An image network whose feature map can be pooled to a grid of any size."""

    name: str
    size: int
    """Side of the square input in pixels."""
    width: int
    """Dimension of its feature vectors."""
    num_classes: int
    """Number of classes of its classifier."""
    fingerprint: str
    """SHA-256 of its weights."""

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """Encode pictures to grid features.

        A token is the mean of the feature map over its cell, so the mean of all tokens
        is the global feature.

        Args:
            pictures: (n, size, size, RGB).
            grid: Number of cells per side.
            labels: Number of most likely classes to return for each cell.

        Returns:
            The ``grid * grid`` tokens of each picture.
        """
        ...


SIZE_RANGE = (32, 2048)
"""Minimum and maximum input size: the feature map needs a cell, and memory is bounded."""
THREAD_RANGE = (1, 256)
"""Minimum and maximum number of threads: far more than cores crash the libraries."""

Loader = Callable[[str, int, int | None, str], Backbone]


def open_backbone(
    name: str, *, size: int = 224, threads: int | None = None, device: str = "cpu"
) -> Backbone:
    """Load a backbone by name, or from a folder of its weights.

    Args:
        name: A name of `LOADERS`, or a folder with ``config.json`` and weights: ours, or that
            of a vision model of transformers (ViT, ConvNeXt, DINOv2, SigLIP ...).
        size: Side of the square that pictures are resized to, which may differ from
            training: 224 gives every EfficientNet-Lite a 7 x 7 map, at 74 % of the cost
            of the 260 that Lite2 was trained at.
        threads: Number of CPU threads; None for torch's default.
        device: Torch's device.
    """
    load = LOADERS.get(name) or _loader_of_folder(Path(name).expanduser())
    if load is None:
        near = difflib.get_close_matches(name, LOADERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(LOADERS)}"
        raise PolyglanceError(f"there is no backbone called {name!r}: {hint}")
    check_range("size", size, *SIZE_RANGE)
    if threads is not None:
        check_range("threads", threads, *THREAD_RANGE)
    return load(name, size, threads, device)


def _loader_of_folder(folder: Path) -> Loader | None:
    """Return the loader of a folder's weights by the ``model_type`` of its config."""
    try:
        model_type = parse_json((folder / "config.json").read_bytes())["model_type"]
        return _LOADERS_BY_TYPE.get(model_type, _transformers)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_transformers_folder(folder: Path) -> bool:
    """Return whether a folder holds a model that transformers opens, and not one of ours."""
    return _loader_of_folder(folder) is _transformers


def check_range(name: str, value: int, minimum: int, maximum: int | None = None) -> None:
    """Raise a `PolyglanceError` if a setting is out of range."""
    if value < minimum or (maximum is not None and value > maximum):
        bounds = f"{minimum} or more" if maximum is None else f"from {minimum} to {maximum}"
        raise PolyglanceError(f"{name} must be {bounds}, not {value}")


def encode_squares(
    backbone: Backbone, squares: Sequence[Square], *, batch_size: int, grid: int, labels: int
) -> list[VisualTokens]:
    """Encode pictures in batches of constant shape.

    The last batch is padded with black pictures: kernels are chosen by shape and round
    differently, and a picture's features must not depend on its batch.

    Args:
        backbone: The network.
        squares: Pictures of the backbone's size.
        batch_size: Pictures per batch.
        grid: Number of cells per side.
        labels: Number of most likely classes to return for each cell.

    Returns:
        The tokens of each picture, with boxes in fractions of the uncropped picture.
    """
    encoded: list[VisualTokens] = []
    for start in range(0, len(squares), batch_size):
        batch = squares[start : start + batch_size]
        pixels = np.zeros((batch_size, backbone.size, backbone.size, 3), np.uint8)
        for row, square in zip(pixels, batch, strict=False):
            row[:] = square.pixels
        tokens = backbone.encode(pixels, grid=grid, labels=labels)
        encoded += [
            replace(token, boxes=_boxes_of_whole(token.boxes, grid, square.frame))
            for token, square in zip(tokens, batch, strict=False)
        ]
    return encoded


def _boxes_of_whole(boxes: Boxes, grid: int, frame: Box) -> Boxes:
    """Return the boxes of a cropped picture in fractions of the whole one; cells come first."""
    left, top, right, bottom = frame
    size = np.array([right - left, bottom - top] * 2, np.float32)
    objects = boxes[grid * grid :] * size + np.array([left, top] * 2, np.float32)
    return np.concatenate([grid_boxes(grid, frame), objects])


def _efficientnet_lite(name: str, size: int, threads: int | None, device: str) -> Backbone:
    folder = weights.folder(name)
    try:
        from polyglance.vision.efficientnet import EfficientNetLite
    except ModuleNotFoundError as error:
        raise MissingExtraError("EfficientNet-Lite", "train") from error
    return EfficientNetLite(folder, name, size, threads, device)


def _resnet(name: str, size: int, threads: int | None, device: str) -> Backbone:
    folder = weights.folder(name)
    try:
        from polyglance.vision.resnet import ResNet50
    except ModuleNotFoundError as error:
        raise MissingExtraError("ResNet-50", "train") from error
    return ResNet50(folder, name, size, threads, device)


def _transformers(name: str, size: int, threads: int | None, device: str) -> Backbone:
    """Open any other folder with transformers, which knows many vision models."""
    try:
        from polyglance.vision.transformers_backbone import TransformersBackbone
    except ModuleNotFoundError as error:
        raise MissingExtraError("a vision model of transformers", "train") from error
    return TransformersBackbone(Path(name).expanduser(), name, size, threads, device)


LOADERS: dict[str, Loader] = {
    "efficientnet-lite0": _efficientnet_lite,
    "efficientnet-lite1": _efficientnet_lite,
    "efficientnet-lite2": _efficientnet_lite,
    "resnet-50": _resnet,
}
"""Loaders by name; each imports what it needs when called."""
_LOADERS_BY_TYPE: dict[str, Loader] = {
    "efficientnet-lite": _efficientnet_lite,
    "resnet-50": _resnet,
}
