"""Entries of a library's store, for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyglance.search.store import Entry, FileSignature, Item, ModelInfo

MODEL_INFO = ModelInfo("m", "m", "f", 3, "l")
SIGNATURE = FileSignature(10, 20)


def entry(path: str, content: str = "c", *vectors: tuple[float, ...], **known: object) -> Entry:
    item = Item(path, "picture", SIGNATURE, content, "2024-05-06T07:08:09", 4, 3)
    spans = known.pop("spans", ())
    return Entry(
        replace(item, **known),  # type: ignore[arg-type]
        np.array(vectors or [(1, 0, 0)], np.float32),
        spans,  # type: ignore[arg-type]
    )
