"""A feature store of random regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyglance.vision.store import FeatureStore, StoredDtype, StoreInfo, hash_keys
from polyglance.vision.store_writer import BadItem, StoreWriter
from polyglance.vision.tokens import VisualTokens, zero_spans


def write_random_store(
    folder: Path,
    lengths: dict[str, int],
    *,
    dtype: StoredDtype = "int8",
    labels: int = 2,
    width: int = 5,
    shard_size: int = 2,
    bad: tuple[str, ...] = (),
    num_labels: int = 9,
) -> FeatureStore:
    """Write a store of images with so many regions each."""
    generator = np.random.default_rng(0)
    keys = list(lengths)
    info = StoreInfo(
        {"backbone": "test"}, width, dtype, labels, shard_size, len(keys), hash_keys(keys)
    )
    writer = StoreWriter(folder, info, keys)

    def tokens(count: int) -> VisualTokens:
        return VisualTokens(
            features=generator.standard_normal((count, width)).astype(np.float32),
            boxes=np.sort(generator.random((count, 4)), axis=1).astype(np.float32),
            global_feature=generator.standard_normal(width).astype(np.float32),
            label_ids=generator.integers(0, num_labels, (count, labels)).astype(np.uint16),
            label_probs=np.full((count, labels), 0.4, np.float16),
            spans=zero_spans(count),
        )

    for number in writer.pending:
        writer.write(
            number,
            [
                BadItem("broken") if key in bad else tokens(lengths[key])
                for key in writer.keys_of(number)
            ],
        )
    writer.finish()
    return FeatureStore(folder)
