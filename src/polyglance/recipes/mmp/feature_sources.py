"""Put features extracted beforehand (`polyglance.vision.feature_sources`) on the device."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import torch

from polyglance.batches.inputs import FeatureTable
from polyglance.errors import PolyglanceError
from polyglance.records import Record
from polyglance.vision.feature_sources import (
    MAKE_FEATURES,
    FeatureSource,
    Float16Array,
    StoreFeatures,
    open_features,
)

__all__ = ["FeatureSource", "Float16Array", "StoreFeatures", "feature_table", "open_features"]


def feature_table(
    records: Sequence[Record],
    source: FeatureSource,
    *,
    max_tokens: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[list[Record], FeatureTable]:
    """Return the records that have features, and these features on the device.

    Prints on standard error how many records have none.

    Args:
        records: Candidates.
        source: Their features.
        max_tokens: Maximum number of vectors of a record; None for all.
        device: Where the features will lie.
    """
    present: list[Record] = []
    parts: list[Float16Array] = []
    for record in records:
        name = source.find(record)
        rows = None if name is None else source.rows(name)[:max_tokens]
        if rows is not None and len(rows):
            present.append(record)
            parts.append(rows)
    missing = len(records) - len(present)
    if not present:
        example = f", such as {records[0].key!r}" if records else ""
        raise PolyglanceError(
            f"none of {len(records)} records has features{example}:"
            f" choose the manifest that the features were made from; {MAKE_FEATURES}"
        )
    if missing:
        print(f"{missing:,} of {len(records):,} records have no features", file=sys.stderr)
    features = torch.from_numpy(np.concatenate(parts))
    return present, FeatureTable(features, np.array([len(part) for part in parts]), device)
