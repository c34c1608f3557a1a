"""Trained cross-lingual consistency (CLC-C; SMALR, section 3.4) without torch, for search.

`polyglance.models.consistency` trains the networks; a model folder keeps them beside the model.
A search index finds what is nearest to one vector, so search takes the network's linear part,
the weight of each language where all languages score alike. CLC-C is piecewise linear without
biases: that is the network itself for all pairs on which the same hidden units are active.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError
from polyglance.languages import normalise_language

SHARED = "shared"
"""The name of a network for the queries of all languages, as in the paper."""

Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Network:
    """The weights of one CLC-C: two layers without biases, with ReLU between them."""

    languages: Weights
    """``(hidden, languages)``."""
    output: Weights
    """``(hidden,)``."""

    def combine(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Combine complete scores ``(languages, ...)``, which are cosines, into ``(...)``."""
        hidden = np.tensordot(self.languages, (1 + scores) / 2, axes=1)
        combined: NDArray[Any] = np.tensordot(self.output, np.maximum(0, hidden), axes=1)
        return combined

    def language_weights(self) -> Weights:
        """Return the weight of each language where all score alike, ``(languages,)``; sum 1."""
        active = self.languages.sum(1) > 0
        weights: Weights = (self.output * active) @ self.languages
        total = weights.sum()
        if total <= 0:  # worse than no ranking: nothing can be said for it
            return np.full_like(weights, 1 / len(weights))
        shares: Weights = weights / total
        return shares


@dataclass(frozen=True, eq=False)
class ConsistencyNetworks:
    """The networks of a model: one for the queries of all languages, or one for each language's."""

    languages: tuple[str, ...]
    """In the order of the networks' inputs."""
    networks: Mapping[str, Network]
    """By the language of the query, or `SHARED`."""

    def find(self, language: str | None) -> Network | None:
        """Return the network for queries in a language, or None."""
        code = None if language is None else normalise_language(language)
        return self.networks.get(code or SHARED, self.networks.get(SHARED))

    def combiner(
        self, codes: Sequence[str], *, linear: bool = False
    ) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
        """Return a function that combines scores, as `consistency_scores` takes it.

        Args:
            codes: Languages of the scores, that of the query first.
            linear: Use the network's linear part.

        Returns:
            From ``(len(codes), pictures, queries)``, NaN where missing, to ``(pictures,
            queries)``. The score of a language that is missing is the mean of the others. None
            if there is no network for these queries.
        """
        network = self.find(codes[0]) if codes else None
        given = [normalise_language(code) for code in codes]
        if network is None or not set(given) <= set(self.languages):
            return None
        weights = network.language_weights()

        def combine(scores: NDArray[Any]) -> NDArray[Any]:
            missing = np.isnan(scores).all(0)
            with np.errstate(invalid="ignore"):
                mean = np.nansum(scores, 0) / np.maximum(1, (~np.isnan(scores)).sum(0))
            scores = np.where(np.isnan(scores), mean, scores)
            complete = np.stack(
                [scores[given.index(c)] if c in given else mean for c in self.languages]
            )
            combined: NDArray[Any] = (
                np.tensordot(weights, complete, axes=1) if linear else network.combine(complete)
            )
            return np.where(missing, np.nan, combined)

        return combine

    def to_bytes(self) -> bytes:
        """Return the content of ``consistency.npz``."""
        arrays = {"languages": np.array(self.languages)}
        for name, network in self.networks.items():
            arrays |= {f"{name}.languages": network.languages, f"{name}.output": network.output}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, source: str = "consistency.npz") -> ConsistencyNetworks:
        """Read the content of ``consistency.npz``."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                names = [key.removesuffix(".output") for key in arrays if key.endswith(".output")]
                networks = {
                    name: Network(arrays[f"{name}.languages"], arrays[f"{name}.output"])
                    for name in names
                }
                return cls(tuple(arrays["languages"].tolist()), networks)
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{source} cannot be read ({error}): export the model again") from error
