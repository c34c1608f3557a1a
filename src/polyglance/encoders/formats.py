"""Detect the format of a model folder by the files in it.

| format | files |
|---|---|
| polyglance | ``model.json``, or any file that it describes |
| sentence-transformers | ``modules.json`` |
| transformers | ``config.json`` with a ``model_type``, and ``model*.safetensors`` |
| open_clip | ``open_clip_config.json`` |

Repositories of open_clip models often hold the same model for transformers as well, which is
preferred: it needs one package less.
"""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from polyglance.encoders.model_folder import DESCRIPTION_FILE, FILES
from polyglance.encoders.protocol import Encoder
from polyglance.errors import DataError, MissingExtraError, PolyglanceError
from polyglance.utils.bounded import parse_json

Format = Literal["polyglance", "sentence-transformers", "transformers", "open_clip"]
SAFE_SENTENCE_TRANSFORMERS = (6, 2)
"""The first release that was tested to refuse code from a model folder."""


def detect_format(folder: Path) -> Format:
    """Return the format of a model folder."""
    if any((folder / name).is_file() for name in (DESCRIPTION_FILE, *FILES)):
        return "polyglance"
    if (folder / "modules.json").is_file():
        return "sentence-transformers"
    open_clip = (folder / "open_clip_config.json").is_file()
    has_weights = not open_clip or any(folder.glob("model*.safetensors"))
    if has_weights and _is_transformers_config(folder / "config.json"):
        return "transformers"
    if open_clip:
        return "open_clip"
    raise DataError(
        f"{folder} holds no known model: expected model.json (Polyglance), modules.json"
        " (sentence-transformers), config.json (transformers) or open_clip_config.json (open_clip)"
    )


def open_with_torch(
    folder: Path, format_: Format, *, threads: int | None = None, device: str = "cpu"
) -> Encoder:
    """Open a model of another package.

    Args:
        folder: The model's folder.
        format_: Its format, as `detect_format` returns it.
        threads: Number of CPU threads; None for torch's default.
        device: Torch's device.
    """
    _require(f"a model of {format_}", "train", "torch", "transformers", "safetensors")
    if format_ == "transformers":
        from polyglance.encoders.transformers_encoder import TransformersEncoder

        return TransformersEncoder(folder, threads, device)
    if format_ == "open_clip":
        _require("a model of open_clip", "open-clip", "open_clip")
        from polyglance.encoders.open_clip_encoder import OpenClipEncoder

        return OpenClipEncoder(folder, threads, device)
    _require("a model of sentence-transformers", "sentence-transformers", "sentence_transformers")
    _require_safe_sentence_transformers()
    from polyglance.encoders import load
    from polyglance.encoders.sentence_transformers_encoder import (
        PICTURES,
        SentenceTransformersEncoder,
    )

    inner = folder / PICTURES
    image_encoder = load(inner, threads=threads, device=device) if inner.is_dir() else None
    return SentenceTransformersEncoder(folder, threads, device, image_encoder)


def _require_safe_sentence_transformers() -> None:
    """Raise an error for versions that run classes which a model folder names."""
    version = metadata.version("sentence-transformers")
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if release < SAFE_SENTENCE_TRANSFORMERS:
        raise PolyglanceError(
            f"sentence-transformers {version} can run code from a model folder: pip install"
            " --upgrade 'polyglance[sentence-transformers]'"
        )


def _is_transformers_config(config: Path) -> bool:
    try:
        plain = parse_json(config.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(plain, dict) and "model_type" in plain


def _require(what: str, extra: str, *packages: str) -> None:
    if any(find_spec(package) is None for package in packages):
        raise MissingExtraError(what, extra)
