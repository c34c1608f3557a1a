"""What the lower layers of a model's text encoder make of a text, by a part of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.sessions import open_session, run_session
from polyglance.encoders.subgraph import cut_graph, output_of_weight

Rows = NDArray[np.float32]


class TextStates:
    """States of sub-words after some layers of ``text.onnx``, which is cut there."""

    def __init__(self, content: bytes, path: Path, layers: int, threads: int | None) -> None:
        """Cut and open the graph.

        Args:
            content: Of ``text.onnx``; a ValueError says that it has fewer layers.
            path: Its name in errors.
            layers: How many layers, 1 or more.
            threads: Number of CPU threads; None for all cores.
        """
        output = output_of_weight(content, f"encoder.layers.{layers - 1}.output_norm.weight")
        self._path = path
        self._session = open_session(cut_graph(content, output), path, threads=threads)

    def __call__(self, ids: Sequence[int], masks: NDArray[np.float32]) -> Rows:
        """Return the states of a text with some of its sub-words hidden.

        Args:
            ids: Its sub-words.
            masks: (variants, ids), 0 for those that a variant hides; their states mean nothing.

        Returns:
            (variants, ids, width).
        """
        variants = np.repeat(np.asarray(ids, np.int64)[None], len(masks), axis=0)
        shown = masks.astype(np.int64)
        found: Rows
        [found] = run_session(self._session, self._path, input_ids=variants, attention_mask=shown)
        return found
