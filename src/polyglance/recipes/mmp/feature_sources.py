"""Features extracted beforehand, found by record: a feature store, or one ``.npz`` file.

A ``.npz`` holds ``ids`` (n names), ``features`` (n, steps, width), if they are
not floats a ``scale`` to multiply them by, and if clips are of different
length their ``lengths`` in steps.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.training.visuals import FeatureTable
from polyglance.vision.store import FeatureStore
from polyglance.vision.tokens import feature_key

Halves = NDArray[np.float16]


class FeatureSource(Protocol):
    """Where features come from."""

    width: int

    def find(self, record: Record) -> str | None:
        """The name of a record's picture or clip, if its features are here."""
        ...

    def rows(self, name: str) -> Halves:
        """One vector a second or cell."""
        ...


class StoreFeatures:
    """A `FeatureStore`; with ``whole_first`` the vector of the whole precedes the others."""

    def __init__(self, store: FeatureStore, *, whole_first: bool = False) -> None:
        self.store, self.whole_first = store, whole_first
        self.width = store.info.width

    def find(self, record: Record) -> str | None:
        """The key of the record's picture or clip in the store."""
        return self.store.find(record)

    def rows(self, name: str) -> Halves:
        """The tokens as the store has them."""
        tokens = self.store[name]
        if not self.whole_first:
            return tokens.features.astype(np.float16)
        return np.concatenate([tokens.whole[None], tokens.features]).astype(np.float16)


class ArrayFeatures:
    """The arrays of a ``.npz`` file."""

    def __init__(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                ids, self.features = arrays["ids"], arrays["features"]
                self.scale = arrays.get("scale")
                self.lengths = arrays.get("lengths")
        except KeyError as error:
            raise DataError(f"{path}: expected arrays 'ids' and 'features' ({error})") from error
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: cannot be read as .npz ({error})") from error
        if self.features.ndim != 3 or len(ids) != len(self.features):
            raise DataError(
                f"{path}: expected features of shape (ids, steps, width), not"
                f" {self.features.shape} for {len(ids)} ids"
            )
        self.width: int = self.features.shape[2]
        self._numbers = {str(name): number for number, name in enumerate(ids)}

    def find(self, record: Record) -> str | None:
        """The record's own key, its id, or its file's name without suffix, as ids name it."""
        place = record.image or record.video or ""
        names = (feature_key(record), record.id, PurePosixPath(place).stem)
        return next((name for name in names if name and name in self._numbers), None)

    def rows(self, name: str) -> Halves:
        """One vector a step."""
        number = self._numbers[name]
        rows: NDArray[Any] = self.features[number]
        if self.scale is not None:
            rows = rows * self.scale[number].astype(np.float32)
        if self.lengths is not None:
            rows = rows[: int(self.lengths[number])]
        return rows.astype(np.float16)


class SideBySide:
    """Several sources whose vectors stand side by side, as MMP joins two networks' (5.2)."""

    def __init__(self, sources: Sequence[FeatureSource]) -> None:
        self.sources = sources
        self.width = sum(source.width for source in sources)
        self._names: dict[str, list[str]] = {}

    def find(self, record: Record) -> str | None:
        """The record's key, where all sources have its features."""
        found = [source.find(record) for source in self.sources]
        names = [name for name in found if name is not None]
        if len(names) < len(found):
            return None
        self._names[feature_key(record)] = names
        return feature_key(record)

    def rows(self, name: str) -> Halves:
        """Side by side, as long as the shortest."""
        parts = [
            source.rows(own) for source, own in zip(self.sources, self._names[name], strict=True)
        ]
        steps = min(len(part) for part in parts)
        return np.concatenate([part[:steps] for part in parts], axis=1)


def open_features(paths: Sequence[Path], *, whole_first: bool = False) -> FeatureSource:
    """Open a feature store or ``.npz``, or several side by side."""
    sources: list[FeatureSource] = []
    for path in paths:
        if not path.exists():
            raise DataError(
                f"{path}: there are no such features; 'polyglance features extract' makes them"
            )
        if path.is_dir():
            sources.append(StoreFeatures(FeatureStore(path), whole_first=whole_first))
        else:
            sources.append(ArrayFeatures(path))
    if not sources:
        raise PolyglanceError("a corpus needs features: name a feature store or a .npz file")
    return sources[0] if len(sources) == 1 else SideBySide(sources)


def feature_table(
    records: Sequence[Record],
    source: FeatureSource,
    *,
    longest: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[list[Record], FeatureTable]:
    """The records that have features, and these on the device, of the first ``longest`` steps.

    How many records have none is said on standard error.
    """
    kept: list[Record] = []
    parts: list[Halves] = []
    for record in records:
        name = source.find(record)
        rows = None if name is None else source.rows(name)[:longest]
        if rows is not None and len(rows):
            kept.append(record)
            parts.append(rows)
    missing = len(records) - len(kept)
    if not kept:
        example = f", such as {records[0].key!r}" if records else ""
        raise PolyglanceError(
            f"none of {len(records)} records has features{example}:"
            " extract them, or choose the manifest they were made from"
        )
    if missing:
        print(f"{missing:,} of {len(records):,} records have no features", file=sys.stderr)
    features = torch.from_numpy(np.concatenate(parts))
    return kept, FeatureTable(features, np.array([len(part) for part in parts]), device)
