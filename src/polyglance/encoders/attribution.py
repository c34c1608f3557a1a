"""What explaining a model's opinion of a picture returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["relevance", "attention", "occlusion"]


@dataclass(frozen=True, eq=False)
class Attribution:
    """The words of a sentence and the parts of an image that each uses."""

    language: str | None
    words: Sequence[str]
    heatmaps: NDArray[np.float32]
    """``(words, rows, columns)``: each cell's contribution to each word; 0 for cells that
    contribute nothing or speak against the word."""
    method: Method = "relevance"
    """The method that was used, which may differ from the one asked for."""
    truncated_after: str | None = None
    """The last word that the model reads, of a sentence that is too long for it."""
    language_unknown: bool = False
    """Whether the model has language embeddings but none was used, for lack of the language."""
