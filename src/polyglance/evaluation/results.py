"""Retrieval results of a model, and the JSON file that holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from polyglance.config import as_plain, load
from polyglance.errors import DataError, PolyglanceError
from polyglance.evaluation.retrieval import (
    TIE_RULE,
    RetrievalResult,
    human_average,
    mean_over_languages,
)
from polyglance.records import atomic_write
from polyglance.utils.bounded import parse_json
from polyglance.version import __version__


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Retrieval of one model on one split, by language."""

    model: str
    split: str
    """Name of the split; published splits of the same name differ by a point or two."""
    languages: Mapping[str, RetrievalResult]
    human: tuple[str, ...] = ()
    """Languages with captions written by people, over which the human average is taken."""
    similarity: Literal["cosine", "inner product", "all pairs", "re-ranked candidates"] = "cosine"
    tie_rule: str = TIE_RULE
    date: str = ""
    version: str = ""

    @property
    def mean_recalls(self) -> dict[str, float]:
        """Return mR of each language."""
        return {language: result.mean_recall for language, result in self.languages.items()}

    @property
    def average(self) -> float:
        """Return the mean of mR over all languages."""
        return mean_over_languages(self.mean_recalls)

    @property
    def human_average(self) -> float | None:
        """Return HA, or None where it is unknown which captions people wrote."""
        return human_average(self.mean_recalls, self.human) if self.human else None


def provenance() -> dict[str, str]:
    """Return the current date and this package's version, for a new `Evaluation`."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": moment, "version": __version__}


def write_results(path: str | Path, evaluation: Evaluation) -> None:
    """Write an evaluation as JSON, with its averages in a summary for readers."""
    summary = {
        "mean_recall": evaluation.mean_recalls,
        "average": evaluation.average,
        "human_average": evaluation.human_average,
    }
    with atomic_write(path) as out:
        json.dump(as_plain(evaluation) | {"summary": summary}, out, ensure_ascii=False, indent=2)
        out.write("\n")


def read_results(path: str | Path) -> Evaluation:
    """Read a file of `write_results`; its summary is ignored and computed anew."""
    try:
        content = parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected a results file in JSON") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a results file, an object with model and split")
    content.pop("summary", None)
    try:
        evaluation = load(Evaluation, content)
    except PolyglanceError as error:
        raise DataError(f"{path}: {error}") from error
    recalls_at = {
        tuple(direction.recalls)
        for result in evaluation.languages.values()
        for direction in (result.image_to_text, result.text_to_image)
    }
    if len(recalls_at) != 1 or () in recalls_at:
        raise DataError(f"{path}: expected the same recalls in all languages")
    if not set(evaluation.human) <= set(evaluation.languages):
        raise DataError(f"{path}: the human average needs languages that the file does not have")
    return evaluation
