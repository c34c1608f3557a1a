"""The word embeddings of an exported model, looked up without its text graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.graph_reader import read_graph

_WORDS = "encoder.words."

Rows = NDArray[np.float32]


class WordTable:
    """Rows of a table of word embeddings, product-quantised or not.

    See `polyglance.nn.compression.ProductQuantisedEmbedding`; the rows are those of the text graph.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """``weights`` are those of ``text.onnx`` by name; a KeyError names one that is missing."""
        own = {n.removeprefix(_WORDS): v for n, v in weights.items() if n.startswith(_WORDS)}
        self._weight = None if "codes" in own else np.array(own["weight"])
        if self._weight is None:
            # Copies: a view would keep the whole file in memory.
            self._codes, self._finer_codes = np.array(own["codes"]), np.array(own["finer_codes"])
            self._codebooks = own["codebooks"].astype(np.float32)
            self._finer_codebooks = own["finer_codebooks"].astype(np.float32)
            self._rotation = own["rotation"].astype(np.float32)
            self._centre = own["centre"].astype(np.float32)

    @classmethod
    def from_graph(cls, content: bytes) -> WordTable:
        """Read the table of a ``text.onnx``; a ValueError says that there is none."""
        try:
            return cls(read_graph(content).weights)
        except KeyError as error:
            raise ValueError(f"the graph has no {_WORDS}{error.args[0]}") from error

    def __call__(self, ids: Sequence[int]) -> Rows:
        """Return the rows of these ids, (ids, width)."""
        places = np.asarray(ids, np.int64)
        if self._weight is not None:
            return self._weight[places].astype(np.float32)
        rows = _look_up(self._codebooks, self._codes[places])
        frequent = places < len(self._finer_codes)
        finer = self._finer_codes[np.where(frequent, places, 0)]
        rows = np.where(frequent[:, None], rows + _look_up(self._finer_codebooks, finer), rows)
        found: Rows = (rows @ self._rotation + self._centre).astype(np.float32)
        return found


def _look_up(codebooks: Rows, codes: NDArray[np.uint8]) -> Rows:
    """Concatenate the codebook entries of each row's codes."""
    rows: Rows = codebooks[np.arange(len(codebooks)), codes].reshape(len(codes), -1)
    return rows
