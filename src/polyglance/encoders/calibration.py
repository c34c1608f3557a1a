"""Probabilities of a match from cosines, for search.

A cosine alone says little: short queries, other languages and larger libraries have other ones.
The probability that a picture matches a query is a logistic function of

- the cosine,
- the best cosine of the query in the library: where nothing is alike, the second best is no match
  either,
- mean and standard deviation of the query's cosines with a fixed background of pictures, which
  comes with the model: nonsense resembles everything a little and nothing much,
- the logarithm of the number of pictures in the library: the best of many is better by chance,
- how improbable the query's spelling is, in nats per byte above `SURPRISAL_FLOOR`.

`polyglance.evaluation.calibration` fits it, for all queries and for those of each language;
``polyglance calibrate`` writes it into the model's folder.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.protocol import Vectors
from polyglance.errors import DataError
from polyglance.languages import normalise_language

Floats = NDArray[np.float64]

POOLED = "all"
"""The name of the coefficients for queries of all languages."""
PEOPLE = "people"
"""The name of the direction from pictures without people to pictures with some."""
SURPRISAL_FLOOR = 2.6
"""Nats per byte of a query that looks like any other."""
FEATURES = ("cosine", "background mean", "background deviation", "library size",
            "cosine x library size", "surprisal", "best cosine")  # fmt: skip
"""What the coefficients belong to; an intercept follows."""
_NUM_FIRST_FEATURES = 6
"""Features of calibrations that were written before the last of `FEATURES` was added."""
_SIZES = (10, 10_000)
"""Sizes of libraries between which the probability depends on the size."""
_MAX_SURPRISAL = 3.0
"""Nats per byte above the floor that count."""


@dataclass(frozen=True, slots=True)
class QueryStatistics:
    """What is known of a query before anything is found."""

    mean: float
    """Of its cosines with the background."""
    deviation: float
    surprisal: float
    """Nats per byte above `SURPRISAL_FLOOR`; 0 if the model does not say."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A model's calibration."""

    background: Vectors
    """Unit vectors of pictures, ``[n, width]``."""
    coefficients: Mapping[str, Floats]
    """By language, and `POOLED`: ``[len(FEATURES) + 1]``."""
    folds: Mapping[str, float]
    """By language, and `POOLED`: hits with a lower probability are shown as less certain."""
    directions: Mapping[str, Vectors] = field(default_factory=dict)
    """Unit vectors of concepts that words describe badly, ``[width]``: see `PEOPLE`."""

    def statistics(self, query: Vectors, surprisal: float | None = None) -> QueryStatistics:
        """Compare a query ``[width]`` with the background."""
        scores = self.background @ query
        excess = 0.0 if surprisal is None else surprisal - SURPRISAL_FLOOR
        return QueryStatistics(
            float(scores.mean()), float(scores.std()), min(max(excess, 0.0), _MAX_SURPRISAL)
        )

    def probabilities(
        self,
        cosines: NDArray[np.floating],
        query: QueryStatistics,
        size: int,
        language: str | None = None,
        best: float | None = None,
    ) -> Floats:
        """Return the probability that pictures match a query.

        Args:
            cosines: Of the query with the pictures, ``[n]``.
            query: The query's statistics.
            size: The number of pictures in the library.
            language: The query's language, if it is known.
            best: The best cosine of the query in the library; default: of ``cosines``.

        Returns:
            Probabilities, ``[n]``, rising with the cosine.
        """
        logits = features(cosines, query, size, best) @ self.find(language)
        bounded: Floats = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        return bounded

    def find(self, language: str | None) -> Floats:
        """Return the coefficients for queries in a language."""
        return self.coefficients[self._known(language)]

    def fold(self, language: str | None) -> float:
        """Return the lowest probability of hits that fit well, for queries in a language."""
        return self.folds[self._known(language)]

    def _known(self, language: str | None) -> str:
        code = POOLED if language is None else normalise_language(language)
        return code if code in self.coefficients else POOLED

    def to_bytes(self) -> bytes:
        """Return the content of ``calibration.npz``; the background is rounded to 8 bits."""
        scale = np.abs(self.background).max(1, keepdims=True) / 127
        arrays: dict[str, NDArray[np.generic]] = {
            "background": np.round(self.background / scale).astype(np.int8),
        }
        # The last number of a language is its fold.
        arrays |= {
            f"language.{code}": np.append(value, self.folds[code])
            for code, value in self.coefficients.items()
        }
        arrays |= {
            f"direction.{name}": vector.astype(np.float16)
            for name, vector in self.directions.items()
        }
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "calibration.npz") -> Calibration:
        """Read the content of ``calibration.npz``; ``source`` is used in errors."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file}
            coefficients = {
                code: array.astype(np.float64) for code, array in _select(arrays, "language.")
            }
            directions = {
                name: array.astype(np.float32) for name, array in _select(arrays, "direction.")
            }
            background = _unit(arrays["background"].astype(np.float32))
            coefficients = {code: _upgraded(value) for code, value in coefficients.items()}
            if any(len(value) != len(FEATURES) + 2 for value in coefficients.values()):
                raise ValueError("it has other features")
            if POOLED not in coefficients or background.ndim != 2:
                raise ValueError("a part is missing")
            return cls(
                background,
                {code: value[:-1] for code, value in coefficients.items()},
                {code: float(value[-1]) for code, value in coefficients.items()},
                {name: _unit(vector) for name, vector in directions.items()},
            )
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{source} is not a calibration ({error}): run `polyglance calibrate` again"
            ) from error


def features(
    cosines: NDArray[np.floating], query: QueryStatistics, size: int, best: float | None = None
) -> Floats:
    """Return the features of pictures and one query.

    Args:
        cosines: Of the query with the pictures, ``[n]``.
        query: The query's statistics.
        size: The number of pictures in the library.
        best: The best cosine of the query in the library; default: of ``cosines``.

    Returns:
        The features and a 1 for the intercept, ``[n, len(FEATURES) + 1]``.
    """
    values = np.asarray(cosines, np.float64)
    magnitude = np.log10(min(max(size, _SIZES[0]), _SIZES[1]))
    table = np.empty((len(values), len(FEATURES) + 1))
    table[:, 0], table[:, 1], table[:, 2] = values, query.mean, query.deviation
    table[:, 3], table[:, 4] = magnitude, values * magnitude
    table[:, 5] = query.surprisal
    table[:, 6] = best if best is not None else values.max(initial=-1.0)
    table[:, 7] = 1.0
    return table


def _upgraded(value: Floats) -> Floats:
    """Add coefficients of 0 for features that a calibration did not know when it was written."""
    if len(value) != _NUM_FIRST_FEATURES + 2:
        return value
    added = len(FEATURES) - _NUM_FIRST_FEATURES
    return np.concatenate([value[:-2], np.zeros(added), value[-2:]])


def _select(
    arrays: Mapping[str, NDArray[np.generic]], prefix: str
) -> list[tuple[str, NDArray[np.generic]]]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return [
        (name.removeprefix(prefix), array)
        for name, array in arrays.items()
        if name.startswith(prefix)
    ]


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, 1e-12)
    return unit
