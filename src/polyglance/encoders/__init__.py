"""Trained models that search: sentences and pictures to vectors, without torch.

encoder = polyglance.load()                        # the model that comes with Polyglance
encoder = polyglance.load("models/mine")           # a folder made by `polyglance export`
encoder.encode_texts(["a dog", "ein Hund"]) @ encoder.encode_pictures(["dog.jpg"]).T
"""

from pathlib import Path

from polyglance.encoders.folder import ModelFolder
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.protocol import Encoder, Picture

__all__ = ["Encoder", "Picture", "load"]


def load(name_or_folder: str | Path | None = None, *, threads: int | None = None) -> Encoder:
    """Open a model by name or folder; without one, that which comes with Polyglance.

    ``threads`` bounds the cores that are computed on; None for all.
    """
    return OnnxEncoder(ModelFolder.open(name_or_folder), threads)
