"""Open features extracted beforehand and find them by record: a feature store, or a ``.npz``.

A ``.npz`` holds ``ids`` (n names), ``features`` (n, steps, width), a ``scale`` to multiply
them by where they are not floats, and ``lengths`` in steps where clips differ in length.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError
from polyglance.records import Record
from polyglance.vision.store import FeatureStore
from polyglance.vision.tokens import feature_key

Float16Array = NDArray[np.float16]

MAKE_FEATURES = (
    "'polyglance features extract' computes them from pictures and clips with an image network,"
    " 'polyglance features import' takes those of a 3-D network that you have as .npy, .npz, .h5"
    " or .pt files, one vector a second, and 'polyglance features regions' those of a detector"
)
"""Where features come from, for errors about missing ones."""


class FeatureSource(Protocol):
    """A collection of features, by image or clip."""

    width: int

    def find(self, record: Record) -> str | None:
        """Return the name of a record's image or clip, or None if its features are missing."""
        ...

    def rows(self, name: str) -> Float16Array:
        """Return the features of an image or clip, ``(cells or seconds, width)``."""
        ...


class StoreFeatures:
    """Features in a `FeatureStore`."""

    def __init__(self, store: FeatureStore, *, prepend_global: bool = False) -> None:
        """With ``prepend_global`` the global vector precedes the others."""
        self.store, self.prepend_global = store, prepend_global
        self.width = store.info.width
        self.made_by: tuple[dict[str, Any], ...] = (dict(store.info.made_by),)

    def find(self, record: Record) -> str | None:
        """Return the key of the record's image or clip in the store."""
        return self.store.find(record)

    def rows(self, name: str) -> Float16Array:
        """Return the features as stored."""
        tokens = self.store[name]
        if not self.prepend_global:
            return tokens.features.astype(np.float16)
        return np.concatenate([tokens.global_feature[None], tokens.features]).astype(np.float16)


class NpzFeatures:
    """Features in a ``.npz`` file."""

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
        self.made_by: tuple[dict[str, Any], ...] = ({"file": path.name},)
        self._numbers = {str(name): number for number, name in enumerate(ids)}

    def find(self, record: Record) -> str | None:
        """Return the record's key, its id, or its file name without suffix, if ids have it."""
        path = record.image or record.video or ""
        names = (feature_key(record), record.id, PurePosixPath(path).stem)
        return next((name for name in names if name and name in self._numbers), None)

    def rows(self, name: str) -> Float16Array:
        """Return one vector a step."""
        number = self._numbers[name]
        rows: NDArray[Any] = self.features[number]
        if self.scale is not None:
            rows = rows * self.scale[number].astype(np.float32)
        if self.lengths is not None:
            rows = rows[: int(self.lengths[number])]
        return rows.astype(np.float16)


class ConcatenatedFeatures:
    """Several sources, their vectors concatenated, as MMP joins two networks' (section 5.2)."""

    def __init__(self, sources: Sequence[FeatureSource]) -> None:
        self.sources = sources
        self.width = sum(source.width for source in sources)
        self.made_by = tuple(entry for source in sources for entry in made_by(source))
        self._names: dict[str, list[str]] = {}

    def find(self, record: Record) -> str | None:
        """Return the record's key if all sources have its features."""
        names = [source.find(record) for source in self.sources]
        present = [name for name in names if name is not None]
        if len(present) < len(names):
            return None
        key = feature_key(record)
        if any(name != key for name in present):
            self._names[key] = present
        return key

    def rows(self, name: str) -> Float16Array:
        """Return concatenated vectors, as many as the shortest source has."""
        names = self._names.get(name, [name] * len(self.sources))
        parts = [source.rows(own) for source, own in zip(self.sources, names, strict=True)]
        steps = min(len(part) for part in parts)
        return np.concatenate([part[:steps] for part in parts], axis=1)


def made_by(source: FeatureSource) -> tuple[dict[str, Any], ...]:
    """Return how the features of each of a source's networks were made, where that is known."""
    known: tuple[dict[str, Any], ...] = getattr(source, "made_by", ({},))
    return known


def open_features(paths: Sequence[Path], *, prepend_global: bool = False) -> FeatureSource:
    """Open a feature store or ``.npz``, or several whose vectors are concatenated."""
    sources: list[FeatureSource] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: there are no such features; {MAKE_FEATURES}")
        if path.is_dir():
            sources.append(StoreFeatures(FeatureStore(path), prepend_global=prepend_global))
        else:
            sources.append(NpzFeatures(path))
    if not sources:
        raise PolyglanceError("a corpus needs features: name a feature store or a .npz file")
    return sources[0] if len(sources) == 1 else ConcatenatedFeatures(sources)
