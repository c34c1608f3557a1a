"""Dual encoders: sentences and pictures to vectors; our own models without torch.

encoder = polyglance.load()                        # the model that comes with Polyglance
encoder = polyglance.load("models/mine")           # a folder made by `polyglance export`
encoder = polyglance.load("clip-vit-base-patch32") # or by transformers, open_clip ...
encoder.encode_texts(["a dog", "ein Hund"]) @ encoder.encode_pictures(["dog.jpg"]).T
"""

from pathlib import Path

from polyglance.encoders.formats import detect_format, open_with_torch
from polyglance.encoders.model_folder import ModelFolder, find_model
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.protocol import Encoder, Picture

__all__ = ["Encoder", "Picture", "load"]


def load(
    name_or_folder: str | Path | None = None, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """Load a dual encoder.

    Args:
        name_or_folder: A model's name, or a folder written by `polyglance export`,
            transformers, open_clip or sentence-transformers; None for the model that comes
            with Polyglance.
        threads: Number of CPU threads; None for OMP_NUM_THREADS, or all cores.
        device: ``cpu``, or a device of torch such as ``cuda``. Models in our own format run
            there with ONNX Runtime if it has been built for CUDA, else with torch.

    Returns:
        The encoder; its networks are loaded when first needed.
    """
    folder = find_model(name_or_folder)
    format_ = detect_format(folder)
    if format_ != "polyglance":
        return open_with_torch(folder, format_, threads=threads, device=device)
    return OnnxEncoder(ModelFolder.open(name_or_folder), threads, device)
