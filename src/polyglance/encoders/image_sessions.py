"""Open the graph of an image network as this machine computes it fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyglance.encoders.channels_last import channels_last
from polyglance.encoders.half_precision import computes_float16, without_float16
from polyglance.encoders.sessions import open_session
from polyglance.errors import DataError


def open_image_session(
    content: bytes, name: Path, *, threads: int | None, device: str = "cpu"
) -> Any:
    """Open a graph of images, in float32 or with channels last; the arguments are `open_session`'s.

    Both give the vectors of the graph as it is, but for the rounding of float16. An old ARM
    processor, for which the runtime has no kernels in float16, runs the graph as it is.
    """
    if not computes_float16():
        return open_session(without_float16(content), name, threads=threads, device=device)
    if device == "cpu":
        try:
            return open_session(channels_last(content), name, threads=threads)
        except DataError:
            pass
    return open_session(content, name, threads=threads, device=device)
