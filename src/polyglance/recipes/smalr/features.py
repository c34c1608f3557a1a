"""Image features that another program made, such as ResNet-152's (SMALR, section 4).

Beside a feature store and the ``.npz`` of `polyglance.vision.feature_sources`:

- ``NAME.npy``, ``(images, width)`` or ``(images, crops, width)``, with the name of each image on
  a line of ``NAME.txt``; read as needed, not loaded whole;
- ``NAME.h5`` or ``NAME.hdf5`` with a dataset an image, ``(width,)`` or ``(crops, width)``, by
  its name.

A name is that of the file with or without folders and suffix. Crops are averaged: the paper has
ten of 448 x 448 pixels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, MissingExtraError, error_reason
from polyglance.records import Record
from polyglance.vision.feature_sources import FeatureSource, NpzFeatures, open_features
from polyglance.vision.tokens import feature_key

Float16Array = NDArray[np.float16]


def open_image_features(path: Path) -> FeatureSource:
    """Open features by the kind of their file; a store's global vector comes first."""
    if path.suffix == ".npy" and path.is_file():
        return MatrixFeatures(path)
    if path.suffix in (".h5", ".hdf5") and path.is_file():
        return HDF5Features(path)
    source = open_features([path], prepend_global=True)
    return ByFileName(source) if isinstance(source, NpzFeatures) else source


class ByFileName:
    """Finds an image by the name of its file alone, where its path is not known."""

    def __init__(self, source: FeatureSource) -> None:
        self.source, self.width = source, source.width

    def find(self, record: Record) -> str | None:
        """Return the name under which the record's image is known."""
        alone = replace(record, image=PurePosixPath(record.image or record.key).name)
        return self.source.find(record) or self.source.find(alone)

    def rows(self, name: str) -> Float16Array:
        """Return the vectors of an image, ``(crops, width)``."""
        return self.source.rows(name)


class MatrixFeatures:
    """Rows of a memory-mapped ``.npy``, named by a text file."""

    def __init__(self, path: Path) -> None:
        names = path.with_suffix(".txt")
        try:
            lines = [line.strip() for line in names.read_text(encoding="utf-8").splitlines()]
            self.features = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: cannot be read with the names in {names} ({error_reason(error)})"
            ) from error
        if self.features.ndim not in (2, 3) or len(lines) != len(self.features):
            raise DataError(
                f"{path}: expected a row for each of the {len(lines)} names in {names}, not shape"
                f" {self.features.shape}"
            )
        self.width = int(self.features.shape[-1])
        self._numbers = {s: row for row, name in enumerate(lines) for s in _spellings(name)}

    def find(self, record: Record) -> str | None:
        """Return the name under which the record's image is known."""
        return next((name for name in _names_of(record) if name in self._numbers), None)

    def rows(self, name: str) -> Float16Array:
        """Return the mean over crops, ``(1, width)``."""
        return _mean(self.features[self._numbers[name]], self.width)


class HDF5Features:
    """Datasets of an HDF5 file, one an image."""

    def __init__(self, path: Path) -> None:
        try:
            import h5py
        except ModuleNotFoundError:
            raise MissingExtraError("reading features from HDF5", "regions") from None
        try:
            self.file = h5py.File(path, "r")
            names = list(self.file)
            self.width = int(self.file[names[0]].shape[-1])
        except (OSError, IndexError, AttributeError) as error:
            raise DataError(
                f"{path}: expected a dataset for each image ({error_reason(error)})"
            ) from error
        self._names = {s: name for name in names for s in _spellings(name)}

    def find(self, record: Record) -> str | None:
        """Return the name under which the record's image is known."""
        return next((name for name in _names_of(record) if name in self._names), None)

    def rows(self, name: str) -> Float16Array:
        """Return the mean over crops, ``(1, width)``."""
        return _mean(np.asarray(self.file[self._names[name]]), self.width)


def _spellings(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    return name, path.name, path.stem


def _names_of(record: Record) -> list[str]:
    path = PurePosixPath(record.image or record.key)
    return [feature_key(record), *([record.id] if record.id else []), path.name, path.stem]


def _mean(rows: NDArray[np.floating], width: int) -> Float16Array:
    mean: Float16Array = (
        rows.reshape(-1, width).mean(0, keepdims=True, dtype=np.float32).astype(np.float16)
    )
    return mean
