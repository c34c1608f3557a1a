"""From the folder of a training run to the folder of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyglance.config import load
from polyglance.encoders.folder import Description, PictureSettings
from polyglance.errors import DataError, PolyglanceError, reason
from polyglance.export.words import export_words, open_eyes
from polyglance.export.writing import export_model
from polyglance.models.mmp import MMPConfig
from polyglance.models.word_folder import SeenBy, load_words
from polyglance.text import open_tokenizer
from polyglance.yaml12 import parse

LONGEST = 64
"""Sub-words or words of a query: a long sentence or two."""
COMPACT, WORDS = "compact", "words"
"""Where a run leaves a model of sub-words that was compressed, and a model of words."""
_FIGURES = ("test_time_parameters", "validation", "test")
"""What a folder of words tells of its run's report."""


def export_run(
    run: Path,
    folder: Path,
    *,
    name: str,
    version: str = "1",
    longest: int = LONGEST,
) -> Description:
    """Export the model of a run, with what the run measured on it.

    That is the compressed model of one that reads sub-words (``RUN/compact``), or one
    that reads words (``RUN/words``). ``longest`` is the longest text in sub-words or
    words; captions that were trained on may be shorter. A run of UC2 or M3P is exported by
    `polyglance.recipes.pairs.folder`.
    """
    if not run.is_dir():
        raise DataError(
            f"{run} is not there: give the folder of a run, which 'polyglance train' wrote as --out"
        )
    _refuse_answering(run)
    if (run / WORDS).is_dir():
        model = load_words(run / WORDS)
        eyes = open_eyes(model.seen_by)
        figures = _measured(run, model.seen_by)
        return export_words(
            model, eyes, folder, longest=longest, name=name, version=version, figures=figures
        )
    return _export_compact(run, folder, name=name, version=version, longest=longest)


def _refuse_answering(run: Path) -> None:
    """Say of a model that answers questions how it is asked: it lies ready in its run."""
    answers = _kind(run / "config.json") == "vqa"
    if answers or "vqa" in (_kind(run / "model" / "config.json"), _kind(run / "recipe.yaml")):
        raise DataError(
            f"{run} answers questions and needs no export: ask it by 'polyglance ask PICTURE"
            f" QUESTION --model {run if answers else run / 'model'}'"
        )


def _kind(file: Path) -> str | None:
    """The kind that a file says its folder is of, if there is such a file."""
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text) if file.suffix == ".json" else parse(text, str(file))
    except (OSError, ValueError, PolyglanceError):
        return None
    return str(found.get("kind")) if isinstance(found, dict) else None


def _measured(run: Path, seen_by: SeenBy) -> dict[str, Any]:
    """What a run measured on its model, as far as it has come, and how.

    The exported model sees one view of a picture and rounds its numbers: its own
    figures are others.
    """
    try:
        report = json.loads((run / "report.json").read_bytes())
        views = f"{seen_by.views} view{'s' * (seen_by.views != 'one')} a picture"
        how = {"measured": f"in training, {views}, float32"}
        return how | {name: report[name] for name in _FIGURES if name in report}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{run / 'report.json'} cannot be read ({reason(error)}): run the recipe again"
        ) from error


def _export_compact(
    run: Path, folder: Path, *, name: str, version: str, longest: int
) -> Description:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    compact = run / COMPACT
    try:
        settings = json.loads((compact / "config.json").read_bytes())
        state = load_file(compact / "compact.safetensors")
        config = load(MMPConfig, settings["model"])
        pictures = load(PictureSettings, settings["pictures"])
        tokenizer, languages = settings["tokenizer"], settings["languages"]
        figures = json.loads((run / "report.json").read_bytes())["compressed"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{run} holds no model that can be exported ({reason(error)}): give a run by a recipe"
            " with a section `compression` such as polyglance-small, of kind words (SMALR), or of"
            " kind uc2 or m3p"
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
