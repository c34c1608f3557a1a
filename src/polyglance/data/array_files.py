"""Arrays larger than memory: a folder of one file each, written in pieces and memory-mapped.

A JSON file beside the arrays says what they were built from (``key``) and how long they are.
Opening maps them: pages are read when they are used, and the system drops them again when memory
is short.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from polyglance.errors import DataError, PolyglanceError

DTypes = Mapping[str, np.dtype[Any]]
Arrays = dict[str, NDArray[Any]]


class ArrayWriter:
    """Writes one-dimensional arrays piece by piece; use as a context manager.

    The folder appears when all is written; a killed run leaves a ``.partial`` folder, which the
    next attempt replaces.
    """

    def __init__(self, folder: Path, dtypes: DTypes, info_file: str) -> None:
        """Begin to write.

        Args:
            folder: Where; one that is there is replaced.
            dtypes: The arrays by name.
            info_file: Name of the JSON file, for which `info` is filled meanwhile.
        """
        self.folder, self.info_file = folder, info_file
        self.info: dict[str, Any] = {}
        self._dtypes = dtypes
        self._partial = folder.with_name(folder.name + ".partial")
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)
            self._files = {name: (self._partial / name).open("wb") for name in self._dtypes}
        except OSError as error:
            raise PolyglanceError(
                f"{self.folder}: cannot be written ({error.strerror or error}); give a writable"
                " cache folder"
            ) from error
        return self

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Add values at the end of an array."""
        self._files[name].write(np.ascontiguousarray(values, self._dtypes[name]).data)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for file in self._files.values():
            file.close()
        if kind is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            return
        text = json.dumps(self.info, indent=2) + "\n"
        (self._partial / self.info_file).write_text(text, encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.replace(self._partial, self.folder)


def read_info(folder: Path, info_file: str, key: str | None = None) -> dict[str, Any] | None:
    """Read the JSON file of a folder of arrays.

    Args:
        folder: The folder.
        info_file: The name of the file.
        key: What the arrays must be built from; None for anything.

    Returns:
        Its content, or None if there is none with this key.
    """
    try:
        info: dict[str, Any] = json.loads((folder / info_file).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{folder / info_file}: cannot be read ({error}); move the folder away"
        ) from error
    return None if key is not None and info.get("key") != key else info


def map_arrays(folder: Path, dtypes: DTypes, lengths: Mapping[str, int]) -> Arrays:
    """Map the arrays of a folder.

    Args:
        folder: The folder.
        dtypes: The arrays by name.
        lengths: How many values each must have.
    """
    arrays: Arrays = {}
    for name, dtype in dtypes.items():
        path, count = folder / name, lengths[name]
        if not path.is_file() or path.stat().st_size != count * dtype.itemsize:
            raise DataError(f"{path}: is damaged; delete {folder} to have it made again")
        empty = not count  # nothing cannot be mapped
        arrays[name] = np.zeros(0, dtype) if empty else np.memmap(path, dtype, "r", shape=(count,))
    return arrays
