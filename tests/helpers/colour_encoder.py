"""An encoder without a network, and images and clips of plain colours for it to encode."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyglance.encoders import Picture
from polyglance.encoders.inputs import open_picture

RGB = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
NAMES = {"rot": "red", "rojo": "red", "grün": "green", "vert": "green", "أزرق": "blue"}
"""Colours in other languages."""


class ColourEncoder:
    """Encode images by the mean colours of their quarters, and texts that name a colour."""

    width = 12

    def __init__(self, name: str = "colours", *, seconds_per_picture: float = 0.0) -> None:
        self.name, self.fingerprint = name, f"fingerprint of {name}"
        self.seconds_per_picture, self.num_encoded = seconds_per_picture, 0

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        rows = [np.tile(RGB.get(NAMES.get(text, text), (1, 1, 1)), 4) for text in texts]
        return _normalise(np.array(rows, np.float32))

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        self.num_encoded += len(pictures)
        time.sleep(self.seconds_per_picture * len(pictures))
        return _normalise(np.stack([_mean_colours(picture) for picture in pictures]))


def write_image(
    path: Path, colour: str | tuple[int, int, int], size: tuple[int, int] = (24, 16)
) -> Path:
    """Write an image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def write_random_images(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Write ``count`` different images into ``folder``."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    return paths


def write_clip(
    path: Path, colours: Sequence[tuple[str, float]], rate: int = 10, codec: str = "mpeg4"
) -> Path:
    """Write a clip that shows each colour for its number of seconds."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for colour, seconds in colours:
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 48), colour))
            for _ in range(round(seconds * rate)):
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def _mean_colours(picture: Picture) -> NDArray[np.float32]:
    quarters = open_picture(picture).resize((2, 2), Image.Resampling.BOX)
    return np.asarray(quarters, np.float32).reshape(-1) + 1


def _normalise(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
