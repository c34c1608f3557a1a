"""Fixtures of the vision tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polyglance.vision import backbone as backbones


@pytest.fixture(scope="session")
def toy() -> Iterator[ModuleType]:
    """The toy backbone of toy.py, registered as ``toy``."""
    spec = importlib.util.spec_from_file_location("toy", Path(__file__).with_name("toy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install()
    yield module
    del backbones.LOADERS["toy"]


@pytest.fixture
def colours(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a folder of single-colour pictures."""

    def make(*shades: tuple[int, int, int]) -> Path:
        folder = tmp_path / "pictures"
        folder.mkdir()
        for number, shade in enumerate(shades):
            Image.new("RGB", (40, 30), shade).save(folder / f"{number:03d}.png")
        return folder

    return make


@pytest.fixture
def clip(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a video of grey frames at given times, each lighter by 9."""
    import av

    def make(name: str, times: list[float], paint: Any = None) -> Path:
        path = tmp_path / name
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            stream.codec_context.time_base = Fraction(1, 1000)
            stream.bit_rate = 4_000_000  # so that a frame is identified by its shade
            for number, time in enumerate(times):
                pixels = np.full((48, 64, 3), number * 9, np.uint8)
                if paint is not None:
                    paint(pixels)
                frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
                frame.pts, frame.time_base = round(time * 1000), Fraction(1, 1000)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return path

    return make
