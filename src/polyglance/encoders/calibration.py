"""Probabilities of a match from cosines, for search.

A cosine alone says little: short queries, other languages and larger libraries have other ones.
The probability that a picture matches a query is a logistic function of

- the cosine,
- the best and the tenth best cosine of the query in the library: where nothing is alike, the
  second best is no match either,
- mean and standard deviation of the query's cosines with a fixed background of pictures, which
  comes with the model: nonsense resembles everything a little and nothing much,
- the same of the best picture with a background of captions: some pictures resemble every query,
- the logarithm of the number of pictures in the library: the best of many is better by chance,
- how improbable the query's spelling is, in nats per byte above `SURPRISAL_FLOOR`,

and of squares and products of all these but the cosine, with which the probability rises evenly.

`polyglance.evaluation.calibration` fits it, for all queries and for those of each language;
``polyglance calibrate`` writes it into the model's folder.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

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
            "cosine x library size", "surprisal", "best cosine", "tenth cosine",
            "best picture's mean", "best picture's deviation")  # fmt: skip
"""What the first coefficients belong to. Those of the products follow, and an intercept."""
_MULTIPLIED = tuple(number for number, name in enumerate(FEATURES) if not name.startswith("cosine"))
"""The features whose squares and products are features, too."""
_FIRST, _SECOND = np.triu_indices(len(_MULTIPLIED))
NUM_COEFFICIENTS = len(FEATURES) + len(_FIRST) + 1
NUM_TOP_HITS = 10
_EARLIER_FEATURES = (6, 7)
"""Features of calibrations that were written before the others of `FEATURES` were added."""
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


@dataclass(frozen=True, slots=True)
class TopHits:
    """What is known of a query's best hits in a library."""

    best: float
    """The best cosine."""
    tenth: float
    """The tenth best, or that of the last of fewer."""
    mean: float
    """Of the best picture's cosines with the background of captions."""
    deviation: float


@dataclass(frozen=True, eq=False)
class Background:
    """What the cosines of a vector with those of many pictures or captions are like."""

    mean: Vectors
    """Of their unit vectors, ``[width]``."""
    factor: Vectors
    """``factor.T @ factor`` is their covariance, or near it, ``[rank, width]``."""

    @classmethod
    def of(cls, vectors: Vectors, rank: int) -> Self:
        """Sum up unit vectors ``[n, width]`` by so many principal directions."""
        mean = vectors.mean(0)
        _, lengths, directions = np.linalg.svd(vectors - mean, full_matrices=False)
        factor = lengths[:rank, None] / np.sqrt(len(vectors)) * directions[:rank]
        return cls(mean, factor.astype(np.float32))

    def compare(self, vector: Vectors) -> tuple[float, float]:
        """Return mean and standard deviation of a vector's cosines with them."""
        return float(self.mean @ vector), float(np.linalg.norm(self.factor @ vector))

    def to_arrays(self, name: str) -> dict[str, NDArray[np.generic]]:
        """Return what is stored: directions are rounded to 8 bits."""
        scale = np.maximum(np.abs(self.factor).max(1, keepdims=True) / 127, 1e-12)
        return {
            f"{name}.mean": self.mean.astype(np.float32),
            f"{name}.directions": np.round(self.factor / scale).astype(np.int8),
            f"{name}.scale": scale.astype(np.float32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.generic]], name: str) -> Self:
        """Read what `to_arrays` returned."""
        directions = arrays[f"{name}.directions"].astype(np.float32)
        mean, scale = (arrays[f"{name}.{part}"].astype(np.float32) for part in ("mean", "scale"))
        if mean.ndim != 1 or directions.shape != (len(scale), len(mean)):
            raise ValueError("its background has another shape")
        return cls(mean, directions * scale)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A model's calibration."""

    background: Background
    """Of pictures."""
    coefficients: Mapping[str, Floats]
    """By language, and `POOLED`: ``[NUM_COEFFICIENTS]``."""
    folds: Mapping[str, float]
    """By language, and `POOLED`: hits with a lower probability are shown as less certain."""
    directions: Mapping[str, Vectors] = field(default_factory=dict)
    """Unit vectors of concepts that words describe badly, ``[width]``: see `PEOPLE`."""
    captions: Background | None = None
    """Of captions; None in calibrations of earlier versions."""
    center: Floats = field(default_factory=lambda: np.zeros(len(FEATURES)))
    """The usual values of the features."""
    scale: Floats = field(default_factory=lambda: np.ones(len(FEATURES)))
    """Their standard deviations."""

    def statistics(self, query: Vectors, surprisal: float | None = None) -> QueryStatistics:
        """Compare a query ``[width]`` with the background."""
        mean, deviation = self.background.compare(query)
        excess = 0.0 if surprisal is None else surprisal - SURPRISAL_FLOOR
        return QueryStatistics(mean, deviation, min(max(excess, 0.0), _MAX_SURPRISAL))

    def top_hits(self, cosines: NDArray[np.floating], picture: Vectors | None = None) -> TopHits:
        """Describe the best hits of a query in a library.

        Args:
            cosines: Of the best hits, best first; `NUM_TOP_HITS` of them count.
            picture: The vector of the best one ``[width]``; None if it is unknown.
        """
        values = [float(cosine) for cosine in cosines[:NUM_TOP_HITS]] or [-1.0]
        if picture is None or self.captions is None:
            usual = self.center[-2:].tolist()
            return TopHits(values[0], values[-1], *usual)
        return TopHits(values[0], values[-1], *self.captions.compare(picture))

    def features(
        self, cosines: NDArray[np.floating], query: QueryStatistics, size: int, top: TopHits
    ) -> Floats:
        """Return the features of pictures and one query.

        Args:
            cosines: Of the query with the pictures, ``[n]``.
            query: The query's statistics.
            size: The number of pictures in the library.
            top: Its best hits for the query.

        Returns:
            `FEATURES`, the products, and a 1 for the intercept, ``[n, NUM_COEFFICIENTS]``.
        """
        table = np.empty((len(cosines), NUM_COEFFICIENTS))
        count = len(FEATURES)
        table[:, :count] = plain_features(cosines, query, size, top)
        multiplied = ((table[:, :count] - self.center) / self.scale)[:, _MULTIPLIED]
        table[:, count:-1] = multiplied[:, _FIRST] * multiplied[:, _SECOND]
        table[:, -1] = 1.0
        return table

    def probabilities(
        self,
        cosines: NDArray[np.floating],
        query: QueryStatistics,
        size: int,
        language: str | None = None,
        top: TopHits | None = None,
    ) -> Floats:
        """Return the probability that pictures match a query.

        Args:
            cosines: Of the query with the pictures, ``[n]``.
            query: The query's statistics.
            size: The number of pictures in the library.
            language: The query's language, if it is known.
            top: The query's best hits in the library; default: the best of ``cosines``.

        Returns:
            Probabilities, ``[n]``, rising with the cosine.
        """
        if top is None:
            top = self.top_hits(np.sort(np.asarray(cosines))[::-1])
        logits = self.features(cosines, query, size, top) @ self.find(language)
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
        """Return the content of ``calibration.npz``."""
        arrays = self.background.to_arrays("pictures")
        if self.captions is not None:
            arrays |= self.captions.to_arrays("captions")
        arrays |= {"center": self.center, "scale": self.scale}
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
            coefficients = {code: _upgraded(value) for code, value in coefficients.items()}
            if any(len(value) != NUM_COEFFICIENTS + 1 for value in coefficients.values()):
                raise ValueError("it has other features")
            if POOLED not in coefficients:
                raise ValueError("a part is missing")
            return cls(
                _pictures(arrays),
                {code: value[:-1] for code, value in coefficients.items()},
                {code: float(value[-1]) for code, value in coefficients.items()},
                {name: _unit(vector) for name, vector in directions.items()},
                **_curvature(arrays),
            )
        except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{source} is not a calibration ({error}): run `polyglance calibrate` again"
            ) from error


def plain_features(
    cosines: NDArray[np.floating], query: QueryStatistics, size: int, top: TopHits
) -> Floats:
    """Return `FEATURES` of pictures and one query, ``[n, len(FEATURES)]``.

    Args:
        cosines: Of the query with the pictures, ``[n]``.
        query: The query's statistics.
        size: The number of pictures in the library.
        top: Its best hits for the query.
    """
    values = np.asarray(cosines, np.float64)
    magnitude = np.log10(min(max(size, _SIZES[0]), _SIZES[1]))
    table = np.empty((len(values), len(FEATURES)))
    table[:, 0], table[:, 1], table[:, 2] = values, query.mean, query.deviation
    table[:, 3], table[:, 4] = magnitude, values * magnitude
    table[:, 5] = query.surprisal
    table[:, 6:] = top.best, top.tenth, top.mean, top.deviation
    return table


def _upgraded(value: Floats) -> Floats:
    """Add coefficients of 0 for features that a calibration did not know when it was written."""
    if len(value) - 2 not in _EARLIER_FEATURES:
        return value
    added = NUM_COEFFICIENTS + 1 - len(value)
    return np.concatenate([value[:-2], np.zeros(added), value[-2:]])


def _curvature(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Any]:
    """Return what calibrations of earlier versions do not have."""
    if "captions.mean" not in arrays:
        return {}
    shape = (len(FEATURES),)
    center, scale = (arrays[name].astype(np.float64) for name in ("center", "scale"))
    if center.shape != shape or scale.shape != shape or not (scale > 0).all():
        raise ValueError("it has other features")
    captions = Background.from_arrays(arrays, "captions")
    return {"captions": captions, "center": center, "scale": scale}


def _pictures(arrays: Mapping[str, NDArray[np.generic]]) -> Background:
    """Return the background of pictures, which earlier versions stored one by one."""
    if "background" not in arrays:
        return Background.from_arrays(arrays, "pictures")
    vectors = _unit(arrays["background"].astype(np.float32))
    if vectors.ndim != 2:
        raise ValueError("its background has another shape")
    return Background.of(vectors, len(vectors))


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
