"""Which kind of model a folder holds, told by the files in it.

| format | told by |
|---|---|
| polyglance | ``model.json``, or any of the files that it describes |
| sentence-transformers | ``modules.json`` |
| transformers | ``config.json`` with a ``model_type``, and ``model*.safetensors`` |
| open_clip | ``open_clip_config.json`` |

Repositories of open_clip models often hold the same model for transformers as well, which
is then taken: it needs one package less.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from polyglance.encoders.folder import DESCRIPTION, FILES
from polyglance.encoders.protocol import Encoder
from polyglance.errors import DataError, MissingExtra

Format = Literal["polyglance", "sentence-transformers", "transformers", "open_clip"]


def format_of(folder: Path) -> Format:
    """What made the model of a folder."""
    if any((folder / name).is_file() for name in (DESCRIPTION, *FILES)):
        return "polyglance"
    if (folder / "modules.json").is_file():
        return "sentence-transformers"
    open_clip = (folder / "open_clip_config.json").is_file()
    its_own = not open_clip or any(folder.glob("model*.safetensors"))
    if its_own and _is_of_transformers(folder / "config.json"):
        return "transformers"
    if open_clip:
        return "open_clip"
    raise DataError(
        f"{folder} holds no model that is known: expected model.json (Polyglance), modules.json"
        " (sentence-transformers), config.json (transformers) or open_clip_config.json (open_clip)"
    )


def open_with_torch(
    folder: Path, kind: Format, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """The model of another package than ours."""
    _need(f"a model of {kind}", "train", "torch", "transformers", "safetensors")
    if kind == "transformers":
        from polyglance.encoders.transformers_encoder import TransformersEncoder

        return TransformersEncoder(folder, threads, device)
    if kind == "open_clip":
        _need("a model of open_clip", "open-clip", "open_clip")
        from polyglance.encoders.open_clip_encoder import OpenClipEncoder

        return OpenClipEncoder(folder, threads, device)
    _need("a model of sentence-transformers", "sentence-transformers", "sentence_transformers")
    from polyglance.encoders import load
    from polyglance.encoders.sentence_transformers_encoder import (
        PICTURES,
        SentenceTransformersEncoder,
    )

    beside = folder / PICTURES
    eyes = load(beside, threads=threads, device=device) if beside.is_dir() else None
    return SentenceTransformersEncoder(folder, threads, device, eyes)


def _is_of_transformers(config: Path) -> bool:
    try:
        found = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "model_type" in found


def _need(what: str, extra: str, *packages: str) -> None:
    if any(find_spec(package) is None for package in packages):
        raise MissingExtra(what, extra)
