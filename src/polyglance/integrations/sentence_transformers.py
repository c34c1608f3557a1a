"""sentence-transformers: a module of texts and pictures, for inference.

    from polyglance.integrations.sentence_transformers import open_sentence_transformer

    model = open_sentence_transformer()
    model.similarity(model.encode(["ein Hund"]), model.encode([Image.open("dog.jpg")]))
    model.save("folder")

The saved folder is a model folder of Polyglance with ``modules.json``: `polyglance.load` opens it,
and so does ``SentenceTransformer("folder", trust_remote_code=True)`` where Polyglance is installed.
sentence-transformers asks for that flag before it imports a class of any other package.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from polyglance.encoders.onnx_encoder import OnnxEncoder
from polyglance.errors import MissingExtraError, PolyglanceError
from polyglance.integrations.models import Model, open_model

if find_spec("sentence_transformers") is None:
    raise MissingExtraError("a module of sentence-transformers", "sentence-transformers")

try:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modality import infer_modality
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise MissingExtraError("a module of sentence-transformers", "sentence-transformers") from error

_INPUTS = "polyglance_inputs"


class DualEncoderModule(InputModule):
    """A model in Polyglance's own format as the only module of a `SentenceTransformer`.

    It runs on ONNX Runtime and has no parameters to train; `polyglance train` trains.
    """

    def __init__(self, model: Model = None, *, device: str = "cpu") -> None:
        """Open a model.

        Args:
            model: A model's name or folder; None for the default model.
            device: Where it runs.
        """
        super().__init__()
        encoder = open_model(model, device=device)
        if not isinstance(encoder, OnnxEncoder):
            raise PolyglanceError(
                f"{model} is not in Polyglance's own format: open it with the package that made it"
            )
        self.encoder = encoder

    @property
    def modalities(self) -> list[str]:
        """What can be encoded; a model of features encodes texts only."""
        return ["text"] if self.encoder.feature_input is not None else ["text", "image"]

    @property
    def max_seq_length(self) -> int:
        """Maximum number of tokens of a text; longer ones are truncated."""
        return self.encoder.folder.description.max_length

    def get_embedding_dimension(self) -> int:
        """Return the dimension of the vectors."""
        return self.encoder.width

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: object
    ) -> dict[str, Any]:
        """Return texts and pictures as they are, texts after the prompt.

        Args:
            inputs: Texts, and pictures in any form that the package or `Encoder` takes.
            prompt: Put before each text.
            **kwargs: Of other modules; ignored.

        Returns:
            What `forward` takes.
        """
        items = []
        for item in inputs:
            if isinstance(item, dict) and len(item) == 1:  # {"image": picture}
                (item,) = item.values()
            is_text = _is_text(item)
            items.append((is_text, (prompt or "") + item if is_text else item))
        return {_INPUTS: items}

    def forward(self, features: dict[str, Any], **kwargs: object) -> dict[str, Any]:
        """Add ``sentence_embedding``, unit vectors (inputs, width)."""
        items = features[_INPUTS]
        vectors = np.empty((len(items), self.encoder.width), np.float32)
        for kind, encode in (
            (True, self.encoder.encode_texts),
            (False, self.encoder.encode_pictures),
        ):
            chosen = [n for n, (is_text, _) in enumerate(items) if is_text == kind]
            if chosen:
                vectors[chosen] = encode([items[n][1] for n in chosen])
        return {**features, "sentence_embedding": torch.from_numpy(vectors)}

    def save(self, output_path: str, *args: object, **kwargs: object) -> None:
        """Copy the model's files, which are the same in Polyglance's own folders."""
        source, target = self.encoder.folder.path, Path(output_path)
        if target.resolve() == source.resolve():
            return
        for path in sorted(source.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                shutil.copyfile(path, target / path.name)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: object,
    ) -> DualEncoderModule:
        """Open the module of a saved folder, or of a model on the hub; see the package's `load`."""
        folder = cls.load_dir_path(
            model_name_or_path,
            subfolder=subfolder,
            token=token,
            cache_folder=cache_folder,
            revision=revision,
            local_files_only=local_files_only,
        )
        return cls(folder)


def open_sentence_transformer(model: Model = None, *, device: str = "cpu") -> Any:
    """Return a `SentenceTransformer` of a model in Polyglance's own format; see the module."""
    return SentenceTransformer(modules=[DualEncoderModule(model, device=device)], device=device)


def _is_text(item: object) -> bool:
    """Return whether the package takes an input for a text; a path of a picture is none."""
    return isinstance(item, str) and infer_modality(item, ["text", "image"]) == "text"
