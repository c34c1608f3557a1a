"""An encoder without a network, for tests of what is built on encoders; and what it sees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from polyglance.encoders import Picture
from polyglance.vision.pictures import read_picture

NAMES = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}


class Colours:
    """Sees the mean colours of the four quarters of a picture, and reads names of colours."""

    width = 12

    def __init__(self, name: str = "colours", *, seconds: float = 0.0) -> None:
        """``seconds`` is how long it looks at a picture."""
        self.name, self.fingerprint = name, f"fingerprint of {name}"
        self.seconds, self.seen = seconds, 0

    def encode_texts(
        self, texts: Sequence[str], *, language: str | None = None
    ) -> NDArray[np.float32]:
        rows = [np.tile(NAMES.get(text, (1, 1, 1)), 4) for text in texts]
        return _unit(np.array(rows, np.float32))

    def encode_pictures(self, pictures: Sequence[Picture]) -> NDArray[np.float32]:
        self.seen += len(pictures)
        time.sleep(self.seconds * len(pictures))
        return _unit(np.stack([self._look(picture) for picture in pictures]))

    def _look(self, picture: Picture) -> NDArray[np.float32]:
        opened = read_picture(picture) if isinstance(picture, str | Path) else picture
        assert isinstance(opened, Image.Image)
        small = opened.resize((2, 2), Image.Resampling.BOX)
        return np.asarray(small, np.float32).reshape(-1) + 1


def paint(path: Path, colour: str | tuple[int, int, int], size: tuple[int, int] = (24, 16)) -> Path:
    """A picture of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def scatter(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Different pictures."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:04}.png" for number in range(count)]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    return paths


def film(path: Path, colours: Sequence[tuple[str, float]], rate: int = 10) -> Path:
    """A clip that shows each colour for so many seconds."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for colour, seconds in colours:
            frame = av.VideoFrame.from_image(Image.new("RGB", (64, 48), colour))
            for _ in range(round(seconds * rate)):
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
