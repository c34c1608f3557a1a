"""The network of a reader in two parts: what it makes of a picture, and of a text beside it.

``reader.onnx`` reads the cells of a picture before they join a text's words. Cut there, a picture
is read once for any number of texts, and an explanation reads each hidden window once for all
words.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.encoders.reader_files import damaged
from polyglance.encoders.sessions import open_session, run_session
from polyglance.encoders.subgraph import cut_graph, output_of_weight, rest_of_graph

_LOCATION = "cross_encoder.location"
"""The weight of the last node that depends on the picture alone."""

Floats = NDArray[np.float32]


class ReaderNetwork:
    """``reader.onnx``, cut where the rows of a picture join those of a text."""

    def __init__(self, content: bytes, path: Path, threads: int | None) -> None:
        """Cut and open the graph.

        Args:
            content: Of ``reader.onnx``.
            path: Its name in errors.
            threads: Number of CPU threads; None for all cores.
        """
        self._path = path
        try:
            self._rows = output_of_weight(content, _LOCATION)
            parts = cut_graph(content, self._rows), rest_of_graph(content, self._rows)
        except ValueError as error:
            raise damaged(path, error) from error
        self._pictures, self._pairs = (open_session(part, path, threads=threads) for part in parts)
        taken = {given.name for given in self._pictures.get_inputs()}
        self._has_layers = "cell_mask" in taken
        """Whether layers of its own read the cells; else no row depends on what is hidden."""

    def picture_rows(self, cells: Floats, mask: Floats | None = None) -> Floats:
        """Return the rows of pictures, (pictures, 1 + cells, width).

        Args:
            cells: (pictures, 1 + cells, feature width), or those of one picture, (1, ...), for all
                masks.
            mask: (pictures, 1 + cells), 0 for what is hidden, whose rows mean nothing.
        """
        shown = np.ones(cells.shape[:2], np.float32) if mask is None else mask
        inputs = {"cells": _repeat(cells, len(shown))}
        if self._has_layers:
            inputs["cell_mask"] = shown
        rows: Floats
        [rows] = run_session(self._pictures, self._path, **inputs)
        return rows

    def read(
        self,
        words: Floats,
        rows: Floats,
        *,
        text_mask: Floats | None = None,
        cell_mask: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the match (pairs,) and the answers' logits (pairs, answers) of pairs.

        Args:
            words: Of the texts, (pairs, steps, width), or (1, ...) for all.
            rows: Of the pictures, (pairs, 1 + cells, width), or (1, ...) for all.
            text_mask: (pairs, steps), 0 for what is hidden; None for none.
            cell_mask: (pairs, 1 + cells), likewise.
        """
        count = max(len(words), len(rows))
        shown = [
            np.ones((count, some.shape[1]), np.float32) if mask is None else mask
            for some, mask in ((words, text_mask), (rows, cell_mask))
        ]
        inputs = {"word_rows": _repeat(words, count), self._rows: _repeat(rows, count)}
        match, answers = run_session(
            self._pairs, self._path, text_mask=shown[0], cell_mask=shown[1], **inputs
        )
        return match, answers


def _repeat(values: Floats, count: int) -> Floats:
    return np.ascontiguousarray(np.broadcast_to(values, (count, *values.shape[1:])))
