"""From the folder of a training run to the folder of a model."""

from __future__ import annotations

import json
from pathlib import Path

from polyglance.config import load
from polyglance.encoders.folder import Description, PictureSettings
from polyglance.errors import DataError, reason
from polyglance.export.writing import export_model
from polyglance.models.mmp import MMPConfig
from polyglance.text import open_tokenizer

LONGEST = 64
"""Sub-words of a query: a long sentence or two."""


def export_run(
    run: Path,
    folder: Path,
    *,
    name: str,
    version: str = "1",
    longest: int = LONGEST,
) -> Description:
    """Export the compressed model of a run (``RUN/compact``), with what the run measured on it.

    ``longest`` is the longest text in sub-words; captions that were trained on may be shorter.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    compact = run / "compact"
    try:
        settings = json.loads((compact / "config.json").read_bytes())
        state = load_file(compact / "compact.safetensors")
        config = load(MMPConfig, settings["model"])
        pictures = load(PictureSettings, settings["pictures"])
        tokenizer, languages = settings["tokenizer"], settings["languages"]
        figures = json.loads((run / "report.json").read_bytes())["compressed"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{run} holds no compressed model ({reason(error)}):"
            " train by a recipe with a section `compression`"
        ) from error
    return export_model(
        state,
        config,
        open_tokenizer(tokenizer),
        folder,
        pictures=pictures,
        longest=longest,
        name=name,
        version=version,
        languages=languages,
        figures=figures,
    )
