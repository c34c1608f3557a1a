"""What an evaluation found, and the file that keeps it."""

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
from polyglance.version import __version__


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Retrieval of one model on one split, by language."""

    model: str
    split: str
    """Which pictures these are: published splits of one name differ by a point or two."""
    languages: Mapping[str, RetrievalResult]
    human: tuple[str, ...] = ()
    """The languages whose captions people wrote; the human average is over these."""
    similarity: Literal["cosine", "inner product", "pairs read", "candidates read"] = "cosine"
    tie_rule: str = TIE_RULE
    date: str = ""
    version: str = ""

    @property
    def mean_recalls(self) -> dict[str, float]:
        """The mR of each language."""
        return {language: result.mean_recall for language, result in self.languages.items()}

    @property
    def average(self) -> float:
        """The mean of mR over all languages."""
        return mean_over_languages(self.mean_recalls)

    @property
    def human_average(self) -> float | None:
        """HA, where it is known which captions people wrote."""
        return human_average(self.mean_recalls, self.human) if self.human else None


def stamp() -> dict[str, str]:
    """The moment and the version of this package, for an `Evaluation` made now."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return {"date": moment, "version": __version__}


def write_results(path: str | Path, evaluation: Evaluation) -> None:
    """Write an evaluation as JSON, with its averages in a summary for people to read."""
    summary = {
        "mean_recall": evaluation.mean_recalls,
        "average": evaluation.average,
        "human_average": evaluation.human_average,
    }
    with atomic_write(path) as out:
        json.dump(as_plain(evaluation) | {"summary": summary}, out, ensure_ascii=False, indent=2)
        out.write("\n")


def read_results(path: str | Path) -> Evaluation:
    """Read what `write_results` wrote; averages are computed anew, not believed."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected a results file in JSON") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a results file, an object with model and split")
    found.pop("summary", None)
    try:
        evaluation = load(Evaluation, found)
    except PolyglanceError as error:
        raise DataError(f"{path}: {error}") from error
    recalls_at = {
        tuple(direction.recalls)
        for result in evaluation.languages.values()
        for direction in (result.image_to_text, result.text_to_image)
    }
    if len(recalls_at) != 1 or () in recalls_at:
        raise DataError(f"{path}: expected languages that all have the same recalls")
    if not set(evaluation.human) <= set(evaluation.languages):
        raise DataError(f"{path}: its human average is over languages that it does not hold")
    return evaluation
