"""Open ONNX graphs with ONNX Runtime, and prepare pictures for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.inputs import picture_from_memory
from polyglance.encoders.model_folder import REINSTALL_HINT, ImagePreprocessing
from polyglance.encoders.protocol import Picture
from polyglance.errors import DataError
from polyglance.vision.pictures import decoding_side, read_square, to_square

CUDA = "CUDAExecutionProvider"


def open_session(content: bytes, name: Path, *, threads: int | None, device: str = "cpu") -> Any:
    """Open a graph.

    Args:
        content: The ONNX file.
        name: Of the file, for errors.
        threads: Number of CPU threads; None for one a core.
        device: ``cpu``, or ``cuda`` with a number perhaps.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Threads that spin while they wait take a third more CPU time, for no gain in latency.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(content, options, providers=providers_for(device))
    except Exception as error:  # the runtime's own exceptions share no other base class
        raise DataError(
            f"{name} cannot be run by ONNX Runtime {onnxruntime.__version__}"
            f" ({one_line(error)}): pip install --upgrade onnxruntime"
        ) from error


def run_session(session: Any, name: Path, **inputs: NDArray[Any]) -> list[Any]:
    """Return all outputs of a graph; ``name`` is that of its file, for errors."""
    try:
        outputs: list[Any] = session.run(None, inputs)
    except Exception as error:  # the runtime's own exceptions share no other base class
        raise DataError(
            f"{name} does not compute as its description says ({one_line(error)}): {REINSTALL_HINT}"
        ) from error
    return outputs


def providers_for(device: str) -> list[Any]:
    """Return ONNX Runtime's execution providers for a device."""
    if device == "cpu":
        return ["CPUExecutionProvider"]
    number = device.partition(":")[2] or "0"
    return [(CUDA, {"device_id": number}), "CPUExecutionProvider"]


def one_line(error: Exception) -> str:
    """Return an exception's message in one line."""
    return " ".join(str(error).split())


def threads_by_environment() -> int | None:
    """Return OMP_NUM_THREADS, by which batch systems share out cores, as torch does; or None."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else None


def picture_pixels(picture: Picture, settings: ImagePreprocessing) -> NDArray[np.uint8]:
    """Decode a picture to the network's size, (size, size, RGB)."""
    if isinstance(picture, str | Path):
        return read_square(picture, settings.size, settings.resize).pixels
    # As `read_square` decodes a file: its bytes give the same vector.
    opened = picture_from_memory(picture, min_side=decoding_side(settings.size))
    return to_square(opened, settings.size, settings.resize).pixels


def normalise_pixels(
    pixels: NDArray[np.uint8], settings: ImagePreprocessing
) -> NDArray[np.float32]:
    """Return uint8 (n, size, size, RGB) as the network takes them: (n, RGB, size, size)."""
    values = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    values -= np.array(settings.mean, np.float32)[:, None, None]
    values /= np.array(settings.std, np.float32)[:, None, None]
    return values
