"""Trained models that search: sentences and pictures to vectors; our own without torch.

encoder = polyglance.load()                        # the model that comes with Polyglance
encoder = polyglance.load("models/mine")           # a folder made by `polyglance export`
encoder = polyglance.load("clip-vit-base-patch32") # or by transformers, open_clip ...
encoder.encode_texts(["a dog", "ein Hund"]) @ encoder.encode_pictures(["dog.jpg"]).T
"""

from pathlib import Path

from polyglance.encoders.folder import ModelFolder, find
from polyglance.encoders.formats import format_of, open_with_torch
from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.encoders.protocol import Encoder, Picture
from polyglance.errors import PolyglanceError

__all__ = ["Encoder", "Picture", "load"]


def load(
    name_or_folder: str | Path | None = None, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """Open a model by name or folder; without one, that which comes with Polyglance.

    The folder may be one that `polyglance export`, transformers, open_clip or
    sentence-transformers wrote (`polyglance.encoders.formats`). ``threads`` bounds the
    cores that are computed on; None for all. ``device`` is torch's, where torch computes.
    """
    folder = find(name_or_folder)
    kind = format_of(folder)
    if kind != "polyglance":
        return open_with_torch(folder, kind, threads=threads, device=device)
    if device != "cpu":
        raise PolyglanceError(
            f"{folder.name} is a model of Polyglance's own, which computes on cpu, not on {device}"
        )
    return OnnxEncoder(ModelFolder.open(name_or_folder), threads)
