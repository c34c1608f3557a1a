"""Backbones by name: what turns squares of pixels into visual tokens.

A new backbone is a class with the attributes and the method of `Backbone`, and
one line of `LOADERS`; extraction, clips and the store know nothing else of it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance import weights
from polyglance.errors import MissingExtra, PolyglanceError
from polyglance.vision.pictures import Square
from polyglance.vision.tokens import VisualTokens, grid_boxes


class Backbone(Protocol):
    """A network over pictures whose feature map can be cut into a grid of any size."""

    name: str
    size: int
    """Side of the square of pixels it takes."""
    width: int
    """Length of its vectors."""
    classes: int
    """Number of classes that label a cell."""
    fingerprint: str
    """SHA-256 of its weights."""

    def encode(self, pictures: NDArray[np.uint8], *, grid: int, labels: int) -> list[VisualTokens]:
        """Visual tokens of (n, size, size, RGB) pictures.

        Each has ``grid`` x ``grid`` tokens with the ``labels`` most likely
        classes of their cell. A token is the mean of the feature map over its
        cell, so the mean of all tokens is the vector of the whole.
        """
        ...


SIZES = (32, 2048)
"""The least and the most pixels a side: the map must have a cell, and the memory an end."""
THREADS = (1, 256)
"""The least and the most threads: far more than cores crash the libraries that compute."""

Loader = Callable[[str, int, int | None, str], Backbone]


def open_backbone(
    name: str, *, size: int = 224, threads: int | None = None, device: str = "cpu"
) -> Backbone:
    """Load a backbone by name, or from a folder of such weights.

    ``size`` is the side of the square that pictures are resized to. Networks
    take other sizes than they were trained at: 224 gives every EfficientNet-Lite
    a map of 7 x 7, at 74 % of the cost of the 260 that Lite2 was trained at.
    ``threads`` are those of the computation on a CPU; None leaves them alone.
    """
    load = LOADERS.get(name) or _loader_of_folder(Path(name).expanduser())
    if load is None:
        near = difflib.get_close_matches(name, LOADERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(LOADERS)}"
        raise PolyglanceError(f"there is no backbone called {name!r}: {hint}")
    check_range("size", size, *SIZES)
    if threads is not None:
        check_range("threads", threads, *THREADS)
    return load(name, size, threads, device)


def _loader_of_folder(folder: Path) -> Loader | None:
    """How the weights in a folder are loaded, by what its configuration says they are."""
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
        return _KINDS.get(kind)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_range(name: str, value: int, least: int, most: int | None = None) -> None:
    """Refuse a setting that is too small or too large."""
    if value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"from {least} to {most}"
        raise PolyglanceError(f"{name} must be {bounds}, not {value}")


def encode_squares(
    backbone: Backbone, squares: Sequence[Square], *, batch_size: int, grid: int, labels: int
) -> list[VisualTokens]:
    """Encode pictures in batches of one shape, their boxes in fractions of the whole pictures.

    The last batch is filled up with black: kernels are chosen by shape and
    round differently, and a picture's features must not depend on how many
    others came with it.
    """
    encoded: list[VisualTokens] = []
    for start in range(0, len(squares), batch_size):
        batch = squares[start : start + batch_size]
        pixels = np.zeros((batch_size, backbone.size, backbone.size, 3), np.uint8)
        for place, square in zip(pixels, batch, strict=False):
            place[:] = square.pixels
        tokens = backbone.encode(pixels, grid=grid, labels=labels)
        encoded += [
            replace(token, boxes=grid_boxes(grid, square.frame))
            for token, square in zip(tokens, batch, strict=False)
        ]
    return encoded


def _efficientnet_lite(name: str, size: int, threads: int | None, device: str) -> Backbone:
    folder = weights.folder(name)
    try:
        from polyglance.vision.efficientnet import EfficientNetLite
    except ModuleNotFoundError as error:
        raise MissingExtra("EfficientNet-Lite", "train") from error
    return EfficientNetLite(folder, name, size, threads, device)


def _resnet(name: str, size: int, threads: int | None, device: str) -> Backbone:
    folder = weights.folder(name)
    try:
        from polyglance.vision.resnet import ResNet50
    except ModuleNotFoundError as error:
        raise MissingExtra("ResNet-50", "train") from error
    return ResNet50(folder, name, size, threads, device)


LOADERS: dict[str, Loader] = {
    "efficientnet-lite0": _efficientnet_lite,
    "efficientnet-lite1": _efficientnet_lite,
    "efficientnet-lite2": _efficientnet_lite,
    "resnet-50": _resnet,
}
"""How each backbone is loaded, by name; whatever it needs is imported when it is."""
_KINDS: dict[str, Loader] = {"efficientnet-lite": _efficientnet_lite, "resnet-50": _resnet}
