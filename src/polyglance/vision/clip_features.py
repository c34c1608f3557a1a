"""Features of video networks as their extractors write them: one vector a second of a video.

| layout | files |
|---|---|
| a folder | one file a video, at any depth: ``VIDEO.npy``, ``.npz``, ``.pt`` or ``.h5`` |
| one ``.h5`` | a dataset a video, or a group that holds one |

A ``.npz``, ``.pt`` or ``.h5`` file of one video holds one array, or several of which one is
called ``features``. Arrays are (seconds, width); axes of length 1 beside these are dropped,
and a single vector is one second. Nothing is unpickled: ``.pt`` files are read with
``weights_only``. A video is read when it is asked for, so that any number of them fits.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, MissingExtraError, error_reason, printable

Array = NDArray[Any]
FEATURES = "features"
"""Name of the array to read where a file holds several."""


class ClipFeatureError(DataError):
    """Features of a video that cannot be read."""


class ClipFeatures(ABC):
    """Features by video: ``keys`` names all, `read` reads one."""

    keys: tuple[str, ...]

    def __init__(self) -> None:
        self._open_files = ExitStack()

    @abstractmethod
    def read(self, key: str) -> NDArray[np.float32]:
        """Return a video's features, (seconds, width), 1 second or more."""

    def close(self) -> None:
        """Close open files."""
        self._open_files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_clip_features(source: str | Path) -> ClipFeatures:
    """Open a folder with a file a video, or an HDF5 file with a dataset a video."""
    source = Path(source)
    if source.is_dir():
        return FolderOfClips(source)
    if source.suffix.lower() in _HDF5 and source.is_file():
        return Hdf5Clips(source)
    names = ", ".join(_READERS)
    raise ClipFeatureError(
        f"{printable(str(source))}: expected a folder with one file a video ({names}), or an .h5"
        " file with one dataset a video"
    )


class FolderOfClips(ClipFeatures):
    """A folder of files, each named after its video."""

    def __init__(self, folder: Path) -> None:
        """List the files; none is opened."""
        super().__init__()
        self.folder = folder
        # A path below the folder, which is shorter than a Path and than the whole path.
        self._files: dict[str, str] = {}
        for parent, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                stem, suffix = os.path.splitext(name)  # noqa: PTH122 (millions of names)
                if suffix.lower() not in _READERS or name.startswith("."):
                    continue
                file = os.path.relpath(os.path.join(parent, name), folder)  # noqa: PTH118
                if stem in self._files:
                    raise ClipFeatureError(
                        f"{folder}: {self._files[stem]} and {file} are of the same video {stem!r}:"
                        " import the features of one network at a time"
                    )
                self._files[stem] = file
        if not self._files:
            raise ClipFeatureError(
                f"{folder}: holds no features; expected one file a video ({', '.join(_READERS)})"
            )
        self.keys = tuple(sorted(self._files))

    def read(self, key: str) -> NDArray[np.float32]:
        """See `ClipFeatures.read`."""
        file = self.folder / self._files[key]
        try:
            array = _READERS[file.suffix.lower()](file)
        except (MissingExtraError, ClipFeatureError):
            raise
        except Exception as error:  # numpy, zipfile, torch and HDF5 raise anything on such files
            raise ClipFeatureError(f"cannot be read ({error_reason(error)})") from error
        return _rows(array)


class Hdf5Clips(ClipFeatures):
    """An HDF5 file with a dataset a video, or a group that holds one."""

    def __init__(self, path: Path) -> None:
        """Open the file; datasets are read one by one."""
        super().__init__()
        self.path = path
        try:
            self._file = self._open_files.enter_context(_open_hdf5(path))
            self.keys = tuple(sorted(self._file))
        except MissingExtraError:
            raise
        except Exception as error:  # HDF5 raises anything on a mangled file
            raise ClipFeatureError(
                f"{path}: cannot be read as HDF5 ({error_reason(error)})"
            ) from error
        if not self.keys:
            raise ClipFeatureError(f"{path}: holds no features; expected one dataset a video")

    def read(self, key: str) -> NDArray[np.float32]:
        """See `ClipFeatures.read`."""
        try:
            array = _hdf5_array(self._file[key])
        except ClipFeatureError:
            raise
        except Exception as error:
            raise ClipFeatureError(f"cannot be read ({error_reason(error)})") from error
        return _rows(array)


def _rows(array: object) -> NDArray[np.float32]:
    """Check an array of a video and return it as (seconds, width)."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise ClipFeatureError("expected an array of numbers")
    rows: Array = array[None] if array.ndim == 1 else array
    while rows.ndim > 2 and rows.shape[-1] == 1:
        rows = rows[..., 0]  # (seconds, width, 1, 1) of a pooled map
    while rows.ndim > 2 and rows.shape[0] == 1:
        rows = rows[0]  # (1, seconds, width) of a batch
    if rows.ndim != 2 or 0 in rows.shape:
        raise ClipFeatureError(f"expected (seconds, width), found an array of {rows.shape}")
    if not np.isfinite(rows).all():
        raise ClipFeatureError("expected finite numbers")
    return np.array(rows, np.float32)


def _one_of(arrays: Mapping[str, Any]) -> Any:
    """Return the only array, or the one called ``features``."""
    names: Iterable[str] = list(arrays)
    chosen = FEATURES if FEATURES in names else next(iter(names)) if len(arrays) == 1 else None
    if chosen is None:
        found = ", ".join(map(str, names)) or "none"
        raise ClipFeatureError(f"expected one array, or one called {FEATURES!r}; found {found}")
    return arrays[chosen]


def _read_npy(path: Path) -> Array:
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _read_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as archive:
        return _one_of(archive)


def _read_pt(path: Path) -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading .pt files", "train") from error
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, dict):
        content = _one_of(content)
    return content.float().numpy() if isinstance(content, torch.Tensor) else content


def _read_hdf5(path: Path) -> Any:
    with _open_hdf5(path) as file:
        return _hdf5_array(file)


def _hdf5_array(entry: Any) -> Any:
    """Return the content of a dataset, or of the dataset of features in a group."""
    dataset = _one_of(entry) if isinstance(entry, Mapping) else entry
    if isinstance(dataset, Mapping):
        raise ClipFeatureError("expected a dataset, found a group of groups")
    return dataset[()]


def _open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise MissingExtraError("reading HDF5 files", "regions") from error
    return h5py.File(path, "r")


_HDF5 = (".h5", ".hdf5")
_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".pth": _read_pt,
    ".h5": _read_hdf5,
    ".hdf5": _read_hdf5,
}
