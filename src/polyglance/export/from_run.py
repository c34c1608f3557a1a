"""Export the model of a training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyglance.config import load
from polyglance.encoders.model_folder import ImagePreprocessing, ModelDescription
from polyglance.errors import DataError, PolyglanceError, error_reason
from polyglance.export.mmp import export_mmp
from polyglance.export.smalr import export_smalr, open_image_backbone
from polyglance.models.mmp import MMPConfig
from polyglance.models.mmp_folder import SYSTEM, load_mmp
from polyglance.models.smalr_folder import FeatureInfo, load_smalr
from polyglance.text import open_tokenizer
from polyglance.utils.bounded import parse_json
from polyglance.utils.folder_format import check_format
from polyglance.utils.yaml12 import parse

MAX_LENGTH = 64
"""Maximum number of tokens of a text: a long sentence or two."""
COMPACT_FORMAT = 1
"""Newest version of a compressed model's ``config.json``."""
COMPACT, WORDS = "compact", "words"
"""Folders of a run with a compressed model of sub-words, and with a model of words."""
TRAINED = "model"
"""Folder of a run with a model on features, or one that is not compressed."""
_FIGURES = ("test_time_parameters", "validation", "test")
"""Entries of a SMALR run's report that the exported folder records."""


def export_run(
    run: Path,
    folder: Path,
    *,
    name: str | None = None,
    version: str = "1",
    max_length: int | None = None,
) -> ModelDescription:
    """Export the model of a run, with the results of the run's evaluation.

    This is the compressed MMP model in ``RUN/compact``, the MMP model on features, or one that is
    not compressed, in ``RUN/model``, the SMALR model in ``RUN/words``, or in ``RUN/compact`` a
    fine-tuned model, or a reader with the model that it belongs
    to, whose name and version it keeps. A run of UC2 or M3P is exported by
    `polyglance.cross_encoders.model_folder`.

    Args:
        run: The run's folder.
        folder: Where to write the model.
        name: The model's name; None for that of the recipe of fine-tuning, and for ``model``.
        version: The model's version.
            A reader's model keeps its own.
        max_length: Maximum number of tokens of a text; may exceed that of training, but for a
            reader's model and a fine-tuned one, which keep theirs. None for that of training with
            MMP on features, and for 64, or all that there are, with others.
    """
    if not run.is_dir():
        raise DataError(
            f"{run} does not exist: give the folder of a run, the --out of 'polyglance train'"
        )
    _refuse_vqa(run)
    system = compact_system(run)
    if system == "compact_reader":
        from polyglance.export.reader import export_reader

        return export_reader(run, folder)
    if system == "fine_tune":
        from polyglance.export.fine_tuned import export_fine_tuned

        return export_fine_tuned(run, folder, name)
    name = name or "model"
    if _system(run / TRAINED / "config.json") == SYSTEM:
        from polyglance.export.mmp_features import export_mmp_features

        trained = load_mmp(run / TRAINED)
        figures = _report_figures(run, "in training, float32")
        return export_mmp_features(
            trained, folder, name=name, version=version, max_length=max_length, figures=figures
        )
    if (run / WORDS).is_dir():
        model = load_smalr(run / WORDS)
        backbone = open_image_backbone(model.feature_info)
        figures = _figures(run, model.feature_info)
        return export_smalr(
            model,
            backbone,
            folder,
            max_length=MAX_LENGTH if max_length is None else max_length,
            name=name,
            version=version,
            figures=figures,
        )
    return _export_compact(run, folder, name=name, version=version, max_length=max_length)


def compact_system(run: Path) -> str | None:
    """Return the system that ``RUN/compact`` is of, such as ``fine_tune``; None without one."""
    return _system(run / COMPACT / "config.json")


def _refuse_vqa(run: Path) -> None:
    """Raise an error for a VQA run, whose model folder is ready to use."""
    is_model = _system(run / "config.json") == "vqa"
    if is_model or "vqa" in (_system(run / "model" / "config.json"), _system(run / "recipe.yaml")):
        raise DataError(
            f"{run} is a VQA model and needs no export: use 'polyglance ask PICTURE"
            f" QUESTION --model {run if is_model else run / 'model'}'"
        )


def _system(file: Path) -> str | None:
    """Return the system that a config or recipe names, or None."""
    try:
        text = file.read_text(encoding="utf-8")
        config = parse_json(text) if file.suffix == ".json" else parse(text, str(file))
    except (OSError, ValueError, PolyglanceError):
        return None
    if not isinstance(config, dict):
        return None
    return str(config.get("system", config.get("kind")))  # "kind" in runs of version 0.1


def _figures(run: Path, features: FeatureInfo) -> dict[str, Any]:
    """Return the results of a run's report, and how they were measured.

    They differ from those of the exported model, which encodes one view of a picture
    and has rounded weights.
    """
    views = f"{features.views} view{'s' * (features.views != 'one')} a picture"
    return _report_figures(run, f"in training, {views}, float32")


def _report_figures(run: Path, measured: str) -> dict[str, Any]:
    """Return the results of a run's report; ``measured`` says how they were measured."""
    try:
        report = parse_json((run / "report.json").read_bytes())
        how = {"measured": measured}
        return how | {name: report[name] for name in _FIGURES if name in report}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{run / 'report.json'} cannot be read ({error_reason(error)}): run the recipe again"
        ) from error


def _export_compact(
    run: Path, folder: Path, *, name: str, version: str, max_length: int | None
) -> ModelDescription:
    """Export the compressed MMP model of a run."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    compact = run / COMPACT
    try:
        settings = parse_json((compact / "config.json").read_bytes())
        check_format(settings, COMPACT_FORMAT, run)
        state = load_file(compact / "compact.safetensors")
        config = MMPConfig.from_json(settings["model"])
        pictures = load(ImagePreprocessing, settings["pictures"])
        tokenizer, languages = settings["tokenizer"], settings["languages"]
        figures = parse_json((run / "report.json").read_bytes())["compressed"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{run} holds no model that can be exported ({error_reason(error)}): give a finished"
            " run of a photo model, such as polyglance-small, of MMP on features, SMALR, UC2 or M3P"
        ) from error
    if max_length is None:  # a small text encoder may have fewer positions
        max_length = min(MAX_LENGTH, config.encoder.max_tokens)
    return export_mmp(
        state,
        config,
        open_tokenizer(tokenizer),
        folder,
        pictures=pictures,
        max_length=max_length,
        name=name,
        version=version,
        languages=languages,
        figures=figures,
    )
